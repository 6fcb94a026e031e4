//! Encodes spans for a collector as protobuf, with the messages that OpenTelemetry generates. The messages are the same over HTTP and gRPC.

use std::{collections::BTreeMap, time::UNIX_EPOCH};

use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value},
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span, Status, span, status::StatusCode},
};
use prost::Message as _;

use crate::trace::{Record, SpanKind, TraceContext, Value};

/// The flag: the parent's remoteness is set (`SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK`).
const KNOWS_REMOTE: u32 = 0x100;
/// The flag: the parent belongs to another program (`SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`).
const IS_REMOTE: u32 = 0x200;

/// The request for a batch of spans of `program`, with the attributes that all of them share.
#[must_use]
pub fn encode(program: &str, resource: &BTreeMap<String, String>, spans: Vec<Record>) -> Vec<u8> {
    let attributes = resource.iter().map(|(key, value)| attribute(key, Value::from(value.clone()))).collect();
    let scope = InstrumentationScope {
        name: program.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let spans = spans.into_iter().map(message).collect();
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, schema_url: String::new() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_spans = vec![ResourceSpans { resource, scope_spans, schema_url: String::new() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

/// How many spans a collector refused, by its answer. An unreadable answer counts as no refusal.
#[must_use]
pub fn refused(body: &[u8]) -> u64 {
    let answer = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    answer.partial_success.and_then(|partial| partial.rejected_spans.try_into().ok()).unwrap_or_default()
}

fn message(record: Record) -> Span {
    let began = record.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = |since: std::time::Duration| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let remote = KNOWS_REMOTE | if record.is_entry { IS_REMOTE } else { 0 };
    let status = Status { code: StatusCode::Error.into(), message: String::new() };
    Span {
        trace_id: record.context.trace().into(),
        span_id: record.context.span().into(),
        parent_span_id: record.parent.map(|parent| parent.span().into()).unwrap_or_default(),
        flags: u32::from(record.context.flags()) | remote,
        name: record.name,
        kind: kind(record.kind).into(),
        start_time_unix_nano: nanos(began),
        end_time_unix_nano: nanos(began + record.took),
        attributes: record.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        links: record.links.into_iter().map(link).collect(),
        status: record.is_failed.then_some(status),
        ..Span::default()
    }
}

const fn kind(kind: SpanKind) -> span::SpanKind {
    match kind {
        SpanKind::Server => span::SpanKind::Server,
        SpanKind::Client => span::SpanKind::Client,
        SpanKind::Internal => span::SpanKind::Internal,
    }
}

fn link(to: TraceContext) -> span::Link {
    span::Link {
        trace_id: to.trace().into(),
        span_id: to.span().into(),
        flags: u32::from(to.flags()) | KNOWS_REMOTE,
        ..span::Link::default()
    }
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => any_value::Value::StringValue(text.into_owned()),
        Value::Number(number) => any_value::Value::IntValue(number),
    };
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    use super::*;

    #[test]
    fn what_a_collector_refuses_is_read() {
        let answer = |partial_success| ExportTraceServiceResponse { partial_success }.encode_to_vec();
        let partial = |rejected_spans| Some(ExportTracePartialSuccess { rejected_spans, error_message: "no".into() });
        for (body, count) in [
            (Vec::new(), 0),
            (answer(None), 0),
            (answer(partial(0)), 0),
            (answer(partial(7)), 7),
            (answer(partial(-1)), 0),
            (b"<html>".to_vec(), 0),
        ] {
            assert_eq!(refused(&body), count);
        }
    }
}
