//! Whole numbers beyond 64 bits: keys, requests and cursors keep every digit or are refused.

use serde_json::json;

use super::{config, serve};
use crate::support::{
    TOKEN, TestApp,
    upstream::{Request, Upstream, json_response, refused},
    wire::argo_request,
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
    let clock = std::sync::Arc::new(appset_gateway::domain::clock::SystemClock);
    let lines = crate::support::app::build(folder.path(), &config, clock).err().expect("a report").lines();
    assert!(lines.iter().any(|line| line.contains("too large to be kept to the digit")), "{lines:?}");
}
