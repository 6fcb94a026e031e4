//! Remotes that are away, silent, wrong or lie, and relays and services that end.

use std::{
    fs::File,
    io::Read as _,
    net::TcpListener,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use crate::{
    remotes::{Certificates, Service, metric},
    support::{DEMO, Gateway, answers, script},
};

/// The caller has time: a busy machine may need more than the 100 ms between the relay's answer and the caller's deadline.
const APP: [&str; 4] = ["-env", "ARGOCD_APP_SOURCE_REPO_URL=https://example.com/x", "-timeout", "60s"];
/// A remote's time. The relay gives up after it, with its reason.
const QUICK: &str = "  timeout: 4s\n";

/// What a call of a remote at `address` fails with. Discovery claims the folder, and the configuration has an answer.
fn fault(certificates: &Certificates, address: &str) -> String {
    let relay = certificates.relay(&[address], QUICK);
    relay.file("demo.yaml", "a: b\n");
    assert_eq!(relay.ask("CheckPluginConfiguration", ".", &APP).fields("1"), [1], "in doubt, it has rules");
    assert!(relay.ask("MatchRepository", ".", &APP).is_supported(), "in doubt, the folder is claimed");
    let refused = relay.ask("GenerateManifest", ".", &APP);
    assert!(refused.error().contains("discovery failed"), "{refused:?}");
    let began = Instant::now();
    let named = relay.ask("GenerateManifest", ".", &["-timeout", "60s"]);
    assert!(began.elapsed() < Duration::from_secs(30), "{named:?}");
    assert!(["Unknown", "DeadlineExceeded"].contains(&named.code()), "{named:?}");
    // The relay is alive, for this and all other repositories.
    assert_eq!(relay.ask("Health", ".", &APP).fields("1"), [1]);
    named.error().to_owned()
}

#[test]
fn a_remote_that_cannot_be_used_is_an_error_with_a_reason() {
    let certificates = Certificates::new();
    assert!(fault(&certificates, "127.0.0.1:1").contains("refused"));
    // The kernel accepts, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = fault(&certificates, &silent.local_addr().unwrap().to_string());
    assert!(error.contains("no connection within 2s"), "{error}");
    // It accepts, and closes.
    let closing = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = closing.local_addr().unwrap().to_string();
    thread::spawn(move || while closing.accept().is_ok() {});
    let error = fault(&certificates, &address);
    assert!(error.contains("TLS: "), "{error}");
    let error = fault(&certificates, "no-such-host.invalid:8443");
    assert!(error.contains("no-such-host.invalid"), "{error}");
}

#[test]
fn another_ca_another_plugin_and_another_version_are_refused() {
    let certificates = Certificates::new();
    let stranger = Certificates::new().service(DEMO, "");
    let error = fault(&certificates, &stranger.address);
    assert!(error.contains("TLS: invalid peer certificate"), "{error}");
    let other = certificates.service(&DEMO.replace("{name: demo}", "{name: other}"), "");
    let error = fault(&certificates, &other.address);
    assert!(error.contains("other-v1.0"), "{error}");
    let newer = certificates.service(&DEMO.replace("v1.0", "v2.0"), "");
    let error = fault(&certificates, &newer.address);
    assert!(error.contains("demo-v2.0"), "{error}");
}

#[test]
fn a_service_that_lost_its_rules_keeps_the_last_verdict() {
    let certificates = Certificates::new();
    let service = certificates
        .service(&script("cat x").replace("spec: {", "spec: {discover: {find: {command: [cat, found]}}, "), "");
    let mut relay = certificates.relay(&[&service.address], QUICK);
    relay.wait_until_known();
    relay.file("a/found", "y").file("b/found", "").file("c/found", "");
    let ask = |folder: &str| relay.ask("MatchRepository", folder, &APP).is_supported();
    assert!(ask("a") && !ask("b"));
    service.gateway.signal(Signal::SIGKILL);
    assert!(ask("a") && !ask("b"), "the last verdicts");
    assert!(ask("c"), "a claim");
}

/// What was claimed in doubt is decided by the next call for manifests, when the remote is there.
#[test]
fn a_claim_ends_with_the_doubt() {
    let certificates = Certificates::new();
    let mut service = certificates.service(DEMO, "");
    service.gateway.terminate();
    assert!(service.gateway.wait().success());
    let relay = certificates.relay(&[&service.address], QUICK);
    relay.file("own/demo.yaml", "a: b\n").file("other/x", "");
    for folder in ["own", "other"] {
        assert!(relay.ask("MatchRepository", folder, &APP).is_supported(), "in doubt, the folder is claimed");
    }
    service.restart();
    // At once, not only when the relay has looked again by itself.
    assert!(relay.ask("GenerateManifest", "own", &APP).manifests()[0].contains("a: b"));
    let refused = relay.ask("GenerateManifest", "other", &APP);
    assert!(refused.error().contains("not for this folder"), "{refused:?}");
    assert!(!relay.ask("MatchRepository", "other", &APP).is_supported());
}

#[test]
fn an_answer_that_argo_cd_would_refuse_is_an_error() {
    let certificates = Certificates::new();
    let service =
        certificates.service(&script("echo a:; head -c 110000000 /dev/zero | tr '\\0' 'b'"), ", maxOutput: 200MiB");
    let relay = certificates.relay(&[&service.address], "");
    relay.file("x", "");
    let refused = relay.ask("GenerateManifest", ".", &[]);
    assert!(refused.error().contains("larger than 100 MiB"), "{refused:?}");
}

/// Each answer takes most of the room: they come one after the other.
#[test]
fn answers_share_their_room() {
    let certificates = Certificates::new();
    let service = certificates.service(&script("echo a:; head -c $ARGOCD_ENV_SIZE /dev/zero | tr '\\0' 'b'"), "");
    let relay = Gateway::relay(&[], &format!("answers: 4MiB\n{}", certificates.relay_yaml(&[&service.address], "")));
    relay.file("x", "");
    let of = |size: &str, flags: &[&str]| {
        let size = format!("ARGOCD_ENV_SIZE={size}");
        relay.ask_all("GenerateManifest", ".", &[&["-env", &size, "-timeout", "60s"], flags].concat())
    };
    let all = of("3000000", &["-n", "8"]);
    assert!(all.iter().all(|answer| answer.manifests()[0].len() > 3_000_000), "{all:?}");
    let refused = of("5000000", &[]).remove(0);
    assert!(refused.error().contains("larger than the relay's room of 4.0 MiB"), "{refused:?}");
    assert_eq!(of("1000", &[])[0].code(), "OK");
}

#[test]
fn an_error_of_the_plugin_is_not_repeated() {
    let certificates = Certificates::new();
    let mut services = [(); 2].map(|()| certificates.service(&script("echo no >&2; exit 3"), ""));
    let relay = certificates.relay(&[&services[0].address, &services[1].address], "");
    relay.file("x", "");
    let failed = relay.ask("GenerateManifest", ".", &[]);
    assert!(failed.error().contains("exit") && failed.error().contains("no"), "{failed:?}");
    assert_eq!(services.iter_mut().map(Service::runs).sum::<u64>(), 1);
}

/// The replica that runs a call, and the others.
fn begun(services: &mut [Service]) -> usize {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let is_running = |service: &mut Service| metric(&mut service.gateway, "cmp_gateway_running", "demo") > 0;
        if let Some(at) = services.iter_mut().position(is_running) {
            return at;
        }
        assert!(Instant::now() < until, "no run");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A run that is killed, or stops to answer, is repeated by the other replica.
#[test]
fn a_replica_that_dies_in_a_run_costs_no_answer() {
    let certificates = Certificates::new();
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let mut services = [(); 2].map(|()| certificates.service(&script("sleep 2; echo 'a: b'"), ""));
        let mut relay = certificates.relay(&[&services[0].address, &services[1].address], "");
        relay.wait_until_known();
        relay.file("x", "");
        let client = relay.begin("demo-v1.0", "GenerateManifest", ".", &["-timeout", "60s"]);
        let at = begun(&mut services);
        services[at].gateway.signal(signal);
        let answer = answers(client).remove(0);
        assert_eq!(answer.manifests(), ["a: b\n"], "{signal}: {}", relay.log());
        if signal == Signal::SIGSTOP {
            services[at].gateway.signal(Signal::SIGCONT);
        }
    }
}

/// Calls all the time while `change` happens. Returns those that failed.
pub(crate) fn under_load(relay: &Gateway, change: impl FnOnce()) -> Vec<String> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let callers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        for answer in relay.ask_all("GenerateManifest", ".", &["-timeout", "30s", "-n", "2"]) {
                            if answer.code() != "OK" || answer.manifests() != ["a: b\n"] {
                                failed.push(format!("{answer:?}"));
                            }
                        }
                    }
                    failed
                })
            })
            .collect();
        thread::sleep(Duration::from_secs(1));
        change();
        thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect()
    })
}

