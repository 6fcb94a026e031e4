//! The real program from start to end: probes, metrics, logs, signals.

use std::{os::unix::fs::MetadataExt as _, time::Duration};

use domain::lifecycle::Phase;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{
    TOKEN, TestApp,
    binary::{Gateway, command},
    promtool::check_by_promtool,
    wire::{argo_request, exchange},
};

fn config(folder: &std::path::Path, routes: &str) -> std::path::PathBuf {
    let file = folder.join("gateway.yaml");
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }\n";
    std::fs::write(&file, format!("{server}{}routes:\n{routes}", TestApp::auth())).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sigterm_finishes_what_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let slow = "  - { name: slow, backend: { script: { command: [sh, -c, \"echo started >> runs; sleep 1; echo '[{\\\"a\\\":1}]'\"], allow: { read: [.], write: [.] } } } }\n";
    let mut gateway = Gateway::serve(&config(folder.path(), slow));
    let (address, admin) = (gateway.address, gateway.admin);
    let request = argo_request("/slow/api/v1/getparams.execute", TOKEN, b"{}");
    let call = tokio::spawn(async move { exchange(address, &request).await });
    while !folder.path().join("runs").exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let probe =
        async |path: &str| exchange(admin, format!("GET {path} HTTP/1.1\r\nHost: g\r\n\r\n").as_bytes()).await.status;
    assert_eq!((probe("/livez").await, probe("/readyz").await), (200, 200));
    gateway.signal(Signal::SIGTERM);
    while probe("/readyz").await == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(probe("/livez").await, 200, "it lives while it drains");
    assert_eq!(call.await.unwrap().sets(), r#"[{"a":"1"}]"#);
    let (status, log) = gateway.wait(Duration::from_secs(10));
    assert!(status.success(), "{status}");
    assert!(log.contains("\"message\":\"ended\""), "{log}");
}

