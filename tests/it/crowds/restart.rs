//! A rolling restart: a new process starts, the old one gets SIGTERM, and no call fails.

use std::{path::Path, process::Stdio, time::Duration};

use nix::sys::signal::Signal;
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::{PATH, TLS, certify, serve};
use crate::support::{
    TOKEN, authority::Ca, binary::Gateway, processes::PATIENCE, service::Service, wire::exchange_admin,
};

/// The number of successful answers of `gateway`.
async fn answered(gateway: &Gateway) -> u64 {
    let metrics = exchange_admin(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: gateway\r\n\r\n").await.text();
    let name = "appset_gateway_requests_total{code=\"ok\",route=\"r\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(name)).map_or(0, |count| count.parse().unwrap())
}

/// Callers with kept connections, for eight seconds.
fn callers(folder: &Path, url: &str) -> Command {
    let script = folder.join("calls.lua");
    let lua = format!("wrk.method = 'POST'\nwrk.body = '{{}}'\nwrk.headers['Authorization'] = 'Bearer {TOKEN}'\n");
    std::fs::write(&script, lua).unwrap();
    let mut wrk = Command::new("wrk");
    // Its own limit is 2 s, which a call may take on a busy machine. A call that hangs is still an error before the end.
    wrk.args(["-t1", "-c32", "-d8s", "--timeout", "5s", "-s"]).arg(script).arg(url);
    wrk.stdout(Stdio::piped()).kill_on_drop(true);
    wrk
}

/// As Kubernetes does it: the old pod gets its signal, and a little later new connections go to the other pod.
async fn restart_under_load(scheme: &str, server: &str) {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path(), &Ca::new("ca"));
    let server = format!(", drain: 2s{server}");
    let (mut old, mut new) = (serve(folder.path(), &server, ""), serve(folder.path(), &server, ""));
    let service = Service::before(old.address).await;
    let wrk = callers(folder.path(), &format!("{scheme}://{}{PATH}", service.address)).spawn();
    let wrk = wrk.expect("this test needs the program `wrk` (Debian's package of that name)");
    // Handshakes in a program that is not optimised can take more than a second.
    let deadline = Instant::now() + PATIENCE;
    while answered(&old).await < 100 {
        assert!(Instant::now() < deadline, "the old one is asked");
        sleep(Duration::from_millis(50)).await;
    }
    old.signal(Signal::SIGTERM);
    sleep(Duration::from_millis(500)).await;
    service.turn_to(new.address);
    let (status, log) = old.wait(Duration::from_secs(20));
    assert!(status.success(), "{status}: {log}");
    let report = wrk.wait_with_output().await.unwrap();
    let report = String::from_utf8(report.stdout).unwrap();
    assert!(
        report.contains("requests in") && !report.contains("Socket errors") && !report.contains("Non-2xx"),
        "{report}"
    );
    assert!(answered(&new).await > 0, "the new one had calls too: {report}");
    new.signal(Signal::SIGINT);
    assert!(new.wait(Duration::from_secs(20)).0.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_under_load_loses_no_call() {
    restart_under_load("http", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_under_load_by_tls_loses_no_call() {
    restart_under_load("https", TLS).await;
}
