//! The plugin endpoint: accepted requests, answers and refusals.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{
    Reply, TOKEN, TestApp, Verdict,
    wire::{argo_request, exchange_admin, operator_request, read_reply},
};

const PATH: &str = "/api/v1/getparams.execute";

const ROUTES: &str = r#"
  - name: fake-appset
    match: { applicationSet: fake-appset }
    backend: { fixed: { parameters: [ { key1: val1, n: 1000000 } ] } }
  - name: by-branch
    match: { applicationSet: "fb-*", parameters: { branch: "feature/*" } }
    backend: { fixed: { parameters: [ { from: by-branch } ] } }
    echo: [branch]
  - name: any-fb
    match: { applicationSet: "fb-*" }
    backend: { fixed: { parameters: [] } }
  - name: declared
    input: [ { name: branch, required: true, pattern: "[a-z/]+" }, { name: n, type: number, default: 3 } ]
    backend: { fixed: { parameters: [ {} ] } }
    output: { text: "{{ params.branch }}-{{ params.n }}-{{ applicationSet }}" }
"#;

async fn app() -> TestApp {
    TestApp::with_routes(ROUTES).await
}

fn call_of(application_set: &str, parameters: &Value) -> Value {
    json!({"applicationSetName": application_set, "input": {"parameters": parameters}})
}

fn assert_refused(reply: &Reply, status: u16, code: &str, says: &str) {
    assert_eq!((reply.status, reply.code().as_str()), (status, code), "{}", reply.text());
    assert!(reply.message().contains(says), "{}", reply.text());
    let Verdict::Error { status: Some(seen), condition } = reply.verdict() else { panic!("{:?}", reply.verdict()) };
    assert_eq!(seen, status);
    assert_eq!(condition, format!("API error with status code {status}: {}", reply.message()));
    assert_eq!(reply.json()["requestId"], reply.header("x-request-id").unwrap());
}

#[tokio::test]
async fn the_documented_call_is_answered() {
    let app = app().await;
    let reply = app.call(PATH, &call_of("fake-appset", &json!({"param1": "value1"}))).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.text(), r#"{"output":{"parameters":[{"key1":"val1","n":"1000000"}]}}"#);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("content-encoding"), None);
}

