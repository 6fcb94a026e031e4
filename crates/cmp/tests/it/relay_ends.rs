//! A relay that ends while Argo CD goes on calling.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{
    remotes::Certificates,
    support::{Gateway, script},
};

/// How many clients call at once, each as Argo CD: a connection for each call.
const CLIENTS: usize = 6;

/// Calls until the socket is gone. Returns how many calls were answered, and the errors of others.
fn call_until_gone(relay: &Gateway, is_ended: &AtomicBool) -> (usize, Vec<String>) {
    let (mut answered, mut failed) = (0, Vec::new());
    while !is_ended.load(Ordering::Relaxed) {
        let answer = relay.ask("GenerateManifest", ".", &["-timeout", "30s", "-ready", "5s"]);
        if answer.code() == "OK" {
            assert_eq!(answer.manifests(), ["a: b\n"]);
            answered += 1;
        } else if answer.error().contains("connect: no such file")
            || answer.error().contains("connect: connection refused")
        {
            // Nobody has accepted it: Argo CD repeats such a call by itself.
            break;
        } else {
            failed.push(answer.error().to_owned());
        }
    }
    (answered, failed)
}

#[test]
fn a_relay_that_ends_under_load_fails_no_call_that_it_accepts() {
    let certificates = Certificates::new();
    let service = certificates.service(&script("sleep 0.3; cat x"), "");
    for _ in 0..3 {
        let mut relay = certificates.relay(&[&service.address], "");
        relay.wait_until_known();
        relay.file("x", "a: b\n");
        assert_eq!(relay.ask("GenerateManifest", ".", &[]).manifests(), ["a: b\n"]);
        let is_ended = AtomicBool::new(false);
        let results: Vec<_> = thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| call_until_gone(&relay, &is_ended))).collect();
            thread::sleep(Duration::from_secs(2));
            relay.terminate();
            thread::sleep(Duration::from_secs(3));
            is_ended.store(true, Ordering::Relaxed);
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let began = Instant::now();
        assert!(relay.wait().success(), "{}", relay.log());
        assert!(began.elapsed() < Duration::from_secs(10), "it ends when its last call has: {}", relay.log());
        let failed: Vec<_> = results.iter().flat_map(|(_, failed)| failed).collect();
        assert!(failed.is_empty(), "{failed:?}: {}", relay.log());
        assert!(results.iter().all(|(answered, _)| *answered > 0), "there was load: {results:?}");
        assert!(!relay.socket("demo-v1.0").exists());
        let left = std::fs::read_dir(relay.path("work/_cmp_relay")).unwrap().flatten();
        assert_eq!(left.filter(|entry| entry.path().is_dir()).count(), 0, "the spool is gone");
    }
}