#[test]
fn a_rolling_restart_of_services_fails_no_call() {
    let certificates = Certificates::new();
    let mut services = [(); 2].map(|()| certificates.service(&script("sleep 0.2; cat x"), ""));
    let relay = certificates.relay(&[&services[0].address, &services[1].address], "");
    relay.file("x", "a: b\n");
    let failed = under_load(&relay, || {
        for service in &mut services {
            service.gateway.terminate();
            assert!(service.gateway.wait().success());
            service.restart();
            thread::sleep(Duration::from_secs(1));
        }
    });
    assert!(failed.is_empty(), "{failed:?}: {}", relay.log());
    assert!(services.iter().any(|service| service.gateway.log().contains("calls are served to their end")));
}

#[test]
fn a_relay_that_ends_serves_open_calls() {
    let certificates = Certificates::new();
    let mut services = [certificates.service(&script("sleep 2; cat x"), "")];
    let mut relay = certificates.relay(&[&services[0].address], "");
    relay.file("x", "a: b\n");
    let client = relay.begin("demo-v1.0", "GenerateManifest", ".", &["-n", "4"]);
    begun(&mut services);
    relay.terminate();
    assert!(answers(client).iter().all(|answer| answer.manifests() == ["a: b\n"]));
    assert!(relay.wait().success());
    assert!(!relay.socket("demo-v1.0").exists());
    assert!(std::fs::read_dir(relay.path("work/_cmp_relay")).unwrap().flatten().all(|entry| !entry.path().is_dir()));
}

