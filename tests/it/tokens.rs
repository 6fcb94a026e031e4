//! Callers' tokens: renewed under load as Kubernetes renews a mounted Secret, without a restart or a failed call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{
    ADMIN_TOKEN,
    binary::Gateway,
    mounted::mount,
    wire::{argo_request, exchange, exchange_admin, operator_request},
};

const PATH: &str = "/r/api/v1/getparams.execute";

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_renewed_under_load_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    // The new token is added beside the old one, as the documentation says.
    mount(&secret, "v1", &[("token", "one"), ("next", "two")]);
    let config = folder.path().join("gateway.yaml");
    std::fs::write(
        &config,
        "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n\
         auth: { tokens: [ { name: now, file: secret/token }, { name: next, file: secret/next } ] }\n\
         routes: [ { name: r, backend: { fixed: { parameters: [ { a: b } ] } } } ]\n",
    )
    .unwrap();
    let mut gateway = Gateway::serve(&config);
    let address = gateway.address;
    let status = async |token: &str| exchange(address, &argo_request(PATH, token, b"{}")).await.status;
    assert_eq!((status("one").await, status("two").await, status("three").await), (200, 200, 403));

    // From now on Argo CD sends `two`, also while the Secret changes.
    let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (is_over, count) = (Arc::clone(&is_over), Arc::clone(&count));
            tokio::spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    let reply = exchange(address, &argo_request(PATH, "two", b"{}")).await;
                    assert_eq!(reply.status, 200, "{}", reply.text());
                    count.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    mount(&secret, "v2", &[("token", "two"), ("next", "three")]);
    let is_renewed = async {
        while (status("one").await, status("three").await) != (403, 200) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_renewed).await.expect("the new token is taken");
    // An emptied Secret changes nothing.
    mount(&secret, "v3", &[("token", ""), ("next", "")]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((status("two").await, status("three").await), (200, 200));
    is_over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    assert!(count.load(Ordering::SeqCst) > 0);
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    let (ended, log) = gateway.wait(Duration::from_secs(10));
    assert!(ended.success() && log.contains("a new token replaces the previous one"), "{log}");
    // The system may report each file several times. The operator sees one message per token.
    let unreadable = log.lines().filter(|line| line.contains("the previous token stays valid"));
    assert_eq!(unreadable.count(), 2, "{log}");
    assert!(!log.contains("three"), "a token is never told");
}

/// A mistake in a Secret never makes Argo CD an operator.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_gives_no_token_a_second_role() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::create_dir(&secret).unwrap();
    mount(&secret, "v1", &[("argocd", "one"), ("operator", "ops")]);
    let config = folder.path().join("gateway.yaml");
    let text = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n\
         auth: { tokens: [ { name: argocd, file: secret/argocd }, { name: operator, file: secret/operator, role: admin } ] }\n\
         routes: [ { name: r, backend: { fixed: { parameters: [ { a: b } ] } } } ]\n";
    std::fs::write(&config, text).unwrap();
    let mut gateway = Gateway::serve(&config);
    let (address, admin) = (gateway.address, gateway.admin);
    let status = async |token: &str| exchange(address, &argo_request(PATH, token, b"{}")).await.status;
    let operate = async |token: &str| {
        let request = operator_request("GET", "/admin/held", "").replace(ADMIN_TOKEN, token);
        exchange_admin(admin, request.as_bytes()).await.status
    };
    assert_eq!((status("one").await, operate("ops").await), (200, 200));
    mount(&secret, "v2", &[("argocd", "two"), ("operator", "two")]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((status("one").await, operate("ops").await), (200, 200), "the old ones stay");
    assert_eq!((status("two").await, operate("two").await), (403, 403));
    mount(&secret, "v3", &[("argocd", "two"), ("operator", "ops")]);
    let is_renewed = async {
        while status("two").await != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), is_renewed).await.expect("the new token is taken");
    assert_eq!((status("one").await, operate("two").await, operate("ops").await), (403, 403, 200));
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    let says = "`argocd` and `operator` hold the same token, but have different roles";
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(says)).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("\"level\":\"ERROR\""), "{log}");
}
