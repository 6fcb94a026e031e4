//! A failing collector: answers do not wait for it, the queue is limited, and lost spans are counted.

use std::{sync::Arc, time::Duration};

use domain::clock::SystemClock;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTracePartialSuccess, ExportTraceServiceResponse};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::collector::{answering, collector, finished, serve, spans};
use crate::support::{
    TestApp,
    app::build,
    upstream::{Step, Upstream, response},
};

fn fixed() -> Value {
    json!([{"name": "f", "backend": {"fixed": {"parameters": [{"a": "b"}]}}}])
}

async fn count(app: &TestApp, outcome: &str) -> u64 {
    app.metric(&format!("appset_gateway_trace_spans_total{{outcome=\"{outcome}\"}}")).await
}

/// Waits until `expected` spans have this outcome.
async fn counted(app: &TestApp, outcome: &str, expected: u64) {
    let until = Instant::now() + Duration::from_secs(30);
    while count(app, outcome).await != expected {
        assert!(Instant::now() < until, "{outcome}: {}", count(app, outcome).await);
        // The collector's requested pause ends by the gateway's clock.
        app.clock.advance(Duration::from_secs(1));
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn answers_do_not_wait_for_a_collector() {
    let silent = Upstream::start(|_| vec![Step::Hang]).await;
    // A span for each step, the run and the request.
    let mut steps = vec![json!({"select": "items"}); 47];
    steps.insert(0, json!({"fixed": {"parameters": [{"a": "b"}]}}));
    let (app, exporting) = serve(&silent, json!({}), &json!([{"name": "r", "backend": {"pipeline": steps}}])).await;
    for n in 0..100 {
        assert_eq!(app.ask("r", json!({"n": n})).await.status, 200);
    }
    // 4096 spans wait, and at most 512 are being sent.
    let dropped = count(&app, "dropped").await;
    assert!((5000 - 4096 - 512..=5000 - 4096).contains(&dropped), "{dropped}");
    assert_eq!(count(&app, "sent").await, 0);
    let started = Instant::now();
    exporting.finish(Duration::from_millis(100)).await;
    assert!(started.elapsed() < Duration::from_secs(20), "the end waits for it no longer than it may");
}

#[tokio::test]
async fn transient_failures_of_a_collector_are_retried() {
    let busy = |status, headers| vec![Step::Send(response(status, headers, "busy"))];
    let well = vec![Step::Send(response(200, "", ""))];
    let collector = answering(vec![busy(503, ""), busy(429, "Retry-After: 1"), well]).await;
    let (app, exporting) = serve(&collector, json!({}), &fixed()).await;
    app.ask("f", json!({})).await;
    counted(&app, "sent", 2).await;
    assert_eq!(finished(&collector, exporting).await.len(), 3 * 2, "three times the same two spans");
    assert_eq!((count(&app, "failed").await, count(&app, "dropped").await), (0, 0));
}

#[tokio::test]
async fn permanent_failures_of_a_collector_drop_the_spans() {
    for status in [400, 401, 404, 413, 500] {
        let collector = Upstream::always(response(status, "", "no")).await;
        let (app, exporting) = serve(&collector, json!({}), &fixed()).await;
        app.ask("f", json!({})).await;
        exporting.finish(Duration::from_secs(20)).await;
        assert_eq!((count(&app, "sent").await, count(&app, "failed").await), (0, 2), "{status}");
        assert_eq!(collector.requests().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn partially_rejected_spans_are_counted() {
    let partial_success = Some(ExportTracePartialSuccess { rejected_spans: 1, error_message: "too old".into() });
    let body = ExportTraceServiceResponse { partial_success }.encode_to_vec();
    let collector = Upstream::always(response(200, "Content-Type: application/x-protobuf", body)).await;
    let (app, exporting) = serve(&collector, json!({}), &fixed()).await;
    app.ask("f", json!({})).await;
    exporting.finish(Duration::from_secs(20)).await;
    assert_eq!((count(&app, "sent").await, count(&app, "failed").await), (1, 1));
}

#[tokio::test]
async fn a_recovered_collector_gets_new_spans() {
    let mut collector = collector().await;
    collector.refuse().await;
    let (app, exporting) = serve(&collector, json!({}), &fixed()).await;
    assert_eq!(app.ask("f", json!({})).await.status, 200);
    collector.listen().await;
    counted(&app, "sent", 2).await;
    drop(exporting);
    assert_eq!(spans(&collector).len(), 2);
}

#[test]
fn trace_mistakes_are_reported_with_their_path() {
    let folder = tempfile::tempdir().unwrap();
    let traces = json!({
        "endpoint": "http://otel-collector:4318/v1/traces", "sample": 1.5, "ca": "ca.pem",
        "headers": {"Content-Type": "text/plain", "no header": "x", "X-A": "a\nb", "X-Key": {"file": "missing"}},
    });
    let config = format!("{}traces: {traces}\nroutes: {}\n", TestApp::auth(), fixed());
    let report = build(folder.path(), &config, Arc::new(SystemClock)).err().unwrap();
    let lines = report.lines().join("\n");
    for assert_span in [
        "traces.endpoint: leave `/v1/traces` out",
        "traces.sample: it is a share and must be from 0 (none) to 1 (all)",
        "traces.headers.Content-Type: the header content-type is set by the gateway",
        "traces.headers.no header: `no header` is not the name of a header",
        "traces.headers.X-A: a header's value is one line",
        "traces.headers.X-Key: cannot read the secret file",
    ] {
        assert!(lines.contains(assert_span), "{assert_span}\n{lines}");
    }
}
