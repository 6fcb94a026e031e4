//! The `http` backend against failing upstreams. Only a whole 2xx with a list of objects is an answer. No parameter leaves its
//! place in the request, and no secret is shown.

mod absent;
mod credentials;
mod digits;
mod each;
mod errors;
mod examples;
mod formats;
mod freshness;
mod hosts;
mod paging;
mod peers;
mod plugin;
mod time;
mod transport;

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    Reply, TestApp,
    upstream::{Step, Upstream, json_response, refused, response},
};

/// The parameter sets that most upstreams here answer with.
const SETS: &str = r#"[{"a":"1"}]"#;

/// A configuration with the uncached route `h`, whose backend requests `target` from `upstream`.
fn config(upstream: &Upstream, target: &str, more: Value) -> String {
    config_of(&format!("http://{}{target}", upstream.address), more)
}

/// The same with a whole `url`.
fn config_of(url: &str, more: Value) -> String {
    let mut http = json!({"url": url, "timeout": "1s"});
    let Value::Object(more) = more else { panic!("{more}") };
    http.as_object_mut().unwrap().extend(more);
    let route = json!({"name": "h", "backend": {"http": http}, "cache": {"ttl": "0s"}});
    format!("{}routes: {}\n", TestApp::auth(), json!([route]))
}

async fn serve(upstream: &Upstream, target: &str, more: Value) -> TestApp {
    TestApp::start(&config(upstream, target, more)).await
}

/// The reply when the upstream plays `steps`.
async fn ask(steps: Vec<Step>, more: Value) -> Reply {
    let upstream = Upstream::start(move |_| steps.clone()).await;
    serve(&upstream, "/list", more).await.ask_afresh("h", json!({})).await
}

fn send(bytes: impl Into<Vec<u8>>) -> Vec<Step> {
    vec![Step::Send(bytes.into())]
}

fn status(status: u16, headers: &str, body: &str) -> Vec<Step> {
    send(response(status, headers, body))
}

fn json(body: &str) -> Vec<Step> {
    send(json_response(body))
}

fn gzip(text: &str) -> Vec<u8> {
    let mut child = std::process::Command::new("gzip")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("this test needs the program `gzip`");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[tokio::test]
async fn values_stay_in_their_part_of_the_url() {
    let upstream = Upstream::always(json_response(SETS)).await;
    let app = serve(&upstream, "/v1/{{ params.b }}/x?b={{ params.b }}", json!({})).await;
    for (value, encoded) in [
        (json!("main"), "main"),
        (json!("a/b c&d=e"), "a%2Fb%20c%26d%3De"),
        (json!("%2e%2e"), "%252e%252e"),
        (json!("?q#f;p@h:1"), "%3Fq%23f%3Bp%40h%3A1"),
        (json!("x\r\nHost: evil"), "x%0D%0AHost%3A%20evil"),
        (json!("🚀ä\u{0}"), "%F0%9F%9A%80%C3%A4%00"),
        (json!("$(id){{ 7 }}"), "%24%28id%29%7B%7B%207%20%7D%7D"),
        (json!(7), "7"),
        (json!(true), "true"),
    ] {
        assert_eq!(app.ask_afresh("h", json!({"b": value})).await.sets(), SETS, "{value}");
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.target, format!("/v1/{encoded}/x?b={encoded}"));
        assert_eq!((&*request.method, request.header("host")), ("GET", Some(&*upstream.address.to_string())));
    }
    let asked = upstream.requests().len();
    for (parameters, says) in [
        (json!({"b": ".."}), "path segment `..`"),
        (json!({"b": "."}), "path segment `.`"),
        // Servers that read `%2F` as `/` would leave the path.
        (json!({"b": "../../x"}), "path segment `..%2F..%2Fx`"),
        (json!({"b": "a\\..\\x"}), "path segment `a%5C..%5Cx`"),
        (json!({"b": ""}), "a path segment empty"),
        (json!({"b": null}), "null"),
        (json!({"b": [1]}), "tojson"),
        (json!({"b": {"c": 1}}), "tojson"),
        (json!({}), "`params.b` is not there"),
    ] {
        refused(&app.ask_afresh("h", parameters).await, 422, "invalid_input", says);
    }
    assert_eq!(upstream.requests().len(), asked, "the upstream was asked");
}

