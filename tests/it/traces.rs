//! W3C Trace Context: the ids of a request reach upstreams, programs and the log. A collector gets the gateway's spans for a
//! request.

#[cfg(feature = "otlp")]
mod collected;
#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod trouble;

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    Reply, TOKEN, TestApp,
    binary::Gateway,
    upstream::{Upstream, json_response},
    wire::exchange,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A request to the route `name` with `headers`, which are lines with line ends.
fn call(name: &str, headers: &str) -> Vec<u8> {
    let body = r#"{"applicationSetName":"test","input":{"parameters":{}}}"#;
    let head = format!(
        "POST /{name}/api/v1/getparams.execute HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {TOKEN}\r\n{headers}\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Calls the route `name` of `app` with the `traceparent` `place`.
async fn ask_at(app: &TestApp, name: &str, place: &str) -> Reply {
    app.clock.advance(Duration::from_hours(48));
    app.send(&call(name, &format!("traceparent: {place}\r\n"))).await
}

async fn serve(routes: Value) -> TestApp {
    TestApp::with_routes(&format!("  {routes}")).await
}

/// The field `name` of an answer's only parameter set.
fn returned_field(reply: &Reply, name: &str) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"][0][name].clone()
}

/// An API with a list of one item.
async fn upstream() -> Upstream {
    Upstream::always(json_response(r#"[{"a":"b"}]"#)).await
}

/// Programs that print their trace context. The second one sets its own ids.
fn scripts() -> Value {
    let tell = r#"printf '[{"place":"%s"}]' "$TRACEPARENT""#;
    let worker = ["jq", "-c", "--unbuffered", "{id, output: [{place: .traceparent}]}"];
    json!([
        {"name": "script", "backend": {"script": {"command": ["sh", "-c", tell]}}, "nulls": "drop"},
        {"name": "own", "backend": {"script": {"command": ["sh", "-c", tell], "env": {"TRACEPARENT": "mine"}}}},
        {"name": "worker", "backend": {"script": {"command": worker, "mode": "worker"}}, "nulls": "drop"},
    ])
}

#[tokio::test]
async fn trace_ids_reach_upstreams() {
    let upstream = upstream().await;
    let url = format!("http://{}/", upstream.address);
    let app = serve(json!([
        {"name": "h", "backend": {"http": {"url": url}}},
        {"name": "p", "backend": {"http": {"plugin": {"baseUrl": url}}}},
        {"name": "own", "backend": {"http": {"url": url, "headers": {"Traceparent": "mine"}}}},
    ]))
    .await;
    ask_at(&app, "h", PARENT).await;
    app.ask_afresh("h", json!({})).await;
    ask_at(&app, "own", PARENT).await;
    ask_at(&app, "p", PARENT).await;
    let seen = upstream.requests();
    let seen: Vec<_> = seen.iter().map(|request| request.header("traceparent")).collect();
    assert_eq!(seen, [Some(PARENT), None, Some("mine"), Some(PARENT)]);
}

#[tokio::test]
async fn an_invalid_trace_context_is_dropped() {
    let upstream = upstream().await;
    let routes = json!([{"name": "h", "backend": {"http": {"url": format!("http://{}/", upstream.address)}}}]);
    let app = serve(routes).await;
    let twice = format!("{PARENT}\r\ntraceparent: {PARENT}");
    let no_ascii = format!("{PARENT}\u{e9}");
    for place in
        ["", "00", &PARENT.to_uppercase(), &PARENT.replace("00-", "ff-"), &format!("{PARENT}-x"), &twice, &no_ascii]
    {
        assert_eq!(ask_at(&app, "h", place).await.status, 200, "{place}");
    }
    // The `tracestate` of other systems is dropped too.
    app.clock.advance(Duration::from_hours(48));
    app.send(&call("h", &format!("traceparent: {PARENT}\r\ntracestate: vendor=secret\r\nbaggage: user=me\r\n"))).await;
    let seen = upstream.requests();
    assert_eq!(seen.len(), 8);
    assert!(seen.iter().take(7).all(|request| request.header("traceparent").is_none()), "{seen:?}");
    assert_eq!(seen[7].header("traceparent"), Some(PARENT));
    assert!(seen.iter().all(|request| request.header("tracestate").or(request.header("baggage")).is_none()));
}

#[tokio::test]
async fn programs_receive_the_trace_context() {
    let app = serve(scripts()).await;
    for (name, place) in [("script", PARENT), ("own", "mine"), ("worker", PARENT)] {
        assert_eq!(returned_field(&ask_at(&app, name, PARENT).await, "place"), place, "{name}");
    }
    for (name, place) in [("script", json!("")), ("own", json!("mine")), ("worker", Value::Null)] {
        assert_eq!(returned_field(&app.ask_afresh(name, json!({})).await, "place"), place, "{name}");
    }
}

/// The log of a gateway with the route `f`, after `calls`.
async fn log_of(calls: &[&str]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yaml");
    let routes = r#"[{"name": "f", "backend": {"fixed": {"parameters": [{"a": "b"}]}}}]"#;
    let listen = "server: { listen: 127.0.0.1:0, admin: 127.0.0.1:0, drain: 0s }";
    std::fs::write(&config, format!("{listen}\n{}routes: {routes}\n", TestApp::auth())).unwrap();
    let mut gateway = Gateway::serve(&config);
    for headers in calls {
        exchange(gateway.address, &call("f", headers)).await;
    }
    gateway.signal(Signal::SIGTERM);
    let (_, log) = gateway.wait(Duration::from_secs(10));
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.filter(|line: &Value| line["target"] == "request").collect()
}

#[tokio::test]
async fn the_log_contains_the_trace_id() {
    let place = format!("traceparent: {PARENT}\r\n");
    let hit = place.replace("00f067aa", "11f067aa");
    let [miss, hit, none, bad] = &log_of(&[&place, &hit, "", "traceparent: 00-x\r\n"]).await[..] else { panic!() };
    assert_eq!((&miss["cache"], &hit["cache"]), (&json!("miss"), &json!("hit")));
    assert!([miss, hit].iter().all(|line| line["trace_id"] == TRACE), "{miss} {hit}");
    assert!([none, bad].iter().all(|line| line.get("trace_id").is_none()), "{none} {bad}");
    // Without a collector, no span id appears.
    assert!([miss, hit, none, bad].iter().all(|line| line.get("span_id").is_none()));
}