#[test]
fn no_core_is_dumped() {
    let folder = tempfile::tempdir().unwrap();
    let gateway = Gateway::serve(&config(folder.path(), "  - { name: r, backend: { fixed: { parameters: [] } } }\n"));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.id())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_ascii_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "{core}");
    // `/proc/<pid>/mem` of an ordinary process belongs to its user. For root there is no difference.
    let owner = |process: u32| std::fs::metadata(format!("/proc/{process}/mem")).unwrap().uid();
    assert_eq!(owner(gateway.id()), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_gives_callers_time_to_leave() {
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "  - { name: r, backend: { fixed: { parameters: [{a: b}] } } }\n");
    let text = std::fs::read_to_string(&file).unwrap().replace("drain: 0s", "drain: 1s");
    std::fs::write(&file, text).unwrap();
    let mut gateway = Gateway::serve(&file);
    let request = argo_request("/r/api/v1/getparams.execute", TOKEN, b"{}");
    assert_eq!(exchange(gateway.address, &request).await.header("connection"), None);
    gateway.signal(Signal::SIGTERM);
    let probe = b"GET /readyz HTTP/1.1\r\nHost: g\r\n\r\n";
    while exchange(gateway.admin, probe).await.status == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Kubernetes may still send callers. They are answered, and told to reconnect.
    let reply = exchange(gateway.address, &request).await;
    assert_eq!((reply.sets(), reply.header("connection")), (r#"[{"a":"b"}]"#.to_owned(), Some("close")));
    let (status, log) = gateway.wait(Duration::from_secs(10));
    assert!(status.success() && log.contains("serving on"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_ends_the_process_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let marker = crate::support::processes::marker();
    let slow = format!(
        "  - {{ name: slow, backend: {{ script: {{ command: [sh, -c, \"sleep 20; echo []\", \"{marker}\"] }} }} }}\n"
    );
    let mut gateway = Gateway::serve(&config(folder.path(), &slow));
    let address = gateway.address;
    let request = argo_request("/slow/api/v1/getparams.execute", TOKEN, b"{}");
    let call = tokio::spawn(async move {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(&request).await.unwrap();
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer).await;
        answer
    });
    while crate::support::processes::processes(&marker).is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gateway.signal(Signal::SIGTERM);
    tokio::time::sleep(Duration::from_millis(300)).await;
    gateway.signal(Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_secs(5));
    assert_eq!(status.code(), Some(1));
    assert!(log.contains("ended at once by a second signal"), "{log}");
    // No caller gets an empty list, and no script is left.
    assert_eq!(String::from_utf8_lossy(&call.await.unwrap()), "");
    crate::support::processes::all_gone(&marker, "scripts").await;
}

#[tokio::test]
async fn a_drain_waits_for_requests_under_way() {
    let mut app = TestApp::with_routes(
        "  - { name: slow, backend: { script: { command: [sh, -c, \"sleep 0.5; echo '[]'\"] } } }",
    )
    .await;
    let address = app.address;
    let call =
        tokio::spawn(
            async move { exchange(address, &argo_request("/slow/api/v1/getparams.execute", TOKEN, b"{}")).await },
        );
    while app.metric("appset_gateway_requests_in_flight").await < 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(app.stop().await);
    assert_eq!(call.await.unwrap().sets(), "[]");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_one_log_line_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let routes = "  - { name: fixed, match: { applicationSet: \"fb-*\" }, backend: { fixed: { parameters: [{a: b}, {a: c}] } } }\n";
    let mut gateway = Gateway::serve(&config(folder.path(), routes));
    let body = json!({"applicationSetName": "fb-x", "input": {"parameters": {"branch": "canary-in-body"}}}).to_string();
    let good = argo_request("/api/v1/getparams.execute", TOKEN, body.as_bytes());
    for request in [&good, &good, &argo_request("/api/v1/getparams.execute", "canary-token", b"{}")] {
        exchange(gateway.address, request).await;
    }
    exchange(
        gateway.address,
        &argo_request("/api/v1/getparams.execute", TOKEN, b"{\"applicationSetName\":\"x\\u001b[31m\\n{\""),
    )
    .await;
    gateway.signal(Signal::SIGINT);
    let (status, log) = gateway.wait(Duration::from_secs(10));
    assert!(status.success());
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests: Vec<&Value> = lines.iter().filter(|line| line["target"] == "request").collect();
    assert_eq!(requests.len(), 4, "{log}");
    for key in ["timestamp", "request_id", "duration_us"] {
        assert!(requests.iter().all(|line| !line[key].is_null()), "{key}: {log}");
    }
    let shown = |line: &Value| {
        let keys = ["level", "route", "application_set", "caller", "cache", "status", "sets", "code"];
        keys.map(|key| line[key].to_string().replace('"', "")).join(" ")
    };
    assert_eq!(shown(requests[0]), "INFO fixed fb-x test miss 200 2 null");
    assert_eq!(shown(requests[1]), "INFO fixed fb-x test hit 200 2 null");
    assert_eq!(shown(requests[2]), "WARN null null null none 403 null forbidden");
    assert_eq!(shown(requests[3]), "WARN null null test none 400 null invalid_request");
    for secret in [TOKEN, "canary-token", "canary-in-body", "\u{1b}"] {
        assert!(!log.contains(secret), "{secret} is in the log: {log}");
    }
}

#[tokio::test]
async fn the_log_gives_the_evidence_of_an_empty_answer() {
    let folder = tempfile::tempdir().unwrap();
    let routes = "  - { name: none, backend: { script: { command: [echo, \"[]\"] } } }\n";
    let mut gateway = Gateway::serve(&config(folder.path(), routes));
    for _ in 0..2 {
        exchange(gateway.address, &argo_request("/none/api/v1/getparams.execute", TOKEN, b"{}")).await;
    }
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let absent: Vec<&Value> = lines.iter().filter(|line| line["message"] == "absent").collect();
    assert_eq!(absent.len(), 1, "once per run: {log}");
    assert_eq!((&absent[0]["query"], &absent[0]["answer"]), (&"ran echo".into(), &"an explicit []".into()));
}

#[tokio::test]
async fn metrics_follow_the_prometheus_format() {
    let app =
        TestApp::with_routes("  - { name: fixed, match: {}, backend: { fixed: { parameters: [{a: b}] } } }").await;
    app.ask("fixed", json!({})).await;
    app.ask("fixed", json!({})).await;
    app.ask("secret-canary-route", json!({"p": "secret-canary"})).await;
    let reply = app.admin("/metrics").await;
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = reply.text();
    for (metric, value) in [
        ("appset_gateway_requests_total{code=\"ok\",route=\"fixed\"}", 2),
        ("appset_gateway_requests_total{code=\"unknown_route\",route=\"none\"}", 1),
        ("appset_gateway_request_duration_seconds_count{route=\"fixed\"}", 2),
        ("appset_gateway_backend_duration_seconds_count{backend=\"fixed\",outcome=\"present\",route=\"fixed\"}", 1),
        ("appset_gateway_cache_lookups_total{route=\"fixed\",state=\"hit\"}", 1),
        ("appset_gateway_config_generation", 1),
        (concat!("appset_gateway_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1),
        ("appset_gateway_requests_in_flight", 0),
    ] {
        assert_eq!(app.metric(metric).await, value, "{metric}\n{text}");
    }
    assert!(!text.contains("canary"), "a label came from a request: {text}");

    check_by_promtool(&text);
}

#[tokio::test]
async fn the_admin_listener_answers_probes_and_nothing_else() {
    let app = TestApp::with_routes("  - { name: fixed, backend: { fixed: { parameters: [] } } }").await;
    assert_eq!(app.admin("/livez").await.text(), "ok\n");
    assert_eq!(app.admin("/readyz").await.text(), "ok\n");
    for path in ["/api/v1/getparams.execute", "/admin", "/livez/x"] {
        let reply = app.admin(path).await;
        assert_eq!((reply.status, reply.code().as_str()), (404, "not_found"), "{path}");
    }
    app.app.lifecycle.enter(Phase::Draining);
    assert_eq!(app.admin("/readyz").await.status, 503);
    assert_eq!(app.admin("/livez").await.status, 200);
}

#[test]
fn a_gateway_without_a_token_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.yaml");
    let route = "routes: [ { name: a, backend: { fixed: { parameters: [] } } } ]\n";
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    for (auth, says) in [
        ("", "no token is configured"),
        ("auth: { tokens: [] }\n", "no token is configured"),
        ("auth: { tokens: [ { name: a, file: empty } ] }\n", "is empty"),
        ("auth: { tokens: [ { name: a, file: missing } ] }\n", "cannot read the secret file"),
        ("auth: { tokens: [ { name: a } ] }\n", "exactly one of"),
    ] {
        std::fs::write(&file, format!("{auth}{route}")).unwrap();
        let output = command().arg("serve").arg("-c").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(78), "{auth}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{auth}: {output:?}");
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = config(folder.path(), "  - { name: a, backend: { fixed: { parameters: [] } } }\n");
    let text = std::fs::read_to_string(&file).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(&file, text.replacen("127.0.0.1:0", &address, 1)).unwrap();
    let output = command().arg("serve").arg("-c").arg(&file).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let says =
        format!("cannot listen on {address} (server.listen); another program, perhaps another gateway, has this port");
    assert!(stderr.contains(&says), "{stderr}");
}
