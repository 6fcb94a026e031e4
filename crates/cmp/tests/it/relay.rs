//! The relay between Argo CD and services: what goes through, and what is spared.

use std::{fs, process::Command, thread::sleep, time::Duration};

use nix::sys::signal::Signal;

use crate::{
    remotes::{Certificates, Service, metric},
    support::{DEMO, Gateway, answers, script},
};

#[test]
fn a_plugin_is_called_through_the_relay() {
    let certificates = Certificates::new();
    let mut services = [certificates.service(DEMO, ""), certificates.service(DEMO, "")];
    let mut relay = certificates.relay(&[&services[0].address, &services[1].address], "");
    relay.wait_until_known();
    relay.file("demo.yaml", "a: b\n").file("other/x", "").file(".git/HEAD", "ref: refs/heads/main\n");
    assert_eq!(relay.ask("CheckPluginConfiguration", ".", &[]).fields("1"), [1]);
    assert!(relay.ask("MatchRepository", ".", &[]).is_supported());
    assert!(!relay.ask("MatchRepository", "other", &[]).is_supported());
    assert_eq!(services.iter_mut().map(Service::runs).sum::<u64>(), 0, "names are decided in the relay");
    let first = relay.ask("GenerateManifest", ".", &["-env", "ARGOCD_APP_NAME=shop"]);
    assert_eq!(first.manifests(), ["kind: ConfigMap\nmetadata: {name: shop}\na: b\n"]);
    let sent = metric(&mut relay, "cmp_gateway_relay_sent_bytes_total", "demo-v1.0");
    assert!(sent > 0);
    // Another checkout of the same commit.
    relay.file(".git/HEAD", "ref: refs/heads/other\n");
    let all = relay.ask_all("GenerateManifest", ".", &["-env", "ARGOCD_APP_NAME=shop", "-n", "8"]);
    assert!(all.iter().all(|answer| answer.manifests() == first.manifests()), "{all:?}");
    assert_eq!(metric(&mut relay, "cmp_gateway_relay_sent_bytes_total", "demo-v1.0"), sent, "nothing more is sent");
    assert!(metric(&mut relay, "cmp_gateway_relay_spared_bytes_total", "demo-v1.0") > 0);
    let runs = services.each_mut().map(Service::runs);
    assert!(runs == [9, 0] || runs == [0, 9], "a tree stays where it is: {runs:?}");
}

/// Eight calls at once of a tree that nobody has: it is sent once.
#[test]
fn a_tree_is_sent_once() {
    let certificates = Certificates::new();
    let mut service = certificates.service(&script("cat x"), "");
    let mut relay = certificates.relay(&[&service.address], "");
    relay.wait_until_known();
    relay.file("x", "a: b\n");
    let all = relay.ask_all("GenerateManifest", ".", &["-n", "8"]);
    assert!(all.iter().all(|answer| answer.manifests() == ["a: b\n"]), "{all:?}");
    assert_eq!(metric(&mut service.gateway, "cmp_gateway_calls_total", "method=\"Put\""), 1);
}

/// A service that has no room for the tree gets Argo CD's own call.
#[test]
fn a_tree_that_the_service_cannot_keep_is_sent_with_the_call() {
    let certificates = Certificates::new();
    let service = certificates.service_trees(&script("cat x"), "1KiB");
    let relay = certificates.relay(&[&service.address], "");
    relay.file("x", "a: b\n");
    for _ in 0..2 {
        assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
    }
}

/// Modes and `.git` count as the service's settings say.
#[test]
fn a_tree_is_what_the_plugin_sees() {
    let certificates = Certificates::new();
    let plugin = script("echo \"git: '$(cat .git/HEAD)'\"; echo \"run: $(./run)\"")
        .replace("spec: {", "spec: {preserveFileMode: true, ");
    let service = certificates.service(&plugin, ", git: true");
    let relay = certificates.relay(&[&service.address], "");
    relay.file(".git/HEAD", "main").file("run", "#!/bin/sh\necho yes\n");
    let run = relay.path("repository/run");
    Command::new("chmod").arg("+x").arg(&run).status().unwrap();
    assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["git: 'main'\nrun: yes\n"]);
    relay.file(".git/HEAD", "other");
    assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["git: 'other'\nrun: yes\n"]);
}

/// A changed plugin.yaml changes what belongs to a tree, and rules of discovery.
#[test]
fn a_changed_plugin_is_described_again() {
    let certificates = Certificates::new();
    let service = certificates.service(&script("test -x run || echo 'a: no'; test ! -x run || echo 'a: yes'"), "");
    let mut relay = certificates.relay(&[&service.address], "");
    relay.wait_until_known();
    relay.file("run", "");
    Command::new("chmod").arg("+x").arg(relay.path("repository/run")).status().unwrap();
    assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["a: no\n"]);
    let file = service.gateway.path("demo/plugin.yaml");
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("spec: {", "spec: {preserveFileMode: true, discover: {fileName: run}, ");
    fs::write(&file, text).unwrap();
    assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["a: yes\n"]);
    assert!(relay.ask("MatchRepository", ".", &[]).is_supported());
}

