//! Numbers keep the text in which they were written. Whole numbers beyond 64 bits are refused: in keys, requests and cursors.

use std::time::Duration;

use serde_json::json;

use super::{config, serve};
use crate::support::{
    ADMIN_TOKEN, TOKEN, TestApp,
    binary::Gateway,
    upstream::{Request, Upstream, json_response, refused},
    wire::{argo_request, exchange, exchange_admin},
};

const LONG: &str = "1180591620717411303425";

#[tokio::test]
async fn a_numeric_cursor_keeps_every_digit_or_is_refused() {
    for (cursor, sent) in [
        ("18446744073709551615", Some("18446744073709551615")),
        ("-9223372036854775808", Some("-9223372036854775808")),
        ("9007199254740993", Some("9007199254740993")),
        ("\"1180591620717411303425\"", Some(LONG)),
        ("1700000000.25", Some("1700000000.25")),
        (LONG, None),
        ("18446744073709551616", None),
        ("1180591620717411303425.0", None),
        ("1e21", None),
    ] {
        let upstream = Upstream::start(move |request: &Request| {
            let is_first = !request.target.contains("cursor=");
            let first = format!("{{\"items\":[{{\"a\":\"1\"}}],\"next\":{cursor}}}");
            let body = if is_first { &*first } else { r#"{"items":[],"next":null}"# };
            request.answer(200, "Content-Type: application/json", body)
        })
        .await;
        let paging = json!({"paging": {"next": "body.next", "parameter": "cursor"}, "parameters": "body.items"});
        let reply = serve(&upstream, "/list", paging).await.ask_afresh("h", json!({})).await;
        let asked: Vec<String> = upstream.requests().into_iter().map(|request| request.target).collect();
        if let Some(sent) = sent {
            assert_eq!(reply.sets(), r#"[{"a":"1"}]"#, "{cursor}");
            assert_eq!(asked, ["/list", &format!("/list?cursor={sent}")], "{cursor}");
        } else {
            refused(&reply, 502, "backend_output_invalid", "to the digit");
            assert_eq!(asked, ["/list"], "{cursor}");
        }
    }
}

/// Otherwise two requests would share one cache key, and one would get the other's answer.
#[tokio::test]
async fn a_numeric_parameter_keeps_every_digit_or_is_refused() {
    let upstream = Upstream::always(json_response("[]")).await;
    let body = json!({"n": "{{ params.n }}"});
    let app = serve(&upstream, "/list", json!({"method": "POST", "body": body})).await;
    let ask = async |number: &str| {
        let request = format!("{{\"applicationSetName\":\"x\",\"input\":{{\"parameters\":{{\"n\":{number}}}}}}}");
        app.send(&argo_request("/h/api/v1/getparams.execute", TOKEN, request.as_bytes())).await
    };
    for number in ["18446744073709551615", "-9223372036854775808", "9007199254740993"] {
        assert_eq!(ask(number).await.sets(), "[]");
        let sent = upstream.requests().pop().unwrap().body;
        assert_eq!(String::from_utf8(sent).unwrap(), format!("{{\"n\":\"{number}\"}}"));
    }
    for number in [LONG, "18446744073709551616", "-9223372036854775809"] {
        let reply = ask(number).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_request"));
        assert!(reply.message().contains(&format!("{number} is too long to be kept to the digit")), "{}", reply.text());
    }
    assert_eq!(upstream.requests().len(), 3);
}

#[tokio::test]
async fn a_declared_number_keeps_every_digit_or_is_refused() {
    let upstream = Upstream::always(json_response("[]")).await;
    let config = config(&upstream, "/{{ params.n }}", json!({}));
    let route = "\"backend\"";
    let app = TestApp::start(&config.replacen(
        route,
        &format!("\"input\":[{{\"name\":\"n\",\"type\":\"number\"}}],{route}"),
        1,
    ))
    .await;
    assert_eq!(app.ask("h", json!({"n": "18446744073709551615"})).await.sets(), "[]");
    assert_eq!(upstream.requests()[0].target, "/18446744073709551615");
    refused(&app.ask("h", json!({"n": LONG})).await, 422, "invalid_input", "must be a number");
}

#[test]
fn a_configured_number_keeps_every_digit_or_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let http = "{ url: 'http://h/', method: POST, body: { n: 18446744073709551616 } }";
    let config = format!("{}routes: [ {{ name: s, backend: {{ http: {http} }} }} ]\n", TestApp::auth());
    let clock = std::sync::Arc::new(domain::clock::SystemClock);
    let lines = crate::support::app::build(folder.path(), &config, clock).err().expect("a report").lines();
    assert!(lines.iter().any(|line| line.contains("too large to be kept to the digit")), "{lines:?}");
}

/// Numbers whose text a float does not keep, and others.
const NUMBERS: &str =
    r#"{"a":1.10,"b":7222e2,"c":-0,"d":1E5,"e":9007199254740993,"f":0.00001,"g":1e+06,"h":1.0,"i":7}"#;
/// The same as texts.
const TEXTS: &str = r#"[{"a":"1.10","b":"7222e2","c":"-0","d":"1E5","e":"9007199254740993","f":"0.00001","g":"1e+06","h":"1.0","i":"7"}]"#;

fn picked(of: &str) -> String {
    let fields = "abcdefghi".chars().map(|name| format!("'{name}': {of}.{name}"));
    format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
}

/// A version such as `1.10`, and a short commit such as `7222e2`, look like numbers. As `1.1` and `722200.0` they would be other names.
#[tokio::test]
async fn a_number_of_a_source_keeps_its_text() {
    let upstream = Upstream::always(json_response(format!("[{NUMBERS}]"))).await;
    let (plain, loops) = (picked("i"), picked("i"));
    for parameters in [
        "body".to_owned(),
        format!("body.map(i, {plain})"),
        format!("body.filter(i, i.i == 7).map(i, {loops})"),
        // Costly, so that an evaluator does it.
        format!("body.map(i, lists.range(20000).size() > 0 ? {plain} : {{}})"),
        format!("[{}]", picked("body[0]").replace("': ", "': string(").replace(", '", "), '").replace('}', ")}")),
    ] {
        let app = serve(&upstream, "/list", json!({"parameters": parameters})).await;
        assert_eq!(app.ask_afresh("h", json!({})).await.sets(), TEXTS, "{parameters}");
    }
    let http = json!({"http": {"url": format!("http://{}/list", upstream.address)}});
    let output: serde_json::Map<_, _> =
        "abcdefghi".chars().map(|name| (name.to_string(), json!(format!("{{{{ {name} }}}}")))).collect();
    let computing: serde_json::Map<_, _> = "abcdefghi"
        .chars()
        .map(|name| (name.to_string(), json!(format!("{{% if i > 1 %}}{{{{ {name} }}}}{{% endif %}}"))))
        .collect();
    let merged = json!({"merge": {"mergeKeys": ["i"], "backends": [http, {"fixed": {"parameters": [{"i": "7"}]}}]}});
    let select = json!({"select": format!("items.filter(i, i.i > 1).map(i, {plain})")});
    for route in [
        json!({"name": "r", "backend": http, "output": output}),
        json!({"name": "r", "backend": http, "output": computing}),
        json!({"name": "r", "backend": {"pipeline": [http, select]}}),
        json!({"name": "r", "backend": merged}),
        json!({"name": "r", "backend": {"script": {"command": ["printf", "%s", format!("[{NUMBERS}]")]}}}),
        json!({"name": "r", "backend": {"script": {"command": ["printf", "%s", NUMBERS], "protocol": "jsonLines"}}}),
    ] {
        let app = TestApp::with_routes(&format!("  {}", json!([route]))).await;
        let reply = app.ask("r", json!({})).await;
        assert_eq!(reply.status, 200, "{route}: {}", reply.text());
        assert_eq!(reply.sets(), TEXTS, "{route}");
    }
    let numbers = json!({"name": "r", "backend": http, "stringify": false});
    let app = TestApp::with_routes(&format!("  {}", json!([numbers]))).await;
    let reply = app.ask("r", json!({})).await;
    assert!(reply.message().contains("9007199254740993 cannot be carried exactly"), "{}", reply.text());
}

/// What a caller sends reaches scripts, requests and the answer as it was written. Numbers that are written in two ways are two questions.
#[tokio::test]
async fn a_number_of_a_caller_keeps_its_text() {
    let upstream = Upstream::always(json_response("[]")).await;
    let http = json!({"http": {"url": format!("http://{}/{{{{ params.n }}}}", upstream.address), "method": "POST", "body": {"n": "v{{ params.n }}"}}});
    let print = r#"printf '[{"env":"%s","stdin":%s}]' "$PARAM_N" "$(cat | tr -d '\n')""#;
    let script = json!({"script": {"command": ["sh", "-c", print]}});
    let echo = json!({"fixed": {"parameters": [{"a": "b"}]}});
    let routes = json!([
        {"name": "http", "backend": http},
        {"name": "script", "backend": script, "stringify": false},
        {"name": "echo", "backend": echo, "echo": ["n"]},
        {"name": "declared", "backend": echo, "echo": ["n"], "input": [{"name": "n", "type": "number"}]},
    ]);
    let app = TestApp::with_routes(&format!("  {routes}")).await;
    let ask = async |route: &str, number: &str| {
        let request = format!(r#"{{"applicationSetName":"x","input":{{"parameters":{{"n":{number}}}}}}}"#);
        app.send(&argo_request(&format!("/{route}/api/v1/getparams.execute"), TOKEN, request.as_bytes())).await
    };
    for number in ["1.10", "7222e2", "-0", "1E5", "1e+06", "1.0", "1"] {
        assert_eq!(ask("http", number).await.sets(), "[]");
        let request = upstream.requests().pop().unwrap();
        assert_eq!(request.target, format!("/{}", number.replace('+', "%2B")));
        assert_eq!(String::from_utf8(request.body).unwrap(), format!(r#"{{"n":"v{number}"}}"#));
        assert_eq!(ask("echo", number).await.sets(), format!(r#"[{{"a":"b","n":"{number}"}}]"#));
        assert_eq!(ask("declared", number).await.sets(), format!(r#"[{{"a":"b","n":"{number}"}}]"#));
        assert_eq!(ask("declared", &format!("\"{number}\"")).await.sets(), format!(r#"[{{"a":"b","n":"{number}"}}]"#));
        let reply = ask("script", number).await.text();
        assert!(
            reply.contains(&format!(r#""env":"{number}""#)) && reply.contains(&format!(r#"{{"n":{number}}}"#)),
            "{number}: {reply}"
        );
    }
    assert_eq!(upstream.requests().len(), 7, "each is a question of its own");
}

/// After a restart, the answers and the questions in the cache file are the same.
#[tokio::test]
async fn a_number_keeps_its_text_in_the_cache_file() {
    let folder = tempfile::tempdir().unwrap();
    let upstream = Upstream::always(json_response(r#"[{"v":1.10,"w":7222e2}]"#)).await;
    let route = json!({
        "name": "h", "backend": {"http": {"url": format!("http://{}/", upstream.address)}}, "stringify": false, "cache": {"ttl": "1h"},
    });
    let file = folder.path().join("gateway.yaml");
    let server = "server: { listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", drain: 0s }";
    let path = folder.path().join("data").display().to_string();
    std::fs::write(
        &file,
        format!("{server}\ncache: {{ path: {path} }}\n{}routes: {}\n", TestApp::auth(), json!([route])),
    )
    .unwrap();
    let body = br#"{"applicationSetName":"x","input":{"parameters":{"n":7222e2}}}"#;
    for round in 1..=2 {
        let mut gateway = Gateway::serve(&file);
        let reply = exchange(gateway.address, &argo_request("/h/api/v1/getparams.execute", TOKEN, body)).await;
        assert_eq!(reply.text(), r#"{"output":{"parameters":[{"v":1.10,"w":7222e2}]}}"#, "{round}");
        let list = format!("GET /admin/answers HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n");
        let listed = exchange_admin(gateway.admin, list.as_bytes()).await.text();
        assert!(listed.contains(r#"{"n":7222e2}"#), "{round}: {listed}");
        gateway.signal(nix::sys::signal::Signal::SIGTERM);
        gateway.wait(Duration::from_secs(10));
    }
}
