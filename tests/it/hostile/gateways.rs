//! Holes that comparable gateways had, one test for each class. Other classes are tested elsewhere: deeply nested JSON and gzip
//! bombs in the fault matrix and in `getparams`, invalid requests in `edge`.

use std::{io::Write as _, process::Stdio};

use serde_json::json;

use crate::support::{
    Reply, TestApp,
    wire::{argo_request, exchange},
};

/// A gateway with one route that the token `some` may use, and one that it may not.
async fn serve() -> TestApp {
    let hash = auth::hash_token("some");
    let auth = format!("auth: {{ tokens: [ {{ name: s, sha256: \"{hash}\", routes: [open] }} ] }}");
    let fixed = |name: &str| json!({"name": name, "backend": {"fixed": {"parameters": [{"from": name}]}}});
    TestApp::start(&format!("{auth}\nroutes: {}\n", json!([fixed("open"), fixed("closed")]))).await
}

/// A call of `path` with these header lines.
async fn call(app: &TestApp, path: &str, headers: &str, body: &[u8]) -> Reply {
    let head = format!("POST {path} HTTP/1.1\r\nHost: gateway\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    app.send(&[head.as_bytes(), body].concat()).await
}

const OPEN: &str = "/open/api/v1/getparams.execute";

/// No spelling of a path bypasses a token's routes: the gateway never normalizes a path.
#[tokio::test]
async fn dot_segments_in_a_path_bypass_no_route_permission() {
    let app = serve().await;
    for path in [
        "/closed",
        "/open/../closed",
        "/open/%2e%2e/closed",
        "/open/.%2E/closed",
        "/open%2f..%2fclosed",
        "/open%2F%2E%2E%2Fclosed",
        "/open/..%2fclosed",
        "/open\\..\\closed",
        "/open/..;/closed",
        "/open;/../closed",
        "/./closed",
        "//closed",
        "/closed/",
        "/closed%00",
        "/closed%20",
        "/closed%2f",
        "/CLOSED",
        "/%63losed",
        "/closed?/open",
        "http://gateway/closed",
        "http://gateway/open/../closed",
    ] {
        let path = format!("{path}/api/v1/getparams.execute");
        let reply = app.send(&argo_request(&path, "some", b"{}")).await;
        assert!(matches!(reply.status, 400 | 403 | 404), "{path}: {}", reply.text());
    }
    assert_eq!(app.send(&argo_request(OPEN, "some", b"{}")).await.sets(), r#"[{"from":"open"}]"#);
}

/// A header has one name only, and no header changes the path.
#[tokio::test]
async fn header_aliases_are_ignored() {
    let app = serve().await;
    for name in
        ["authorization_", "_authorization", "X-Authorization", "Proxy-Authorization", "HTTP_AUTHORIZATION", "Cookie"]
    {
        let reply = call(&app, OPEN, &format!("{name}: Bearer some\r\n"), b"{}").await;
        assert_eq!((reply.status, &*reply.code()), (403, "forbidden"), "{name}");
    }
    for line in ["Authorization : Bearer some", " Authorization: Bearer some", "Authorization\t: Bearer some"] {
        let request = format!("POST {OPEN} HTTP/1.1\r\nHost: gateway\r\n{line}\r\nContent-Length: 2\r\n\r\n{{}}");
        let reply = exchange(app.address, request.as_bytes()).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_request"), "{line:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{line:?}");
    }
    let closed = "/closed/api/v1/getparams.execute";
    for line in [
        format!("X-Original-URL: {closed}"),
        format!("X-Rewrite-URL: {closed}"),
        format!("X-Forwarded-Uri: {closed}"),
        "X-Forwarded-Prefix: /closed".to_owned(),
        "X-HTTP-Method-Override: GET".to_owned(),
        "X-Forwarded-Host: closed".to_owned(),
    ] {
        let reply = call(&app, OPEN, &format!("Authorization: Bearer some\r\n{line}\r\n"), b"{}").await;
        assert_eq!(reply.sets(), r#"[{"from":"open"}]"#, "{line}");
    }
}

/// A compressed body is never decompressed, so it cannot grow.
#[tokio::test]
async fn a_compressed_body_is_never_decompressed() {
    let app = serve().await;
    let gzip = std::process::Command::new("gzip").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut gzip = gzip.expect("this test needs the program `gzip`");
    let mut stdin = gzip.stdin.take().unwrap();
    let writing = std::thread::spawn(move || stdin.write_all(&b" ".repeat(64 * 1024 * 1024)).unwrap());
    let bomb = gzip.wait_with_output().unwrap().stdout;
    writing.join().unwrap();
    assert!(bomb.len() < 1024 * 1024, "it is small enough to be read");
    let reply = call(&app, OPEN, "Authorization: Bearer some\r\nContent-Encoding: gzip\r\n", &bomb).await;
    assert_eq!((reply.status, &*reply.code()), (400, "invalid_request"), "{}", reply.text());
}

/// Unpaired surrogates are refused everywhere.
#[tokio::test]
async fn an_unpaired_surrogate_is_refused() {
    let app = serve().await;
    for text in [r"\ud800", r"\udc00", r"\ud800\ud800", r"a\udfffb"] {
        for body in [
            format!(r#"{{"input":{{"parameters":{{"v":"{text}"}}}}}}"#),
            format!(r#"{{"input":{{"parameters":{{"{text}":1}}}}}}"#),
            format!(r#"{{"applicationSetName":"{text}"}}"#),
        ] {
            let reply = call(&app, OPEN, "Authorization: Bearer some\r\n", body.as_bytes()).await;
            assert_eq!((reply.status, &*reply.code()), (400, "invalid_request"), "{body}");
        }
    }
}
