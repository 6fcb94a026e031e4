//! Limits on callers, and the slowdown of unauthenticated ones.

use std::time::{Duration, Instant};

use appset_gateway::config::Loaded;
use auth::hash_token;
use domain::file::base_dir::BaseDir;
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::support::{
    Reply, TOKEN, TestApp,
    binary::Gateway,
    wire::{argo_request, exchange, read_reply},
};

const PATH: &str = "/r/api/v1/getparams.execute";

const OTHER: &str = "/other/api/v1/getparams.execute";

fn config(more: &str, script: &str) -> String {
    let (limited, free) = (hash_token(TOKEN), hash_token("free"));
    format!(
        "auth: {{ tokens: [ {{ name: limited, sha256: \"{limited}\"{more} }}, {{ name: free, sha256: \"{free}\" }} ] }}\n\
         routes: [ {{ name: r, backend: {{ {script} }} }}, {{ name: other, backend: {{ {FIXED} }} }} ]\n"
    )
}

const FIXED: &str = "fixed: { parameters: [ { a: b } ] }";

async fn ask(app: &TestApp, token: &str) -> Reply {
    app.send(&argo_request(PATH, token, b"{}")).await
}

fn code(reply: &Reply) -> Value {
    serde_json::from_slice::<Value>(&reply.body).unwrap()["code"].clone()
}

