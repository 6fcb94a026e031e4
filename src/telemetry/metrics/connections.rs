//! What is counted of connections to the gateway.

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::{counters, gauge};

/// What is counted of connections to the gateway.
#[derive(Debug, Clone)]
pub struct ConnectionMetrics {
    open: IntGauge,
    ended: IntCounterVec,
    not_after: IntGauge,
}

/// Why connections end.
const CONNECTIONS_ENDED: [&str; 9] =
    ["well", "refused", "malformed", "no_handshake", "broken", "idle", "slow_head", "slow_reader", "crowded_out"];

/// A connection that is counted as open until it is dropped.
#[derive(Debug)]
pub(crate) struct Open(IntGauge);

impl ConnectionMetrics {
    /// None yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            open: gauge(registry, "appset_gateway_connections", "Connections to the gateway that are open.")?,
            ended: counters(
                registry,
                "appset_gateway_connections_ended_total",
                "Connections to the gateway that ended: well, refused (too many, in all or of one address), malformed (what came was no \
                 request), no_handshake (no TLS came about, or not in time), broken, idle (nothing came after an answer), slow_head (a request's head did not arrive), slow_reader (an \
                 answer was not taken), crowded_out (nobody had authenticated on it, and newer ones needed its memory).",
                &["reason"],
            )?,
            not_after: gauge(
                registry,
                "appset_gateway_tls_certificate_not_after_seconds",
                "Until when the gateway's certificate is valid, in seconds since 1970; 0 without TLS.",
            )?,
        };
        for why in CONNECTIONS_ENDED {
            metrics.ended.with_label_values(&[why]);
        }
        Ok(metrics)
    }

    /// Counts one more that is open.
    #[must_use]
    pub(crate) fn open(&self) -> Open {
        self.open.inc();
        Open(self.open.clone())
    }

    /// Notes until when the gateway's certificate is valid, in seconds since 1970.
    pub(crate) fn valid_until(&self, not_after: u64) {
        self.not_after.set(i64::try_from(not_after).unwrap_or(i64::MAX));
    }

    /// Notes that one ended; `why` says how.
    pub(crate) fn ended(&self, why: &'static str) {
        self.ended.with_label_values(&[why]).inc();
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
