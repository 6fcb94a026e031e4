//! The end of a server, and what it leaves behind.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::{fs::MetadataExt as _, net::UnixListener},
    path::PathBuf,
};

use crate::support::{Answer, DEMO, Gateway, answers, script};

#[test]
fn calls_are_served_to_their_end() {
    let mut gateway = Gateway::sidecar(&script("touch $SHARED/began; sleep 3; echo 'a: b'"));
    gateway.file("x", "");
    let client = gateway.begin("demo-v1.0", "GenerateManifest", ".", &[]);
    let (began, socket) = (gateway.path("began"), gateway.socket("demo-v1.0"));
    gateway.wait_until(|| began.exists());
    gateway.terminate();
    gateway.wait_until(|| !socket.exists());
    assert_eq!(answers(client)[0].manifests(), ["a: b\n"]);
    assert!(gateway.wait().success(), "{}", gateway.log());
}

/// Who watches the state learns of the end before the connection goes, and delays nothing.
#[test]
fn watchers_learn_of_the_end() {
    let mut gateway = Gateway::sidecar(DEMO);
    let mut watcher = gateway.begin("demo-v1.0", "Watch", ".", &[]);
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    let mut next = || Answer(serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap());
    assert_eq!(next().fields("1"), [1], "it serves");
    gateway.terminate();
    assert_eq!(next().fields("1"), [2], "it does not serve any more");
    assert!(gateway.wait().success());
    assert_eq!(next().code(), "Unavailable", "the connection is gone");
    assert!(watcher.wait().unwrap().success());
}

/// File systems give the number of a removed file to the next one, so a number alone does not tell them apart.
#[test]
fn a_socket_of_a_later_server_stays() {
    for make in [
        |path: &PathBuf| std::fs::write(path, "another").unwrap(),
        |path: &PathBuf| drop(UnixListener::bind(path).unwrap()),
    ] {
        let mut gateway = Gateway::sidecar(DEMO);
        let socket = gateway.socket("demo-v1.0");
        let first = socket.metadata().unwrap().ino();
        let again = (0..50).any(|_| {
            std::fs::remove_file(&socket).unwrap();
            make(&socket);
            socket.metadata().unwrap().ino() == first
        });
        gateway.terminate();
        assert!(gateway.wait().success());
        assert!(socket.exists(), "same number: {again}");
    }
}

#[test]
fn a_server_without_a_usable_plugin_says_why() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plugin.yaml"), "kind: Deployment\n").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cmp-gateway"));
    let output =
        command.arg("--config-dir-path").arg(folder.path()).env("ARGOCD_CMP_WORKDIR", folder.path()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && error.contains("kind must be ConfigManagementPlugin"), "{error}");
}

/// A container's first process gets all orphans, and must wait for each of them.
#[test]
fn a_thousand_orphans_leave_no_zombie() {
    let text = "i=0; while [ $i -lt 1000 ]; do (true &); i=$((i+1)); done; sleep 1; echo \"pid: $(readlink /proc/self/ns/pid)\"";
    let mut gateway = Gateway::sidecar_as_first_process(&script(text));
    gateway.file("x", "");
    let answer = gateway.ask("GenerateManifest", ".", &[]);
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let manifests = answer.manifests();
    assert!(manifests[0].starts_with("pid: pid:[") && !manifests[0].contains(own.to_str().unwrap()), "{answer:?}");
    let states = gateway.states();
    assert!(states.len() > 1, "{states:?}");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while gateway.states().contains(&'Z') {
        assert!(std::time::Instant::now() < until, "{:?}", gateway.states());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    gateway.terminate();
    assert!(gateway.wait().success());
}