#[tokio::test]
async fn values_stay_in_their_part_of_headers_and_body() {
    let upstream = Upstream::always(json_response(SETS)).await;
    let body =
        json!({"branch": "{{ params.b }}", "list": ["x {{ params.b }}", 1, null, {"set": "{{ applicationSet }}"}]});
    let more = json!({"method": "POST", "headers": {"X-Branch": "b={{ params.h }}"}, "body": body});
    let app = serve(&upstream, "/", more).await;
    for value in ["main", "a\"b\\c\n\t\u{0}", "\"},{\"", "ä🚀", "{{ params.h }}", ""] {
        assert_eq!(app.ask_afresh("h", json!({"b": value, "h": "x y"})).await.sets(), SETS);
        let request = upstream.requests().pop().unwrap();
        assert_eq!((&*request.method, request.header("content-type")), ("POST", Some("application/json")));
        assert_eq!(request.header("x-branch"), Some("b=x y"));
        let sent: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(sent, json!({"branch": value, "list": [format!("x {value}"), 1, null, {"set": "test"}]}));
    }
    let asked = upstream.requests().len();
    for value in ["x\r\nX-Evil: 1", "x\ny", "\u{0}", "x\r"] {
        refused(&app.ask_afresh("h", json!({"b": "", "h": value})).await, 422, "invalid_input", "x-branch");
    }
    assert_eq!(upstream.requests().len(), asked, "the upstream was asked");
}

