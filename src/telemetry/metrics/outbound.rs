//! What is counted of the requests that leave.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Registry};

use super::{BUCKETS, counters};

/// What is counted of the requests that leave, by destination: those of the configuration, and `other` for what templates,
/// redirects and answers lead to.
#[derive(Debug, Clone)]
pub struct OutboundMetrics {
    requests: IntCounterVec,
    seconds: HistogramVec,
}

/// What becomes of requests that leave, and of those that do not.
const OUTBOUND: [&str; 13] = [
    "ok",
    "refused",
    "limited",
    "failed",
    "connect",
    "forbidden",
    "untrusted",
    "timeout",
    "broken",
    "too_large",
    "throttled",
    "resting",
    "no_turn",
];

impl OutboundMetrics {
    /// None yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new(
            "appset_gateway_outbound_request_duration_seconds",
            "How long requests to other services took, each attempt, by destination, from its turn to the last byte of the answer.",
        );
        let metrics = Self {
            requests: counters(
                registry,
                "appset_gateway_outbound_requests_total",
                "Requests to other services, each attempt, by destination (host and port as they stand in the configuration, or other) \
                 and outcome: ok (below 400), refused (4xx; a registry's 401 and 404 are \
                 its everyday words), limited (429, or a 403 that asks for a pause), failed (5xx, 408), connect, forbidden (an address that may not be asked), untrusted, timeout, \
                 broken, too_large; and what was not sent: throttled (the account pauses), resting (the destination is left alone), \
                 no_turn (too many before it).",
                &["destination", "outcome"],
            )?,
            seconds: HistogramVec::new(seconds.buckets(BUCKETS.to_vec()), &["destination"])?,
        };
        registry.register(Box::new(metrics.seconds.clone()))?;
        metrics.begin("other");
        Ok(metrics)
    }

    /// Counts `destination` from zero.
    pub(crate) fn begin(&self, destination: &str) {
        for outcome in OUTBOUND {
            self.requests.with_label_values(&[destination, outcome]);
        }
        self.seconds.with_label_values(&[destination]);
    }

    /// Notes a request that was sent to `destination` and ended as `outcome`.
    pub(crate) fn sent(&self, destination: &str, outcome: &'static str, took: Duration) {
        self.requests.with_label_values(&[destination, outcome]).inc();
        self.seconds.with_label_values(&[destination]).observe(took.as_secs_f64());
    }

    /// Notes a request to `destination` that was not sent; `why` says it.
    pub(crate) fn spared(&self, destination: &str, why: &'static str) {
        self.requests.with_label_values(&[destination, why]).inc();
    }
}
