//! What is counted of spans.

use prometheus::{IntCounter, Registry};

use super::counters;

/// What becomes of spans that are to be collected.
#[derive(Debug, Clone)]
pub(crate) struct SpanMetrics {
    /// The collector has them.
    pub(crate) sent: IntCounter,
    /// There was no room for them, since those before them had not left yet.
    pub(crate) dropped: IntCounter,
    /// The collector could not be reached for too long, or refused them.
    pub(crate) failed: IntCounter,
}

impl SpanMetrics {
    /// None yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let spans = counters(
            registry,
            "appset_gateway_trace_spans_total",
            "Spans of traces, by outcome: sent, dropped (no room, since those before them had not left yet), failed (the collector \
             was away for too long, or refused them).",
            &["outcome"],
        )?;
        let of = |outcome| spans.with_label_values(&[outcome]);
        Ok(Self { sent: of("sent"), dropped: of("dropped"), failed: of("failed") })
    }
}