/// One after the other, as Argo CD evaluates a matrix, and at once, as several ApplicationSets do.
#[tokio::test]
async fn a_warm_matrix_of_200_is_answered_at_a_rate_of_100() {
    let app = TestApp::start(&config(", rate: 100", FIXED)).await;
    let asked = (0..200).map(|_| ask(&app, TOKEN));
    for reply in futures_util::future::join_all(asked).await {
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
    for _ in 0..200 {
        let reply = ask(&app, TOKEN).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn a_wait_for_the_rate_limit_beyond_the_deadline_is_refused() {
    let app = TestApp::start(&format!("server: {{ deadline: 300ms }}\n{}", config(", rate: 2", FIXED))).await;
    let mut refused = None;
    for _ in 0..50 {
        let reply = ask(&app, TOKEN).await;
        if reply.status != 200 {
            refused = Some(reply);
            break;
        }
    }
    let refused = refused.expect("fifty in a moment are more than two per second");
    assert_eq!((refused.status, code(&refused), refused.header("retry-after")), (429, "throttled".into(), Some("1")));
    assert_eq!(refused.message(), "the caller `limited` exceeds its `rate` in `auth`");
    assert_eq!(ask(&app, "free").await.status, 200, "others may go on");
}

/// Rate limits and failed attempts survive a reload.
#[tokio::test]
async fn a_reload_resets_no_limit() {
    let config = |more: &str| format!("server: {{ deadline: 10ms }}\n{}", config(more, FIXED));
    let app = TestApp::start(&config(", rate: 1")).await;
    let reload = |n: u32| {
        let more = hash_token(&format!("more-{n}"));
        let text = config(&format!(", rate: 1 }}, {{ name: more-{n}, sha256: \"{more}\""));
        app.app.reload(Loaded::parse("new.yaml", text, BaseDir::new(app.folder.path()))).unwrap();
    };
    let (began, mut answered) = (Instant::now(), 0);
    for n in 0..10 {
        answered += u64::from(ask(&app, TOKEN).await.status == 200);
        reload(n);
    }
    assert!((1..=began.elapsed().as_secs() + 2).contains(&answered), "{answered}");
    while ask(&app, "guess").await.status == 403 {}
    reload(10);
    let mut statuses = Vec::new();
    for _ in 0..50 {
        statuses.push(ask(&app, "guess").await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn a_callers_concurrent_calls_are_limited() {
    let script = "script: { command: [sh, -c, \"sleep 1; echo '[]'\"] }";
    let app = TestApp::start(&config(", concurrency: 1", script)).await;
    let address = app.address;
    let first = tokio::spawn(async move { exchange(address, &argo_request(PATH, TOKEN, b"{}")).await });
    while app.metric("appset_gateway_backend_runs_in_flight").await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second = tokio::spawn(async move { exchange(address, &argo_request(OTHER, TOKEN, b"{}")).await });
    assert_eq!(exchange(address, &argo_request(OTHER, "free", b"{}")).await.status, 200);
    assert!(!second.is_finished(), "it waits, though its answer is there");
    assert_eq!(first.await.unwrap().status, 200);
    assert_eq!(second.await.unwrap().status, 200);
    assert_eq!(ask(&app, TOKEN).await.status, 200, "its place is free again");
}

#[tokio::test]
async fn only_unauthenticated_clients_are_slowed_down() {
    let app = TestApp::start(&config("", FIXED)).await;
    let mut statuses = Vec::new();
    // An address has 100 failed attempts, and gets ten a second back.
    let began = Instant::now();
    while statuses.last() != Some(&429)
        && statuses.len() < 130 + 10 * usize::try_from(began.elapsed().as_secs()).unwrap()
    {
        statuses.push(ask(&app, &format!("guess-{}", statuses.len())).await.status);
        // From the same address.
        assert_eq!(ask(&app, TOKEN).await.status, 200);
    }
    let (last, before) = statuses.split_last().unwrap();
    assert!(*last == 429 && before.len() >= 100 && before.iter().all(|status| *status == 403), "{statuses:?}");
    // The admin listener counts failed attempts too. One more is allowed from time to time.
    let request = crate::support::wire::operator_request("GET", "/admin/held", "").replace("operators", "guess");
    let mut statuses = Vec::new();
    for _ in 0..50 {
        statuses.push(crate::support::wire::exchange_admin(app.admin, request.as_bytes()).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn guesses_do_not_fill_the_log_and_requests_are_traceable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    std::fs::write(&file, format!("{server}{}", config("", FIXED))).unwrap();
    let mut gateway = Gateway::serve(&file);
    for n in 0..400 {
        exchange(gateway.address, &argo_request(PATH, &format!("guess-{n}"), b"{}")).await;
    }
    let body =
        |branch: &str| json!({"applicationSetName": "x", "input": {"parameters": {"branch": branch}}}).to_string();
    for branch in ["a", "b", "a"] {
        exchange(gateway.address, &argo_request(PATH, TOKEN, body(branch).as_bytes())).await;
    }
    gateway.signal(nix::sys::signal::Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(20));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |status: u16| {
        lines.iter().filter(|line| line["target"] == "request" && line["status"] == status).collect::<Vec<_>>()
    };
    assert!((100..350).contains(&of(403).len()), "{}", of(403).len());
    assert_eq!(of(429).len(), 0);
    let keys: Vec<&Value> = of(200).iter().map(|line| &line["key"]).collect();
    assert_eq!(keys.len(), 3);
    assert!(keys[0].is_string() && keys[0] == keys[2] && keys[0] != keys[1], "{keys:?}");
}

/// A connection that has sent the first `sent` bytes of a call whose body has `size` bytes.
async fn begun(app: &TestApp, path: &str, size: usize, sent: usize) -> TcpStream {
    let body = format!("{{\"input\":{{\"parameters\":{{\"a\":\"{}\"}}}}}}", "x".repeat(size));
    let request = argo_request(path, TOKEN, body.as_bytes());
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    stream.write_all(&request[..request.len() - body.len() + sent]).await.unwrap();
    stream
}

/// Bodies that do not arrive take no slot of `server.maxInFlight`, so they keep nobody out.
#[tokio::test]
async fn a_call_takes_a_slot_only_when_its_body_is_there() {
    let app = TestApp::start(&format!("server: {{ maxInFlight: 2 }}\n{}", config("", FIXED))).await;
    let mut slow = Vec::new();
    for _ in 0..10 {
        slow.push(begun(&app, OTHER, 1000, 10).await);
    }
    while app.metric("appset_gateway_requests_in_flight").await < 10 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(app.app.in_flight.now(), 0);
    for _ in 0..20 {
        let reply = ask(&app, "free").await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

/// The bodies under way share a memory budget. The one that takes longest makes room, and small bodies are never concerned.
#[tokio::test]
async fn bodies_under_way_are_bounded() {
    const SIZE: usize = 1_000_000;
    let app = TestApp::start(&config("", FIXED)).await;
    let mut slow = Vec::new();
    for _ in 0..100 {
        slow.push(begun(&app, OTHER, SIZE, SIZE - 1).await);
    }
    let first = read_reply(&mut slow[0]).await;
    assert_eq!((first.status, code(&first)), (503, "overloaded".into()), "{}", first.text());
    assert_eq!(first.header("retry-after"), Some("1"));
    assert!(first.message().contains("this one took longest"), "{}", first.text());
    assert_eq!(ask(&app, "free").await.status, 200);
    let large = format!("{{\"input\":{{\"parameters\":{{\"a\":\"{}\"}}}}}}", "x".repeat(SIZE));
    let whole = exchange(app.address, &argo_request(OTHER, "free", large.as_bytes())).await;
    assert_eq!(whole.status, 200, "{}", whole.text());
    // Their memory is free again when they are gone.
    drop(slow);
    for _ in 0..80 {
        assert_eq!(exchange(app.address, &argo_request(OTHER, "free", large.as_bytes())).await.status, 200);
    }
}
