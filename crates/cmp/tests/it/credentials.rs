//! Git credentials through relay and service: git clones a repository that needs a password, in a run on the service.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command},
    thread::sleep,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    git_server::{GitServer, PASSWORD, USER},
    remotes::{Certificates, Service},
    support::{Answer, Gateway, client, script},
};

const NONCE: &str = "4d2a7c5e-nonce-of-argo-cd";
/// What the plugin does: clones, and prints the file. It may read neither the system's configuration of git nor that of its user.
const CLONE: &str =
    "HOME=$TMPDIR GIT_CONFIG_NOSYSTEM=1 git clone -q \"$ARGOCD_APP_SOURCE_REPO_URL\" private && cat private/x";

/// Argo CD's askpass service, for one nonce.
struct Askpass {
    child: Child,
    folder: TempDir,
}

impl Askpass {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(client());
        command
            .arg(folder.path().join("socket"))
            .arg("Askpass")
            .stdout(File::create(folder.path().join("log")).unwrap());
        command.envs([("NONCE", NONCE), ("LOGIN_USER", USER), ("LOGIN_PASSWORD", PASSWORD)]);
        let askpass = Self { child: command.spawn().unwrap(), folder };
        while !askpass.socket().exists() {
            sleep(Duration::from_millis(10));
        }
        askpass
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// How often it was asked.
    fn questions(&self) -> usize {
        fs::read_to_string(self.folder.path().join("log")).unwrap().lines().count()
    }
}

