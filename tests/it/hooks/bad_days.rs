//! Large bodies, a deleted tag, and events that come before their question is known.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;
use crate::support::wire::operator_request;

/// A body of 25 MB, announced or not: it is refused after the first part of it, and the connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_25_mb_is_refused_before_it_is_read() {
    const BYTES: usize = 25_000_000;
    let scene = Scene::start(json!([hook("distribution", "token")])).await;
    for length in [format!("Content-Length: {BYTES}"), "Transfer-Encoding: chunked".to_owned()] {
        let mut stream = TcpStream::connect(scene.gateway.hooks.unwrap()).await.unwrap();
        let head = format!(
            "POST /hooks/distribution HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {SECRET}\r\n{length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let (mut reader, mut writer) = stream.into_split();
        let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x1_0000], b"\r\n".to_vec()].concat();
        let sent = tokio::spawn(async move {
            let mut sent = 0;
            while sent < BYTES && writer.write_all(&chunk).await.is_ok() {
                sent += chunk.len();
            }
            sent
        });
        // A reset may follow the answer, once the gateway no longer reads.
        let mut reply = [0; 4096];
        let read = reader.read(&mut reply).await.unwrap();
        let reply = String::from_utf8_lossy(&reply[..read]).into_owned();
        assert!(reply.starts_with("HTTP/1.1 413 "), "{length}: {reply}");
        drop(reader);
        assert!(sent.await.unwrap() < BYTES, "{length}: all of it was taken");
    }
}

/// The registry says that a tag is gone. Then it is proven, and the guard still holds the empty answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_tag_is_held() {
    let (registry, gateway, _folder) = registry_and_gateway("", &[]).await;
    registry.push("front:feature-branch-1", "org/app:main").await;
    let before = digest_for(&gateway, "", "main").await;
    assert_eq!(before, json!(registry.inspect("org/app:main").await));
    sleep(Duration::from_secs(3)).await;
    let url = registry.url(&format!("org/app/manifests/{}", before.as_str().unwrap()));
    let deleted = reqwest::Client::builder().no_proxy().build().unwrap().delete(url).send().await.unwrap();
    assert_eq!(deleted.status(), 202);
    let held = async || {
        exchange_admin(gateway.admin, operator_request("GET", "/admin/held", "").as_bytes()).await.json()["held"]
            .clone()
    };
    let until = Instant::now() + Duration::from_secs(20);
    while held().await == json!([]) {
        assert!(Instant::now() < until, "the empty answer is not held");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(held().await[0]["route"], "d", "{}", held().await);
    assert_eq!(digest_for(&gateway, "", "main").await, before, "Argo CD keeps its Application");
}

/// Events are compared a second time, between half a minute and a minute after they came. This finds questions whose first run was under
/// way when the event came, and those that only the file of answers knows.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_compared_again_with_later_questions_and_the_file() {
    const ASKED: usize = 300;
    let cache = "cache: { path: answers.redb, memory: 16KiB }\n";
    let scene = Scene::with(json!([hook("github", "secret")]), cache).await;
    for n in 1..=ASKED {
        scene.ask(SHA, n).await;
    }
    scene.delay_ms.store(1500, Ordering::SeqCst);
    let first_run = async { assert_eq!(scene.ask(SHA, 0).await, json!("1"), "read before the build was finished") };
    let event = async {
        sleep(Duration::from_millis(500)).await;
        scene.state.store(2, Ordering::SeqCst);
        let body = github(SHA);
        let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await;
        assert_eq!(reply.status, 202);
    };
    tokio::join!(first_run, event);
    scene.delay_ms.store(0, Ordering::SeqCst);
    sleep(Duration::from_secs(10)).await;
    let found = scene.metric("appset_gateway_hook_rechecks_total{result=\"changed\"}").await;
    assert!(found < ASKED as u64, "memory holds all answers, so this test shows nothing");
    let until = Instant::now() + Duration::from_secs(90);
    while scene.metric("appset_gateway_hook_rechecks_total{result=\"changed\"}").await < 1 + ASKED as u64 {
        assert!(Instant::now() < until, "{} looks, {} runs", found, scene.runs());
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(scene.ask(SHA, 0).await, json!("2"));
}