#[test]
fn a_full_spool_and_a_full_disk_are_errors() {
    let certificates = Certificates::new();
    let service = certificates.service(&script("cat x"), "");
    let config = format!("spool: 64KiB\n{}", certificates.relay_yaml(&[&service.address], ""));
    let relay = Gateway::relay(&[], &config);
    relay.file("x", "a: b\n");
    let refused = relay.ask("GenerateManifest", ".", &["-pad", "100000", "-timeout", "60s"]);
    assert!(refused.error().contains("larger than the relay's spool"), "{refused:?}");
    assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
    let mut before = vec!["env", "unshare", "--mount"];
    if !nix::unistd::geteuid().is_root() {
        before.extend(["--user", "--map-root-user"]);
    }
    before.extend(["sh", "-c", "mount -t tmpfs -o size=1m none \"$ARGOCD_CMP_WORKDIR\" && exec \"$0\" \"$@\""]);
    let relay = Gateway::relay(&before, &certificates.relay_yaml(&[&service.address], ""));
    relay.file("x", "a: b\n");
    // Larger than what is held in memory.
    let mut random = vec![0; 4_000_000];
    File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    std::fs::write(relay.path("repository/large"), random).unwrap();
    let refused = relay.ask("GenerateManifest", ".", &[]);
    assert!(refused.error().contains("No space left"), "{refused:?}");
    std::fs::remove_file(relay.path("repository/large")).unwrap();
    assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
}

#[test]
fn a_caller_has_its_limit_and_waits_for_its_turn() {
    let certificates = Certificates::new();
    let service = certificates.service_with(&script("sleep 0.3; cat x"), "", ", callsPerCaller: 2");
    let relay = certificates.relay(&[&service.address], "");
    relay.file("x", "a: b\n");
    let all = relay.ask_all("GenerateManifest", ".", &["-n", "6", "-timeout", "30s"]);
    assert!(all.iter().all(|answer| answer.manifests() == ["a: b\n"]), "{all:?}");
    assert!(relay.log().contains("callsPerCaller"), "{}", relay.log());
}

/// The folder of certificates is read for each connection.
#[test]
fn a_token_is_enough_and_is_read_again() {
    let certificates = Certificates::new();
    let (token, other) = (certificates.path().join("token"), certificates.path().join("other"));
    std::fs::write(&token, "a-token-that-is-long-enough").unwrap();
    std::fs::write(&other, "another-token-that-is-wrong").unwrap();
    let listen = format!(", tokens: [ {{ file: {} }} ]", token.display());
    let service = certificates.service_with(&script("cat x"), "", &listen);
    let ca = certificates.path().join("ca.pem");
    let config = format!(
        "remotes:\n- {{ name: demo, version: v1.0, address: 'localhost:{}', tls: {{ ca: {} }}, token: {{ file: {} }}, timeout: 4s }}\n",
        service.address.rsplit_once(':').unwrap().1,
        ca.display(),
        other.display()
    );
    let relay = Gateway::relay(&[], &config);
    relay.file("x", "a: b\n");
    let refused = relay.ask("GenerateManifest", ".", &["-timeout", "60s"]);
    assert!(refused.error().contains("Unauthenticated") && !refused.error().contains("wrong"), "{refused:?}");
    Command::new("cp").args([&token, &other]).status().unwrap();
    assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
}