impl Drop for Askpass {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A plugin that wants credentials and runs `text`.
fn wanting(text: &str) -> String {
    script(text).replace("spec: {", "spec: {provideGitCreds: true, ")
}

fn relay(certificates: &Certificates, services: &[&Service], askpass: &Askpass, settings: &str) -> Gateway {
    let addresses: Vec<&str> = services.iter().map(|service| service.address.as_str()).collect();
    let config = certificates.relay_yaml(&addresses, settings);
    let mut relay = Gateway::relay(&[], &format!("askPass: {}\n{config}", askpass.socket().display()));
    relay.wait_until_known();
    relay.file("x", "");
    relay
}

/// The answer of a call with all that Argo CD sends beside a nonce.
fn ask(relay: &Gateway, git: &GitServer) -> Answer {
    let mut flags = Vec::new();
    for entry in [
        &format!("ARGOCD_APP_SOURCE_REPO_URL={}", git.url),
        &format!("ARGOCD_GIT_ASKPASS_NONCE={NONCE}"),
        "GIT_ASKPASS=argocd",
        "GIT_TERMINAL_PROMPT=0",
        "ARGOCD_BINARY_NAME=argocd-git-ask-pass",
        "ARGOCD_ASK_PASS_SOCK=/tmp/reposerver-ask-pass.sock",
        "ARGOCD_GIT_BEARER_AUTH_HEADER=Authorization: Bearer b34r3r",
        "GIT_SSH_COMMAND=ssh -i /dev/shm/key",
    ] {
        flags.extend(["-env".to_owned(), entry.to_owned()]);
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    relay.ask("GenerateManifest", ".", &flags)
}

/// Whether a text is in a log, a file below the work folders, or the status.
fn assert_nowhere(gateways: &[&Gateway], texts: &[&str]) {
    for gateway in gateways {
        for text in texts {
            let found = Command::new("grep").args(["-rlF", text]).arg(gateway.path(".")).output().unwrap();
            assert!(found.stdout.is_empty(), "`{text}` is in {}", String::from_utf8_lossy(&found.stdout));
        }
    }
}

#[test]
fn git_in_a_run_gets_the_password_for_the_life_of_the_call() {
    let (certificates, git, askpass) = (Certificates::new(), GitServer::new(), Askpass::new());
    let plugin = wanting(&format!("env | cut -d= -f1 > names; {CLONE}; grep -c -e NONCE -e BEARER -e SSH names; true"));
    let service = certificates.service(&plugin, ", gitCredentials: true");
    let relay = relay(&certificates, &[&service], &askpass, "  gitCredentials: true\n");
    assert_eq!(relay.ask("CheckPluginConfiguration", ".", &[]).fields("2"), [1], "Argo CD shall give a nonce");
    for _ in 0..2 {
        let answer = ask(&relay, &git);
        assert_eq!(answer.manifests(), ["a: private\n0\n"], "{answer:?} {}", relay.log());
    }
    assert_eq!(askpass.questions(), 4, "a user name and a password for each call");
    assert!(relay.log().contains("Git credentials are passed on to a remote"), "{}", relay.log());
    assert_nowhere(&[&relay, &service.gateway], &[PASSWORD, NONCE, "b34r3r"]);
    let sockets = fs::read_dir(service.gateway.path("work/_cmp_server/ask")).unwrap();
    assert_eq!(sockets.count(), 0, "no way to ask is left");
}

/// An error of the plugin repeats what it printed, but not the password.
#[test]
fn a_password_that_the_plugin_prints_is_in_no_message() {
    let (certificates, git, askpass) = (Certificates::new(), GitServer::new(), Askpass::new());
    let question = "\"Password for '$ARGOCD_APP_SOURCE_REPO_URL': \"";
    let plugin = wanting(&format!("echo \"got: $($GIT_ASKPASS {question})\" >&2; exit 3"));
    let service = certificates.service(&plugin, ", gitCredentials: true");
    let relay = relay(&certificates, &[&service], &askpass, "  gitCredentials: true\n");
    let failed = ask(&relay, &git);
    assert!(failed.error().contains("got: [redacted]"), "{failed:?}");
    assert_nowhere(&[&relay, &service.gateway], &[PASSWORD]);
}

#[test]
fn another_server_and_an_unknown_nonce_get_nothing() {
    let (certificates, git, askpass) = (Certificates::new(), GitServer::new(), Askpass::new());
    let other = GitServer::new();
    let text = CLONE.replace("$ARGOCD_APP_SOURCE_REPO_URL", &other.url);
    let service = certificates.service(&wanting(&text), ", gitCredentials: true");
    let relay = relay(&certificates, &[&service], &askpass, "  gitCredentials: true\n");
    let refused = ask(&relay, &git);
    assert!(refused.error().contains("not the server of the Application's repository"), "{refused:?}");
    assert_eq!(askpass.questions(), 0);
    let url = format!("ARGOCD_APP_SOURCE_REPO_URL={}", other.url);
    let refused = relay.ask("GenerateManifest", ".", &["-env", &url, "-env", "ARGOCD_GIT_ASKPASS_NONCE=another"]);
    assert!(refused.error().contains("unknown nonce"), "{refused:?}");
}

/// Both sides must allow it, and plugin.yaml must want it.
#[test]
fn credentials_are_refused_unless_both_sides_allow_them() {
    let (certificates, git, askpass) = (Certificates::new(), GitServer::new(), Askpass::new());
    let allowed = "  gitCredentials: true\n";
    for (plugin, of_service, of_relay) in [
        (wanting(CLONE), ", gitCredentials: true", ""),
        (wanting(CLONE), "", allowed),
        (script(CLONE), ", gitCredentials: true", allowed),
    ] {
        let service = certificates.service(&plugin, of_service);
        let relay = relay(&certificates, &[&service], &askpass, of_relay);
        assert_eq!(relay.ask("CheckPluginConfiguration", ".", &[]).fields("2"), [] as [&str; 0]);
        // Argo CD sends none then. If it does, they do not leave the relay.
        let refused = ask(&relay, &git);
        assert!(refused.error().contains("could not read Username"), "{refused:?}");
    }
    assert_eq!(askpass.questions(), 0);
}

/// The replica that is asked first dies in its run: the other one gets the password, by a way of its own.
#[test]
fn a_repeated_call_has_its_credentials() {
    let (certificates, git, askpass) = (Certificates::new(), GitServer::new(), Askpass::new());
    let plugin = wanting(&format!("{CLONE} > got; mkdir $SHARED/first && sleep 1000; cat got"));
    let services = [(); 2].map(|()| certificates.service(&plugin, ", gitCredentials: true, files: { write: [.] }"));
    let relay = relay(&certificates, &[&services[0], &services[1]], &askpass, "  gitCredentials: true\n");
    let (first, second) = (&services[0].gateway, &services[1].gateway);
    let is_in = |gateway: &Gateway| gateway.path("first").exists();
    let answer = std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(&relay, &git));
        while !is_in(first) && !is_in(second) {
            sleep(Duration::from_millis(10));
        }
        let (dying, other) = if is_in(first) { (first, second) } else { (second, first) };
        fs::create_dir(other.path("first")).unwrap();
        dying.signal(nix::sys::signal::Signal::SIGKILL);
        asking.join().unwrap()
    });
    assert_eq!(answer.manifests(), ["a: private\n"], "{}", relay.log());
    assert_eq!(askpass.questions(), 4);
}
