//! The outcomes of spans.

use prometheus::IntCounter;

use super::registry::{Made, Meaning, MetricRegistry};

const OUTCOMES: [Meaning; 3] = [
    ("sent", "the collector has it"),
    ("dropped", "the queue was full"),
    ("failed", "the collector refused it, or was unreachable for too long"),
];

/// The spans for a collector, by [outcome](OUTCOMES).
#[derive(Debug, Clone)]
pub struct SpanMetrics {
    /// Spans that the collector has taken.
    pub sent: IntCounter,
    /// Spans that did not fit into the queue.
    pub dropped: IntCounter,
    /// Spans that the collector refused, or that could not be sent for too long.
    pub failed: IntCounter,
}

impl SpanMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let spans = registry.explained(
            "appset_gateway_trace_spans_total",
            "Spans that a collector of traces was to get.",
            &["outcome"],
            &OUTCOMES,
        )?;
        let [sent, dropped, failed] = OUTCOMES.map(|(outcome, _)| spans.with_label_values(&[outcome]));
        Ok(Self { sent, dropped, failed })
    }
}
