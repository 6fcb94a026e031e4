//! What is counted of whoever vouches for callers.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

use super::counters;
use crate::domain::clock::Timestamp;

/// What is counted of whoever vouches for callers.
#[derive(Debug, Clone)]
pub(crate) struct CallerMetrics {
    reads: IntCounterVec,
    read_at: IntGaugeVec,
    keys: IntGaugeVec,
    reviews: IntCounterVec,
    reviews_spared: IntCounterVec,
}

/// What is counted of one issuer's keys.
#[derive(Debug, Clone)]
pub(crate) struct KeySetMetrics {
    read: IntCounter,
    failed: IntCounter,
    read_at: IntGauge,
    keys: IntGauge,
}

/// What is counted of an API server's reviews.
#[derive(Debug, Clone)]
pub(crate) struct ReviewMetrics {
    done: IntCounterVec,
    spared: IntCounterVec,
}

impl CallerMetrics {
    /// None yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str| -> Result<IntGaugeVec, prometheus::Error> {
            let gauges = IntGaugeVec::new(Opts::new(name, help), &["issuer"])?;
            registry.register(Box::new(gauges.clone()))?;
            Ok(gauges)
        };
        Ok(Self {
            reads: counters(
                registry,
                "appset_gateway_issuer_key_reads_total",
                "How often an issuer's keys were read, by issuer and outcome (ok, failed).",
                &["issuer", "outcome"],
            )?,
            read_at: gauges(
                "appset_gateway_issuer_keys_read_timestamp_seconds",
                "When an issuer's keys were last read well, in seconds since 1970; 0 when they never were.",
            )?,
            keys: gauges("appset_gateway_issuer_keys", "How many keys of an issuer are in use.")?,
            reviews: counters(
                registry,
                "appset_gateway_token_reviews_total",
                "How often a cluster's API server was asked whose a token is, by outcome (authenticated, refused, failed).",
                &["outcome"],
            )?,
            reviews_spared: counters(
                registry,
                "appset_gateway_token_reviews_spared_total",
                "How often a cluster's API server was not asked, or not waited for, by why (unlikely, throttled, busy, stood_in).",
                &["reason"],
            )?,
        })
    }

    /// What is counted of an API server's reviews, from zero.
    #[must_use]
    pub(crate) fn reviews(&self) -> ReviewMetrics {
        for outcome in ["authenticated", "refused", "failed"] {
            self.reviews.with_label_values(&[outcome]);
        }
        for reason in ["unlikely", "throttled", "busy", "stood_in"] {
            self.reviews_spared.with_label_values(&[reason]);
        }
        ReviewMetrics { done: self.reviews.clone(), spared: self.reviews_spared.clone() }
    }

    /// What is counted of the keys of `issuer`, which stands in the configuration.
    #[must_use]
    pub(crate) fn keys(&self, issuer: &str) -> KeySetMetrics {
        KeySetMetrics {
            read: self.reads.with_label_values(&[issuer, "ok"]),
            failed: self.reads.with_label_values(&[issuer, "failed"]),
            read_at: self.read_at.with_label_values(&[issuer]),
            keys: self.keys.with_label_values(&[issuer]),
        }
    }
}

impl ReviewMetrics {
    /// Notes a review that ended as `outcome`.
    pub(crate) fn reviewed(&self, outcome: &'static str) {
        self.done.with_label_values(&[outcome]).inc();
    }

    /// Notes that the API server was not asked, or its answer not waited for, because of `reason`.
    pub(crate) fn spared(&self, reason: &'static str) {
        self.spared.with_label_values(&[reason]).inc();
    }
}

impl KeySetMetrics {
    /// Notes that so many keys were read at `now`.
    pub(crate) fn read(&self, now: Timestamp, keys: usize) {
        self.read.inc();
        self.read_at.set(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX));
        self.keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    /// Notes that they could not be read.
    pub(crate) fn failed(&self) {
        self.failed.inc();
    }
}
