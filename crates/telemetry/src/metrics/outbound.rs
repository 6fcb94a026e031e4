//! Requests that the gateway sends to other services.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec};

use super::registry::{Made, Meaning, MetricRegistry, is_explained};

const OUTCOMES: [Meaning; 13] = [
    ("ok", "a status below 400"),
    ("refused", "a 4xx, as registries often answer"),
    ("limited", "429, or a 403 that asks for a pause"),
    ("failed", "a 5xx or 408"),
    ("connect", "no connection"),
    ("forbidden", "an address that outbound.allowAddresses does not permit"),
    ("untrusted", "a certificate that no trusted CA signed"),
    ("timeout", "no whole answer in time"),
    ("broken", "an answer that broke off"),
    ("too_large", "an answer that is too large"),
    ("throttled", "not sent, since the account pauses"),
    ("backoff", "not sent, since requests pause after failures"),
    ("no_permit", "not sent, since too many requests were under way until the deadline"),
];

/// Counts outgoing requests by destination: a host of the configuration, or `other` for hosts from templates, redirects and
/// answers.
#[derive(Debug, Clone)]
pub struct OutboundMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
}

impl OutboundMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let metrics = Self {
            requests: registry.explained(
                "appset_gateway_outbound_requests_total",
                "Requests to other services. Each attempt counts. The destination is a host of the configuration, or other.",
                &["destination", "outcome"],
                &OUTCOMES,
            )?,
            seconds: registry.histograms(
                "appset_gateway_outbound_request_duration_seconds",
                "How long attempts to ask other services took, by destination, without the wait in the queue.",
                &["destination"],
            )?,
        };
        metrics.begin("other");
        Ok(metrics)
    }

    /// Counts `destination` from zero.
    pub fn begin(&self, destination: &str) {
        for (outcome, _) in OUTCOMES {
            self.requests.with_label_values(&[destination, outcome]);
        }
        self.seconds.with_label_values(&[destination]);
    }

    /// Counts a request that was sent to `destination` and ended as `outcome`.
    pub fn sent(&self, destination: &str, outcome: &'static str, took: Duration) {
        debug_assert!(is_explained(&OUTCOMES, outcome), "{outcome}");
        self.requests.with_label_values(&[destination, outcome]).inc();
        self.seconds.with_label_values(&[destination]).observe(took.as_secs_f64());
    }

    /// Counts a request to `destination` that was not sent because of `reason`.
    pub fn spared(&self, destination: &str, reason: &'static str) {
        debug_assert!(is_explained(&OUTCOMES, reason), "{reason}");
        self.requests.with_label_values(&[destination, reason]).inc();
    }
}