#[test]
fn parameters_and_commands_of_discovery_come_from_the_remote() {
    let certificates = Certificates::new();
    let plugin = r"
kind: ConfigManagementPlugin
metadata: {name: demo}
spec:
  version: v1.0
  discover: {find: {command: [cat, found]}}
  generate: {command: [cat, x]}
  parameters: {static: [{name: first}], dynamic: {command: [cat, parameters]}}
";
    let service = certificates.service(plugin, "");
    let mut relay = certificates.relay(&[&service.address], "");
    relay.wait_until_known();
    relay.file("a/found", "x").file("b/found", "").file("a/parameters", r#"[{"name": "second"}]"#);
    assert!(relay.ask("MatchRepository", "a", &[]).is_supported());
    assert!(!relay.ask("MatchRepository", "b", &[]).is_supported(), "{} {}", relay.log(), service.gateway.log());
    let found = relay.ask("GetParametersAnnouncement", "a", &[]);
    assert_eq!(found.fields("1").len(), 2, "{found:?}");
    let text = fs::read_to_string(service.gateway.path("demo/plugin.yaml")).unwrap();
    fs::write(service.gateway.path("demo/plugin.yaml"), text.replace(", dynamic: {command: [cat, parameters]}", ""))
        .unwrap();
    sleep(Duration::from_secs(6));
    service.gateway.signal(Signal::SIGKILL);
    let found = relay.ask("GetParametersAnnouncement", "a", &[]);
    assert_eq!(found.fields("1").len(), 1, "without the remote: {found:?}");
}

#[test]
fn sockets_come_and_go_with_the_configuration() {
    let certificates = Certificates::new();
    let mut service = certificates.service(&script("sleep 3; echo 'a: b'"), "");
    let mut relay = certificates.relay(&[&service.address], "");
    relay.wait_until_known();
    relay.file("x", "");
    let file = relay.path("relay.yaml");
    let first = fs::read_to_string(&file).unwrap();
    let tls = certificates.of_relay();
    let second = format!("{first}- {{ name: other, address: '127.0.0.1:1', tls: {tls} }}\n");
    fs::write(&file, &second).unwrap();
    let (own, other) = (relay.socket("demo-v1.0"), relay.socket("other"));
    relay.wait_until(|| other.exists());
    // An invalid one changes nothing.
    fs::write(&file, format!("{second}- {{ name: other, address: '127.0.0.1', tls: {tls} }}\n")).unwrap();
    relay.wait_for_log("the old one stays in use");
    let log = relay.log();
    assert!(log.contains("is also the name of the remote in line") && log.contains("is not `host:port`"), "{log}");
    assert!(own.exists() && other.exists());
    // An open call of a remote that is removed goes on.
    let client = relay.begin("demo-v1.0", "GenerateManifest", ".", &[]);
    while metric(&mut service.gateway, "cmp_gateway_running", "demo") == 0 {
        sleep(Duration::from_millis(10));
    }
    fs::write(&file, second.replace("name: demo", "name: renamed")).unwrap();
    let renamed = relay.socket("renamed-v1.0");
    relay.wait_until(|| renamed.exists() && !own.exists());
    assert_eq!(answers(client)[0].manifests(), ["a: b\n"]);
}

/// Somebody else writes to the folder of sockets, or uses the same work folder.
#[test]
fn two_relays_leave_each_other_alone() {
    let certificates = Certificates::new();
    let service = certificates.service(&script("cat x"), "");
    let first = certificates.relay(&[&service.address], "");
    first.file("x", "a: b\n");
    let text = fs::read_to_string(first.path("relay.yaml")).unwrap();
    let mut second = Gateway::relay_of(&text, "no socket");
    assert!(second.log().contains("another process serves this socket"), "{}", second.log());
    let spools =
        || fs::read_dir(first.path("work/_cmp_relay")).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(spools(), 2);
    assert_eq!(first.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
    // A killed relay leaves its socket, which another one may take.
    first.signal(Signal::SIGKILL);
    second.wait_for_log("\"serving\"");
    let mut third = Gateway::relay_of(&text, "no socket");
    assert_eq!(spools(), 2, "the folder of the killed one is gone");
    second.terminate();
    assert!(second.wait().success());
    third.wait_for_log("\"serving\"");
    assert_eq!(first.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
}

#[test]
fn the_status_names_replicas_and_failures() {
    let certificates = Certificates::new();
    let service = certificates.service(DEMO, "");
    let mut relay = certificates.relay(&[&service.address, "127.0.0.1:1"], "");
    relay.wait_until_known();
    let address = relay.address("serving probes and metrics");
    let status = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cmp-gateway"));
        String::from_utf8(command.args(["status", &address]).output().unwrap().stdout).unwrap()
    };
    relay.wait_until(|| status().contains("127.0.0.1:1 down, 0 calls; "));
    let text = status();
    assert!(text.contains("demo-v1.0: cmp-gateway, discovery fileName: ./demo.yaml; sent 0 bytes, spared 0"), "{text}");
    assert!(text.contains(&format!("{} up, 0 calls\n", service.address)) && text.contains("refused"), "{text}");
    assert_eq!(metric(&mut relay, "cmp_gateway_relay_replicas", "state=\"down\""), 1);
}
