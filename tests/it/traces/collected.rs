//! The spans at a collector: nested spans for a request, for its backend's run, and for each step, program and outgoing
//! request.

use std::time::Duration;

use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::trace::v1::{
    Span,
    span::SpanKind::{Client, Internal, Server},
};
use serde_json::json;
use tokio::{join, time::sleep};

use super::{
    PARENT, TRACE, ask_at, call,
    collector::{assert_span, attribute, collector, finished, hex, named, place, resource, serve, spans},
    returned_field, upstream,
};
use crate::support::{
    TestApp,
    binary::Gateway,
    upstream::{Upstream, response},
    wire::exchange,
};

#[tokio::test]
async fn a_request_is_one_tree_of_spans() {
    let (collector, upstream) = (collector().await, upstream().await);
    let url = format!("http://{}/{{{{ applicationSet }}}}?key=hunter2", upstream.address);
    let tell = r#"printf '[{"place":"%s"}]' "$TRACEPARENT""#;
    let routes = json!([{"name": "r", "backend": {"pipeline": [
        {"http": {"url": url}},
        {"name": "tell", "script": {"command": ["sh", "-c", tell]}},
    ]}}]);
    let (app, exporting) = serve(&collector, json!({"sample": 0}), &routes).await;
    let seen_by_script = returned_field(&ask_at(&app, "r", PARENT).await, "place");
    let spans = finished(&collector, exporting).await;
    let names =
        ["POST /{route}/api/v1/getparams.execute", "run r", "step 1 (http)", "GET", "step tell (script)", "script sh"];
    let [request, run, first, get, second, script] = names.map(|name| named(&spans, name));
    assert_eq!(spans.len(), 6);
    let tree = [
        (request, "00f067aa0ba902b7"),
        (run, &hex(&request.span_id)),
        (first, &hex(&run.span_id)),
        (get, &hex(&first.span_id)),
        (second, &hex(&run.span_id)),
        (script, &hex(&second.span_id)),
    ];
    for (span, parent) in tree {
        assert_eq!((&*hex(&span.trace_id), &*hex(&span.parent_span_id)), (TRACE, parent), "{}", span.name);
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano && span.status.is_none(), "{span:?}");
    }
    // Only the request's span has a remote parent.
    let remote: Vec<u32> = spans.iter().filter(|span| span.flags & 0x200 != 0).map(|span| span.flags).collect();
    assert_eq!(remote, [0x301]);
    assert_eq!(upstream.requests()[0].header("traceparent"), Some(&*place(get)));
    assert_eq!(seen_by_script, *place(script));
    assert_span(
        request,
        Server,
        &[
            ("http.request.method", "POST"),
            ("http.route", "/{route}/api/v1/getparams.execute"),
            ("http.response.status_code", "200"),
            ("appset_gateway.cache", "miss"),
            ("appset_gateway.route", "r"),
            ("appset_gateway.caller", "test"),
            ("appset_gateway.parameter_sets", "1"),
        ],
    );
    assert_span(
        run,
        Internal,
        &[
            ("appset_gateway.route", "r"),
            ("appset_gateway.backend", "pipeline"),
            ("appset_gateway.run.wanted", "now"),
            ("appset_gateway.outcome", "present"),
            ("appset_gateway.parameter_sets", "1"),
        ],
    );
    assert_span(first, Internal, &[("appset_gateway.parameter_sets", "1")]);
    assert_span(script, Internal, &[("process.executable.name", "sh")]);
    assert_span(
        get,
        Client,
        &[
            ("http.request.method", "GET"),
            ("server.address", "127.0.0.1"),
            ("server.port", &upstream.address.port().to_string()),
            ("http.response.status_code", "200"),
        ],
    );
}

#[tokio::test]
async fn spans_report_the_kind_of_failure() {
    let collector = collector().await;
    let upstream = Upstream::always(response(500, "", "secret words")).await;
    let routes = json!([
        {"name": "r", "backend": {"http": {"url": format!("http://{}/", upstream.address)}}},
        {"name": "s", "backend": {"script": {"command": ["sh", "-c", "echo secret words >&2; exit 1"]}}},
    ]);
    let (app, exporting) = serve(&collector, json!({}), &routes).await;
    assert_eq!(app.ask("r", json!({})).await.status, 502);
    assert_eq!(app.ask("s", json!({})).await.status, 502);
    assert_eq!(app.ask("none", json!({})).await.status, 404);
    let spans = finished(&collector, exporting).await;
    let failed = |name: &str| {
        let span = named(&spans, name);
        assert_eq!(span.status.as_ref().unwrap().message, "");
        attribute(&span.attributes, "error.type").unwrap()
    };
    assert_eq!(
        (failed("run r"), failed("run s"), failed("script sh")),
        ("unavailable".into(), "unavailable".into(), "unavailable".into())
    );
    let of = |name: &str, key: &str| -> Vec<Option<String>> {
        spans.iter().filter(|span| span.name == name).map(|span| attribute(&span.attributes, key)).collect()
    };
    let text = |texts: [&str; 3]| texts.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
    assert_eq!(of("GET", "error.type"), text(["500", "500", "500"]));
    assert_eq!(of("GET", "http.request.resend_count"), text(["", "1", "2"]));
    let request = "POST /{route}/api/v1/getparams.execute";
    assert_eq!(of(request, "error.type"), text(["backend_failed", "backend_failed", "unknown_route"]));
    // A caller's mistake is no server failure.
    let failures = spans.iter().filter(|span| span.name == request).map(|span| span.status.is_some());
    assert_eq!(failures.collect::<Vec<_>>(), [true, true, false]);
}

