//! A collector for tests. It accepts OTLP over HTTP, and decodes it with OpenTelemetry's own messages.

use std::time::Duration;

use appset_gateway::collector::Exporting;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value as AnyValue},
    trace::v1::{Span, span::SpanKind},
};
use prost::Message as _;
use serde_json::{Value, json};

use crate::support::{
    TestApp,
    upstream::{Step, Upstream, response},
};

/// A working collector.
pub(super) async fn collector() -> Upstream {
    Upstream::always(response(200, "Content-Type: application/x-protobuf", "")).await
}

/// A gateway with `routes` that sends spans to `collector`, with `more` in its section `traces`.
pub(super) async fn serve(collector: &Upstream, more: Value, routes: &Value) -> (TestApp, Exporting) {
    let mut traces = json!({"endpoint": format!("http://{}", collector.address)});
    traces.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let app = TestApp::start(&format!("{}traces: {traces}\nroutes: {routes}\n", TestApp::auth())).await;
    let exporting = app.app.traces.start();
    (app, exporting)
}

/// All spans that `collector` received.
pub(super) fn spans(collector: &Upstream) -> Vec<Span> {
    let requests = collector.requests();
    let decoded = requests.iter().flat_map(|request| {
        assert_eq!((&*request.method, &*request.target), ("POST", "/v1/traces"));
        assert_eq!(request.header("content-type"), Some("application/x-protobuf"));
        assert_eq!(request.header("traceparent"), None, "the sending of spans is no part of a trace");
        ExportTraceServiceRequest::decode(&*request.body).unwrap().resource_spans
    });
    decoded.flat_map(|of| of.scope_spans).flat_map(|of| of.spans).collect()
}

/// All spans, after all finished spans were sent.
pub(super) async fn finished(collector: &Upstream, exporting: Exporting) -> Vec<Span> {
    exporting.finish(Duration::from_secs(20)).await;
    spans(collector)
}

/// The resource attributes of all spans.
pub(super) fn resource(collector: &Upstream) -> Vec<KeyValue> {
    let requests = collector.requests();
    let request = ExportTraceServiceRequest::decode(&*requests[0].body).unwrap();
    request.resource_spans[0].resource.clone().unwrap().attributes
}

/// The span with this name.
#[track_caller]
pub(super) fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let names: Vec<&String> = spans.iter().map(|span| &span.name).collect();
    let span = found.next().unwrap_or_else(|| panic!("no `{name}` among {names:?}"));
    assert!(found.next().is_none(), "several `{name}` among {names:?}");
    span
}

/// An attribute, as text.
pub(super) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    Some(match found.value.clone()?.value? {
        AnyValue::StringValue(text) => text,
        AnyValue::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    })
}

/// Checks that `span` has exactly these attributes.
#[track_caller]
pub(super) fn assert_span(span: &Span, kind: SpanKind, attributes: &[(&str, &str)]) {
    let expected: Vec<_> = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let found = span.attributes.iter();
    let found: Vec<_> =
        found.map(|found| (found.key.clone(), attribute(&span.attributes, &found.key).unwrap())).collect();
    assert_eq!((span.kind(), found), (kind, expected), "{}", span.name);
}

/// The `traceparent` of a sampled span.
pub(super) fn place(span: &Span) -> String {
    format!("00-{}-{}-{:02x}", hex(&span.trace_id), hex(&span.span_id), span.flags & 0xff)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

/// A collector that answers with each of `answers` in turn. The last one repeats.
pub(super) async fn answering(answers: Vec<Vec<Step>>) -> Upstream {
    let count = std::sync::atomic::AtomicUsize::new(0);
    Upstream::start(move |_| {
        let index = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        answers[index.min(answers.len() - 1)].clone()
    })
    .await
}
