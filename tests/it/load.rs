//! Many at once: thousands who are slow, and a restart that nobody notices.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use appset_gateway::{edge::Phase, server};
use futures_util::future::join_all;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::{sleep, timeout},
};

use crate::support::{
    TOKEN, TestApp,
    authority::Ca,
    binary::Gateway,
    processes::held,
    wire::{argo_request, exchange},
};

const PATH: &str = "/r/api/v1/getparams.execute";
const ROUTES: &str = "routes: [ { name: r, backend: { fixed: { parameters: [ { a: b } ] } } } ]\n";

fn serve(folder: &std::path::Path, tls: &str) -> Gateway {
    let server = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s, connections: {{ perPeer: 8192 }}{tls} }}\n"
    );
    let file = folder.join(if tls.is_empty() { "plain.yaml" } else { "tls.yaml" });
    std::fs::write(&file, format!("{server}{}{ROUTES}", TestApp::auth())).unwrap();
    Gateway::serve(&file)
}

/// Sends `part`, and waits until it is let go.
async fn linger(mut stream: TcpStream, part: &[u8]) {
    _ = stream.write_all(part).await;
    _ = timeout(Duration::from_mins(1), stream.read_to_end(&mut Vec::new())).await.expect("it is let go");
}

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_slow_connections_are_let_go_and_hold_up_nobody() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard > 12_000, "the machine allows {hard} open files");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(12_000), hard).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca = Ca::new("ca");
    let (certificate, key) = ca.certificate(&["localhost"]);
    std::fs::write(folder.path().join("tls.crt"), certificate).unwrap();
    std::fs::write(folder.path().join("tls.key"), key).unwrap();
    let (plain, secure) = (serve(folder.path(), ""), serve(folder.path(), ", tls: { cert: tls.crt, key: tls.key }"));
    let whole = argo_request(PATH, TOKEN, &[b' '; 1000]);
    let before = (held(plain.id()).1, held(secure.id()).1);
    let parts: [(_, &[u8], usize); 6] = [
        (plain.address, b"", 1500),
        (plain.address, &whole[..40], 1500),
        (plain.address, &whole[..whole.len() - 500], 500),
        (plain.address, b"PRI * HTTP/2.0\r\n", 500),
        (secure.address, b"", 500),
        (secure.address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 500),
    ];
    let began = Instant::now();
    let mut slow = Vec::new();
    for (address, part, count) in parts {
        for _ in 0..count {
            // One after the other: more than a backlog holds would be lost on their way.
            let (stream, part) = (TcpStream::connect(address).await.unwrap(), part.to_vec());
            slow.push(tokio::spawn(async move { linger(stream, &part).await }));
        }
    }
    assert_eq!(slow.len(), 5000);
    let mut took = Vec::new();
    let request = argo_request(PATH, TOKEN, b"{}");
    while !slow.iter().all(tokio::task::JoinHandle::is_finished) {
        let asked = Instant::now();
        assert_eq!(exchange(plain.address, &request).await.sets(), r#"[{"a":"b"}]"#);
        took.push(asked.elapsed());
        sleep(Duration::from_millis(5)).await;
    }
    let all = began.elapsed();
    join_all(slow).await.into_iter().for_each(Result::unwrap);
    took.sort_unstable();
    println!(
        "all let go after {all:?}; a good call took {:?} (p50), {:?} (p99)",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
    assert!(took.len() > 50);
    let back = async {
        while (held(plain.id()).1, held(secure.id()).1) > (before.0 + 8, before.1 + 8) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(30), back).await.expect("descriptors are closed again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_under_load_loses_no_call() {
    let auth = TestApp::auth();
    let (old, new) =
        (TestApp::start(&format!("{auth}{ROUTES}")).await, TestApp::start(&format!("{auth}{ROUTES}")).await);
    // One listener, handed from one to the other as a Service hands connections to pods.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = |app: &TestApp| {
        let (phase, phases) = watch::channel(Phase::Serving);
        let (edge, router) = (server::edge(&app.app), server::router(app.app.clone()));
        let listener = TcpListener::from_std(listener.try_clone().unwrap()).unwrap();
        let ended = tokio::spawn(async move { edge.serve(listener, router, phases, || Duration::from_secs(30)).await });
        (phase, ended)
    };
    let (first, first_ended) = serve(&old);
    let script = tempfile::NamedTempFile::new().unwrap();
    let lua = format!("wrk.method = 'POST'\nwrk.body = '{{}}'\nwrk.headers['Authorization'] = 'Bearer {TOKEN}'\n");
    std::fs::write(script.path(), lua).unwrap();
    let wrk = tokio::process::Command::new("wrk")
        .args(["-t1", "-c32", "-d5s", "-s"])
        .arg(script.path())
        .arg(format!("http://{address}{PATH}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test needs the Debian package wrk");
    sleep(Duration::from_secs(1)).await;
    let (_second, _) = serve(&new);
    first.send(Phase::Leaving).unwrap();
    sleep(Duration::from_secs(1)).await;
    first.send(Phase::Ending).unwrap();
    assert!(first_ended.await.unwrap(), "all was finished");
    let told = wrk.wait_with_output().await.unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(!told.contains("Socket errors") && !told.contains("Non-2xx"), "{told}");
    for app in [&old, &new] {
        let answered = app.metric("appset_gateway_requests_total{code=\"ok\",route=\"r\"}").await;
        assert!(answered > 0, "both answered: {told}");
    }
}