#[tokio::test]
async fn a_joined_run_is_linked_to_the_request_that_started_it() {
    let collector = collector().await;
    let routes = json!([{"name": "r", "backend": {"script": {"command": ["sh", "-c", "sleep 0.5; echo '[]'"]}}}]);
    let (app, exporting) = serve(&collector, json!({}), &routes).await;
    let second = async {
        while app.metric("appset_gateway_backend_runs_in_flight").await == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        app.ask("r", json!({})).await
    };
    join!(app.ask("r", json!({})), second);
    let spans = finished(&collector, exporting).await;
    let of = |cache: &str| {
        let is_it = |span: &&Span| attribute(&span.attributes, "appset_gateway.cache").as_deref() == Some(cache);
        spans.iter().find(is_it).unwrap()
    };
    let (first, joined) = (of("miss"), of("joined"));
    assert_eq!(named(&spans, "run r").parent_span_id, first.span_id);
    assert_ne!(first.trace_id, joined.trace_id);
    let linked: Vec<_> = joined.links.iter().map(|link| (&link.trace_id, &link.span_id)).collect();
    assert_eq!(linked, [(&first.trace_id, &first.span_id)]);
    assert!(first.links.is_empty());
}

#[tokio::test]
async fn a_background_refresh_is_a_child_of_the_request_that_started_it() {
    let (collector, upstream) = (collector().await, upstream().await);
    let routes = json!([{"name": "r", "backend": {"http": {"url": format!("http://{}/", upstream.address)}}, "cache": {"ttl": "10s"}}]);
    let (app, exporting) = serve(&collector, json!({}), &routes).await;
    app.ask("r", json!({})).await;
    app.clock.advance(Duration::from_secs(30));
    app.ask("r", json!({})).await;
    app.settle().await;
    let spans = finished(&collector, exporting).await;
    let runs: Vec<_> = spans.iter().filter(|span| span.name == "run r").collect();
    assert_eq!(attribute(&runs[1].attributes, "appset_gateway.run.wanted").as_deref(), Some("behind"));
    let caused = spans.iter().find(|span| span.span_id == runs[1].parent_span_id).unwrap();
    assert_eq!(attribute(&caused.attributes, "appset_gateway.cache").as_deref(), Some("stale"));
}

#[tokio::test]
async fn the_configured_share_or_the_caller_decides_on_sampling() {
    let (collector, upstream) = (collector().await, upstream().await);
    let routes = json!([{"name": "r", "backend": {"http": {"url": format!("http://{}/", upstream.address)}}}]);
    let (app, exporting) = serve(&collector, json!({"sample": 0}), &routes).await;
    let unsampled = PARENT.replace("-01", "-00");
    ask_at(&app, "r", &unsampled).await;
    app.ask_afresh("r", json!({})).await;
    assert!(finished(&collector, exporting).await.is_empty());
    let seen = upstream.requests();
    assert_eq!(seen[0].header("traceparent"), Some(&*unsampled));
    // Upstreams follow the same sampling decision.
    assert!(seen[1].header("traceparent").unwrap().ends_with("-02"), "{seen:?}");
}

#[tokio::test]
async fn the_collector_receives_the_resource_attributes() {
    let collector = collector().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "Bearer hunter2\n").unwrap();
    let traces = json!({
        "endpoint": format!("http://{}/tenant", collector.address),
        "headers": {"Authorization": {"file": "key"}, "X-Scope": "previews"},
        "resource": {"service.name": "previews", "deployment.environment.name": "test"},
    });
    let routes = json!([{"name": "f", "backend": {"fixed": {"parameters": []}}}]);
    let app = TestApp::start_in(folder, &format!("{}traces: {traces}\nroutes: {routes}\n", TestApp::auth())).await;
    let exporting = app.app.traces.start();
    app.ask("f", json!({})).await;
    exporting.finish(Duration::from_secs(20)).await;
    let seen = collector.requests();
    assert_eq!((&*seen[0].target, seen[0].header("x-scope")), ("/tenant/v1/traces", Some("previews")));
    assert_eq!(seen[0].header("authorization"), Some("Bearer hunter2"));
    let resource = resource(&collector);
    for (key, value) in [
        ("service.name", "previews"),
        ("deployment.environment.name", "test"),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ] {
        assert_eq!(attribute(&resource, key).as_deref(), Some(value));
    }
    assert_eq!(attribute(&resource, "service.instance.id").unwrap().len(), 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_spans_are_sent_before_the_process_ends() {
    let collector = collector().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("gateway.yaml");
    let endpoint = format!("http://{}", collector.address);
    let text = json!({
        "server": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": "0s"},
        "traces": {"endpoint": endpoint},
        "routes": [{"name": "f", "backend": {"fixed": {"parameters": []}}}],
    });
    let sections = text.as_object().unwrap().iter().map(|(key, value)| format!("{key}: {value}\n"));
    std::fs::write(&config, TestApp::auth() + &sections.collect::<String>()).unwrap();
    let mut gateway = Gateway::serve(&config);
    exchange(gateway.address, &call("f", &format!("traceparent: {PARENT}\r\n"))).await;
    gateway.signal(Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_secs(10));
    assert!(status.success());
    let spans = spans(&collector);
    let request = named(&spans, "POST /{route}/api/v1/getparams.execute");
    let line = log.lines().find(|line| line.contains("\"target\":\"request\"")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&line["trace_id"], &line["span_id"]), (&json!(TRACE), &json!(hex(&request.span_id))));
}
