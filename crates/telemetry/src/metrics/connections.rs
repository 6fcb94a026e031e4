//! Connections to the gateway.

use prometheus::{IntCounterVec, IntGauge};

use super::registry::{Made, Meaning, MetricRegistry, is_explained};
use crate::count::CountGuard;

const REASONS: [Meaning; 9] = [
    ("well", "it ended in order"),
    ("refused", "too many connections, in all or of one address"),
    ("malformed", "the bytes were no HTTP request"),
    ("no_handshake", "no TLS handshake in time"),
    ("broken", "it broke off"),
    ("idle", "no further request came"),
    ("slow_head", "the head of a request did not arrive in time"),
    ("slow_reader", "the client did not take an answer in time"),
    ("crowded_out", "nobody had authenticated on it, and newer connections needed its memory"),
];

/// Counts connections, and reports until when the certificate is valid.
#[derive(Debug, Clone)]
pub struct ConnectionMetrics {
    open: IntGauge,
    ended: IntCounterVec,
    not_after: IntGauge,
}

impl ConnectionMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let metrics = Self {
            open: registry.gauge("appset_gateway_connections", "Open connections to the gateway.")?,
            ended: registry.explained(
                "appset_gateway_connections_ended_total",
                "Connections to the gateway that ended.",
                &["reason"],
                &REASONS,
            )?,
            not_after: registry.gauge(
                "appset_gateway_tls_certificate_not_after_seconds",
                "When the gateway's certificate expires, the first one of several, in seconds since 1970, or 0 without TLS.",
            )?,
        };
        for (reason, _) in REASONS {
            metrics.ended.with_label_values(&[reason]);
        }
        Ok(metrics)
    }

    /// Counts a connection as open until the guard is dropped.
    pub fn open(&self) -> CountGuard<IntGauge> {
        CountGuard::new(self.open.clone())
    }

    /// Sets when the first of the gateway's certificates expires, in seconds since 1970.
    pub fn valid_until(&self, not_after: u64) {
        self.not_after.set(i64::try_from(not_after).unwrap_or(i64::MAX));
    }

    /// Counts a connection that ended because of `reason`.
    pub fn ended(&self, reason: &'static str) {
        debug_assert!(is_explained(&REASONS, reason), "{reason}");
        self.ended.with_label_values(&[reason]).inc();
    }
}