#[tokio::test]
async fn the_expression_maps_the_answer() {
    let body = r#"{"items":[{"id":"a","n":1},{"id":"b","n":2}],"next":null}"#;
    let upstream = Upstream::always(response(201, "Content-Type: application/vnd.api+json\r\nX-Tag: t", body)).await;
    for (expression, sets) in [
        (
            "body.items.map(i, {'id': i.id, 'n': i.n + 1, 's': status, 't': headers['x-tag'], 'e': params.env})",
            r#"[{"e":"eu","id":"a","n":"2","s":"201","t":"t"},{"e":"eu","id":"b","n":"3","s":"201","t":"t"}]"#,
        ),
        ("body.items.filter(i, i.n > 1)", r#"[{"id":"b","n":"2"}]"#),
        ("body.items.filter(i, i.n > 9)", "[]"),
        ("[body.items[0]]", r#"[{"id":"a","n":"1"}]"#),
        ("has(body.other) ? body.other : []", "[]"),
        ("has(body.other) ? body.other.map(i, i) : []", "[]"),
    ] {
        let app = serve(&upstream, "/", json!({"parameters": expression})).await;
        assert_eq!(app.ask_afresh("h", json!({"env": "eu"})).await.sets(), sets, "{expression}");
    }
    for (expression, says) in [
        ("body.rows.map(i, i)", "`body.rows.map(i, i)`"),
        ("body.items.map(i, {'x': i.missing})", "missing"),
        ("body.items.map(i, i.id)", "item 0 is a string"),
        ("body", "found an object"),
        ("body.next", "found null"),
        ("body.items[9]", "`body.items[9]`"),
        ("[{'x': 1 / 0}]", "1 / 0"),
        ("[{'x': params.none}]", "none"),
        ("[{'x': int('y')}]", "int('y')"),
        ("[{'x': 'y'.matches('[')}]", "matches"),
        ("[{'x': null}]", "`x` is null"),
        // CEL would iterate over an object's keys, and find none in an empty object.
        ("body.map(k, {'name': k})", "an object, where a list is expected"),
        ("body.items[0].map(k, {'name': k}).filter(i, false)", "an object, where a list is expected"),
    ] {
        let app = serve(&upstream, "/", json!({"parameters": expression})).await;
        refused(&app.ask_afresh("h", json!({})).await, 502, "backend_output_invalid", says);
    }
}

#[tokio::test]
async fn an_answer_that_is_no_whole_list_is_unknown() {
    let deep = "[".repeat(100_000);
    let html = "<html><body>Please sign in</body></html>";
    let list = r#"[{"a":"1"}]"#;
    let encoded =
        |text: &str| send(response(200, "Content-Type: application/json\r\nContent-Encoding: gzip", gzip(text)));
    let cases = [
        ("an empty 200", status(200, "Content-Type: application/json", ""), "blank"),
        ("a blank 200", json(" \r\n"), "blank"),
        ("a sign-in page", status(200, "Content-Type: text/html", html), "the content type is `text/html`"),
        ("a sign-in page as JSON", json(html), "it begins with `<html>"),
        ("no content type", status(200, "", list), "content type"),
        ("JSON as text", status(200, "Content-Type: text/plain", list), "content type"),
        ("204", send("HTTP/1.1 204 No Content\r\n\r\n"), "204"),
        ("204 with a list", status(204, "Content-Type: application/json", "[]"), "204"),
        ("205", send("HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n"), ""),
        ("a part", status(206, "Content-Type: application/json\r\nContent-Range: bytes 0-1/9", "[]"), "206"),
        ("304", send("HTTP/1.1 304 Not Modified\r\n\r\n"), "304"),
        ("404", status(404, "Content-Type: application/json", "[]"), "404"),
        ("410", status(410, "Content-Type: application/json", "[]"), "410"),
        ("202", status(202, "Content-Type: application/json", "[]"), "202"),
        ("207", status(207, "Content-Type: application/json", "[]"), "207"),
        (
            "a page",
            status(200, "Content-Type: application/json\r\nLink: </2>; rel=\"next\"", "[]"),
            "one page of several",
        ),
        (
            "another page",
            status(
                200,
                "Content-Type: application/json\r\nLink: </0>; rel=prev, </2>; title=x; REL=\"last next\"",
                "[]",
            ),
            "one page of several",
        ),
        ("a range", status(200, "Content-Type: application/json\r\nContent-Range: items 0-0/5", "[]"), "Content-Range"),
        ("418", status(418, "Content-Type: application/json", list), "418"),
        ("compressed", encoded(list), "encoded (`gzip`)"),
        ("compressed []", encoded("[]"), "encoded (`gzip`)"),
        ("cut JSON", json(r#"[{"a":"1"}"#), "EOF"),
        ("NaN", json("[NaN]"), "not one JSON document"),
        ("a repeated key", json(r#"[{"a":1,"a":2}]"#), "`a` stands twice"),
        ("two documents", json("[] []"), "trailing"),
        ("deep", json(&deep), "recursion limit"),
        ("null", json("null"), "found null"),
        ("{}", json("{}"), "found an object"),
        ("strings", json(r#"["a"]"#), "item 0 is a string"),
        ("a null item", json("[null]"), "item 0 is null"),
        ("invalid UTF-8", send(json_response(b"[{\"a\":\"\xff\"}]")), "not one JSON document"),
        ("too large", json(&format!("[{:5000}]", "")), "larger than 4096 bytes"),
        (
            "too large without an end",
            vec![
                Step::Send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[".to_vec()),
                Step::Send(vec![b' '; 50_000_000]),
                Step::Hang,
            ],
            "larger than 4096 bytes",
        ),
        ("too large an error", status(500, "", &"x".repeat(5000)), "larger than 4096 bytes"),
    ];
    for (name, steps, says) in cases {
        let more = if name == "deep" { json!({}) } else { json!({"maxBody": "4KiB"}) };
        let reply = ask(steps, more).await;
        assert_eq!(reply.status, 502, "{name}: {}", reply.text());
        refused(&reply, 502, "backend_output_invalid", says);
    }
}

#[tokio::test]
async fn an_explicitly_empty_list_is_an_answer() {
    let chunked =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let plain = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";
    for (steps, sets) in [
        (json(SETS), SETS),
        (json("[]"), "[]"),
        (status(200, "content-type: Application/JSON ; charset=utf-8", " [ ] "), "[]"),
        (send(format!("{chunked}5\r\n[{{\"a\"\r\n6\r\n:\"1\"}}]\r\n0\r\n\r\n")), SETS),
        (send(format!("{plain}{SETS}")), SETS),
        (send(format!("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n{plain}{SETS}")), SETS),
        (vec![Step::Drip(json_response(SETS), Duration::from_millis(1))], SETS),
    ] {
        assert_eq!(ask(steps, json!({})).await.sets(), sets);
    }
}

#[tokio::test]
async fn upstream_status_codes_map_to_error_codes() {
    for (code, headers, expected, says) in [
        (401, "", (502, "backend_failed"), "access denied (401 Unauthorized): why"),
        (403, "", (502, "backend_failed"), "access denied (403 Forbidden): why"),
        (407, "", (502, "backend_failed"), "the proxy demands a credential (407 Proxy Authentication Required): why"),
        (408, "", (502, "backend_failed"), "408"),
        (500, "", (502, "backend_failed"), "500 Internal Server Error: why"),
        (503, "Retry-After: 5", (502, "backend_failed"), "503 Service Unavailable: why"),
        (599, "", (502, "backend_failed"), "599"),
        (429, "", (429, "throttled"), "429 Too Many Requests: why"),
    ] {
        let message = refused(&ask(status(code, headers, "why"), json!({})).await, expected.0, expected.1, says);
        assert!(message.starts_with("route h (http): GET http://127.0.0.1:"), "{message}");
    }
    for (headers, seconds) in [
        ("", "60"),
        ("Retry-After: 7", "7"),
        ("Retry-After: 0", "1"),
        ("Retry-After: soon", "60"),
        ("Retry-After: -1", "60"),
    ] {
        let reply = ask(status(429, headers, ""), json!({})).await;
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some(seconds)), "{headers}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let target = Upstream::always(json_response(SETS)).await;
    for code in [300, 301, 302, 303, 307, 308] {
        let location = format!("Location: http://{}/\r\nContent-Type: application/json", target.address);
        let reply = ask(status(code, &location, SETS), json!({})).await;
        refused(&reply, 502, "backend_output_invalid", &format!("unexpected status {code}"));
        assert_eq!(reply.header("location"), None);
    }
    assert!(target.requests().is_empty());
}

/// However the upstream repeats the secret, and wherever a message is truncated.
#[tokio::test]
async fn a_secret_is_sent_and_never_shown() {
    let echo = |status: u16, text: &'static str| {
        Upstream::start(move |request| {
            let seen = request.header("authorization").unwrap();
            let (_, token) = seen.split_once(' ').unwrap();
            request.answer(
                status,
                "Content-Type: application/json",
                text.replace("HEADER", seen).replace("TOKEN", token),
            )
        })
    };
    let cut: &'static str = format!("{} HEADER", "x".repeat(180)).leak();
    for (status, text) in [
        (500, "wrong: HEADER"),
        (401, "HEADER"),
        (403, r#"{"error":"TOKEN is not valid"}"#),
        (429, "TOKEN: too many"),
        (302, "HEADER"),
        (200, "HEADER"),
        (200, r#"{"HEADER":1,"HEADER":2}"#),
        (500, cut),
        (200, cut),
        (200, r#"{"HEADER":[]}"#),
    ] {
        let upstream = echo(status, text).await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "Bearer hunter2-hunter2\n").unwrap();
        let more = json!({"headers": {"Authorization": {"file": "secret"}}});
        let app = TestApp::start_in(folder, &config(&upstream, "/", more)).await;
        let reply = app.ask_afresh("h", json!({})).await;
        assert!(reply.status >= 429, "{text}: {}", reply.text());
        assert!(!reply.text().contains("hunt"), "{text}: {}", reply.message());
        assert_eq!(upstream.requests()[0].header("authorization"), Some("Bearer hunter2-hunter2"));
        if text == "wrong: HEADER" {
            refused(&reply, 502, "backend_failed", "wrong: [redacted]");
            // A rotated secret is picked up. A deleted secret is an error.
            std::fs::write(app.folder.path().join("secret"), "Bearer other").unwrap();
            app.ask_afresh("h", json!({})).await;
            // A request that ends in 500 is sent three times.
            let seen = upstream.requests();
            let seen: Vec<_> = seen.iter().map(|request| request.header("authorization").unwrap()).collect();
            assert_eq!(seen[..3], ["Bearer hunter2-hunter2"; 3]);
            assert_eq!(seen[3..], ["Bearer other"; 3]);
            std::fs::remove_file(app.folder.path().join("secret")).unwrap();
            refused(&app.ask_afresh("h", json!({})).await, 502, "backend_failed", "cannot read the secret file");
            assert_eq!(upstream.requests().len(), 6);
        }
    }
}