#[tokio::test]
async fn the_first_matching_route_answers_unless_the_path_names_one() {
    let app = app().await;
    let sets = async |application_set: &str, parameters: Value| {
        app.call(PATH, &call_of(application_set, &parameters)).await.sets()
    };
    assert_eq!(sets("fb-x", json!({"branch": "feature/a"})).await, r#"[{"from":"by-branch","branch":"feature/a"}]"#);
    assert_eq!(sets("fb-x", json!({"branch": "main"})).await, "[]");
    assert_eq!(app.ask("fake-appset", json!({})).await.sets(), r#"[{"key1":"val1","n":"1000000"}]"#);

    let unmatched = app.call(PATH, &call_of("other\r\n", &json!({"a": 1}))).await;
    assert_refused(&unmatched, 404, "unknown_route", r"ApplicationSet `other\r\n` with the parameters [a]");
    let unnamed = app.ask("nowhere", json!({})).await;
    assert_refused(
        &unnamed,
        404,
        "unknown_route",
        "no route `nowhere`; there are: fake-appset, by-branch, any-fb, declared",
    );
    for path in
        ["/%2e%2e/api/v1/getparams.execute", "/a%2fb/api/v1/getparams.execute", "/%0d%0a/api/v1/getparams.execute"]
    {
        assert_refused(&app.call(path, &json!({})).await, 404, "unknown_route", "there is no route");
    }
}

#[tokio::test]
async fn input_is_checked_and_completed() {
    let app = app().await;
    assert_eq!(app.ask("declared", json!({"branch": "a/b"})).await.sets(), r#"[{"text":"a/b-3-test"}]"#);
    assert_eq!(app.ask("declared", json!({"branch": "a", "n": "7"})).await.sets(), r#"[{"text":"a-7-test"}]"#);
    assert_refused(&app.ask("declared", json!({})).await, 422, "invalid_input", "parameter `branch` is missing");
    let wrong = app.ask("declared", json!({"branch": "A", "n": [], "x": 1})).await;
    assert_refused(&wrong, 422, "invalid_input", "`A` does not match");
    assert!(wrong.message().contains("must be a number, is a list"), "{}", wrong.text());
    assert!(wrong.message().contains("unknown parameter `x`"), "{}", wrong.text());
}

#[tokio::test]
async fn any_content_type_and_all_forms_of_empty_parameters_are_accepted() {
    let app = app().await;
    for body in ["{\"applicationSetName\":\"fake-appset\",\"input\":{}}\n", r#"{"applicationSetName":"fake-appset"}"#] {
        for content_type in ["Content-Type: application/x-www-form-urlencoded\r\n", "Content-Type: text/plain\r\n", ""]
        {
            let head = format!(
                "POST {PATH} HTTP/1.1\r\nHost: g\r\n{content_type}Authorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            let reply = app.send(format!("{head}{body}").as_bytes()).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
        }
    }
}

#[tokio::test]
async fn errors_for_bad_bodies_name_the_problem() {
    let app = app().await;
    for (body, says) in [
        ("", "it is blank"),
        ("branch=main", "line 1 column 1"),
        (r#"{"applicationSetName":"x""#, "EOF"),
        (r#"["x"]"#, "must be an object, not a list"),
        (r#"{"input":{"parameters":[]}}"#, "`input.parameters` must be an object, not a list"),
        (r#"{"input":{},"input":{"parameters":{}}}"#, "the key `input` stands twice"),
        (r"{} {}", "trailing characters"),
        ("\u{feff}{}", "line 1 column 1"),
    ] {
        assert_refused(&app.send(&argo_request(PATH, TOKEN, body.as_bytes())).await, 400, "invalid_request", says);
    }
    let deep = format!("{{\"input\":{}", "[".repeat(200_000));
    assert_refused(&app.send(&argo_request(PATH, TOKEN, deep.as_bytes())).await, 400, "invalid_request", "recursion");
    assert_refused(&app.send(&argo_request(PATH, TOKEN, b"{\"a\":\"\xff\"}")).await, 400, "invalid_request", "line 1");
}

#[tokio::test]
async fn a_body_over_one_mebibyte_is_refused() {
    let app = app().await;
    let fits = call_of("fake-appset", &json!({"pad": "x".repeat(1_000_000)}));
    assert_eq!(app.call(PATH, &fits).await.status, 200);
    let declared =
        format!("POST {PATH} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1048577\r\n\r\n");
    assert_refused(&app.send(declared.as_bytes()).await, 413, "payload_too_large", "1048576 bytes");
    let mut chunked = format!(
        "POST {PATH} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {TOKEN}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for _ in 0..33 {
        chunked.extend_from_slice(b"8000\r\n");
        chunked.extend(std::iter::repeat_n(b' ', 0x8000));
        chunked.extend_from_slice(b"\r\n");
    }
    assert_refused(&app.send(&chunked).await, 413, "payload_too_large", "1048576 bytes");
}

#[tokio::test]
async fn wrong_paths_and_methods_get_flat_errors() {
    let app = app().await;
    assert_refused(&app.call("/", &json!({})).await, 404, "not_found", "POST /api/v1/getparams.execute");
    assert_refused(&app.call("//api/v1/getparams.execute", &json!({})).await, 404, "unknown_route", "no route ``");
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        let reply = app.send(format!("{method} {PATH} HTTP/1.1\r\nHost: g\r\n\r\n").as_bytes()).await;
        assert_refused(&reply, 405, "method_not_allowed", "sends a POST");
        assert_eq!(reply.header("allow"), Some("POST"));
    }
    let reply = app.send(b"POST /openapi.yaml HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n").await;
    assert_refused(&reply, 405, "method_not_allowed", "GET only");
}

#[tokio::test]
async fn a_token_gives_access_only_to_its_routes() {
    let (all, some) = (auth::hash_token("all"), auth::hash_token("some"));
    let auth = format!(
        "auth: {{ tokens: [ {{ name: a, sha256: \"{all}\" }}, {{ name: s, sha256: \"{some}\", routes: [\"any-*\"] }} ] }}\n"
    );
    let app = TestApp::start(&format!("{auth}routes:{ROUTES}")).await;
    let body = call_of("fb-x", &json!({})).to_string();
    let status = async |path: &str, token: &str| app.send(&argo_request(path, token, body.as_bytes())).await;
    let named = "/any-fb/api/v1/getparams.execute";
    for path in [PATH, named] {
        assert_eq!(status(path, "all").await.status, 200);
        assert_eq!(status(path, "some").await.status, 200);
        for wrong in ["", "wrong", "al", "alll", "$plugin.myplugin.token"] {
            assert_refused(&status(path, wrong).await, 403, "forbidden", "the bearer token is missing or wrong");
        }
    }
    let other = "/declared/api/v1/getparams.execute";
    assert_refused(&status(other, "some").await, 403, "forbidden", "the caller `s` may not ask the route `declared`");
    assert_refused(
        &status("/nowhere/api/v1/getparams.execute", "some").await,
        403,
        "forbidden",
        "may not ask the route",
    );
    let matched = call_of("fake-appset", &json!({})).to_string();
    let reply = app.send(&argo_request(PATH, "some", matched.as_bytes())).await;
    assert_refused(&reply, 403, "forbidden", "the caller `s` may not ask the route `fake-appset`");
    let without =
        app.send(format!("POST {PATH} HTTP/1.1\r\nHost: g\r\nContent-Length: 2\r\n\r\n{{}}").as_bytes()).await;
    assert_refused(&without, 403, "forbidden", "missing or wrong");
}

#[tokio::test]
async fn a_token_can_be_limited_to_application_sets() {
    let hash = auth::hash_token("previews");
    let auth = format!("auth: {{ tokens: [ {{ name: p, sha256: \"{hash}\", applicationSets: [\"fb-*\"] }} ] }}\n");
    let app = TestApp::start(&format!("{auth}routes:{ROUTES}")).await;
    let ask = async |path: &str, body: String| app.send(&argo_request(path, "previews", body.as_bytes())).await;
    let named = "/any-fb/api/v1/getparams.execute";
    for path in [PATH, named] {
        assert_eq!(ask(path, call_of("fb-x", &json!({})).to_string()).await.status, 200);
        let refused = ask(path, call_of("fake-appset", &json!({})).to_string()).await;
        let why = "the caller `p` may not ask for the ApplicationSet `fake-appset`; see its `applicationSets`";
        assert_refused(&refused, 403, "forbidden", why);
        // A call without an ApplicationSet name matches none of them.
        assert_refused(&ask(path, "{}".to_owned()).await, 403, "forbidden", "the call names no ApplicationSet");
    }
    let unknown = call_of("fake-\u{7}".repeat(100).as_str(), &json!({})).to_string();
    assert_refused(&ask(PATH, unknown).await, 403, "forbidden", r"`fake-\u{7}fake");
}

/// Measured with other servers: a refusal sent without reading the body closes the connection under a
/// client that sends head and body apart, as Go's does.
#[tokio::test]
async fn a_connection_survives_refusals() {
    let app = app().await;
    let mut stream = TcpStream::connect(app.address).await.unwrap();
    let body = call_of("fake-appset", &json!({})).to_string();
    for token in ["wrong", "wrong", TOKEN, "wrong", TOKEN] {
        let request = argo_request(PATH, token, body.as_bytes());
        let (head, body) = request.split_at(request.len() - body.len());
        stream.write_all(head).await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        stream.write_all(body).await.unwrap();
        let reply = read_reply(&mut stream).await;
        assert_eq!(reply.status, if token == TOKEN { 200 } else { 403 });
        assert_eq!(reply.header("connection"), None);
    }
}

/// Authentication needs only the head: the large body of an unauthenticated request is not read to its end.
#[tokio::test]
async fn repeated_single_value_headers_are_refused() {
    let app = app().await;
    for (header, status, code) in
        [("Authorization: Bearer strong-password", 403, "forbidden"), ("Host: other", 400, "invalid_request")]
    {
        let request = String::from_utf8(argo_request(PATH, TOKEN, b"{}")).unwrap();
        let before = request.replacen("\r\n", &format!("\r\n{header}\r\n"), 1);
        let after = request.replacen("\r\n\r\n", &format!("\r\n{header}\r\n\r\n"), 1);
        for request in [before, after] {
            assert_refused(&app.send(request.as_bytes()).await, status, code, "");
        }
    }
    let request = operator_request("GET", "/admin/held", "");
    let twice = request.replacen("\r\n\r\n", "\r\nAuthorization: Bearer strong-password\r\n\r\n", 1);
    assert_eq!(exchange_admin(app.admin, request.as_bytes()).await.status, 200);
    assert_eq!(exchange_admin(app.admin, twice.as_bytes()).await.status, 403);
}

#[tokio::test]
async fn the_body_of_an_unauthenticated_request_is_not_awaited() {
    let app = app().await;
    let started = Instant::now();
    let head =
        format!("POST {PATH} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer wrong\r\nContent-Length: 1000000\r\n\r\n{{");
    assert_refused(&app.send(head.as_bytes()).await, 403, "forbidden", "missing or wrong");
    assert!(started.elapsed() < Duration::from_secs(8), "it waited for the body");
}

#[tokio::test]
async fn excess_concurrent_requests_are_shed() {
    let auth = TestApp::auth();
    let app = TestApp::start(&format!(
        "{auth}server: {{ maxInFlight: 2 }}\nroutes:\n  - {{ name: slow, backend: {{ script: {{ command: [sh, -c, \"sleep 1; echo '[]'\"] }} }} }}\n"
    ))
    .await;
    let (first, second, third) =
        tokio::join!(app.ask("slow", json!({"n": 1})), app.ask("slow", json!({"n": 2})), async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            app.ask("slow", json!({"n": 1})).await
        });
    assert_eq!((first.status, second.status), (200, 200));
    assert_refused(&third, 503, "overloaded", "2 requests are under way");
    assert_eq!(third.header("retry-after"), Some("1"));
    assert_eq!(app.ask("slow", json!({"n": 1})).await.status, 200, "there is room again");
}

#[tokio::test]
async fn the_deadline_holds_for_every_backend() {
    let app = TestApp::with_routes(
        "  - { name: slow, deadline: 600ms, backend: { script: { command: [sh, -c, \"trap '' TERM; sleep 20\"] } } }",
    )
    .await;
    let started = Instant::now();
    let reply = app.ask("slow", json!({})).await;
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_refused(&reply, 504, "backend_timeout", "route slow (script)");
}

#[tokio::test]
async fn a_safe_request_id_of_a_caller_is_returned() {
    let app = app().await;
    let id = async |given: &str| {
        let head = format!("POST {PATH} HTTP/1.1\r\nHost: g\r\nX-Request-Id: {given}\r\nContent-Length: 0\r\n\r\n");
        app.send(head.as_bytes()).await.header("x-request-id").unwrap().to_owned()
    };
    assert_eq!(id("abc-1.2_3").await, "abc-1.2_3");
    for unsafe_id in ["a b", "a\"b", "", &"x".repeat(65), "<script>"] {
        let new = id(unsafe_id).await;
        assert_ne!(new, unsafe_id);
        assert_eq!(new.len(), 16);
    }
}

#[tokio::test]
async fn a_broken_request_gets_no_answer_that_argo_would_apply() {
    let app = app().await;
    for broken in [
        "POST /api/v1/getparams.execute HTTP/1.1\r\nHost: g\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        "POST /api/v1/getparams.execute HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        "garbage\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(app.address).await.unwrap();
        stream.write_all(broken.as_bytes()).await.unwrap();
        let mut raw = Vec::new();
        tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut raw))
            .await
            .expect("it is closed")
            .unwrap();
        let verdict = crate::support::argo::evaluate_raw(&raw);
        assert!(matches!(verdict, Verdict::Error { .. }), "{broken:?}: {verdict:?}");
    }
}
