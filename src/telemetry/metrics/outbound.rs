//! What is counted of the requests that leave.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounterVec, Registry};

use super::{BUCKETS, counters};

/// What is counted of the requests that leave. They have no label for where they go: templates name destinations too.
#[derive(Debug, Clone)]
pub struct OutboundMetrics {
    requests: IntCounterVec,
    seconds: Histogram,
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
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let seconds = HistogramOpts::new(
            "appset_gateway_outbound_request_duration_seconds",
            "How long requests to other services took, each attempt, from its turn to the last byte of the answer.",
        );
        let metrics = Self {
            requests: counters(
                registry,
                "appset_gateway_outbound_requests_total",
                "Requests to other services, each attempt, by outcome: ok (below 400), refused (4xx; a registry's 401 and 404 are \
                 its everyday words), limited (429, or a 403 that asks for a pause), failed (5xx, 408), connect, forbidden (an address that may not be asked), untrusted, timeout, \
                 broken, too_large; and what was not sent: throttled (the account pauses), resting (the destination is left alone), \
                 no_turn (too many before it).",
                &["outcome"],
            )?,
            seconds: Histogram::with_opts(seconds.buckets(BUCKETS.to_vec()))?,
        };
        registry.register(Box::new(metrics.seconds.clone()))?;
        for outcome in OUTBOUND {
            metrics.requests.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Notes a request that was sent and ended as `outcome`.
    pub fn sent(&self, outcome: &'static str, took: Duration) {
        self.requests.with_label_values(&[outcome]).inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Notes a request that was not sent; `why` says it.
    pub fn spared(&self, why: &'static str) {
        self.requests.with_label_values(&[why]).inc();
    }
}
