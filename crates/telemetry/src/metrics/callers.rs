//! Issuers of tokens and API servers, which authenticate callers.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::registry::{Made, Meaning, MetricRegistry, is_explained};
use domain::clock::Timestamp;

const REVIEW_OUTCOMES: [Meaning; 3] = [
    ("authenticated", "the token is valid"),
    ("refused", "the token is not valid"),
    ("failed", "the API server gave no answer"),
];

const SPARED_REASONS: [Meaning; 4] = [
    ("unlikely", "it is not a signed JWT for the gateway that is still valid"),
    ("throttled", "too many new tokens came from one address"),
    ("busy", "no review slot was free in time"),
    ("last_review", "an earlier review was used, since the API server did not answer"),
];

/// Metrics of all issuers and API servers.
#[derive(Debug, Clone)]
pub struct CallerMetrics {
    reads: IntCounterVec,
    read_at: IntGaugeVec,
    keys: IntGaugeVec,
    reviews: IntCounterVec,
    reviews_spared: IntCounterVec,
}

/// Metrics of one issuer's keys.
#[derive(Debug, Clone)]
pub struct KeySetMetrics {
    read: IntCounter,
    failed: IntCounter,
    read_at: IntGauge,
    keys: IntGauge,
}

/// Metrics of token reviews.
#[derive(Debug, Clone)]
pub struct ReviewMetrics {
    done: IntCounterVec,
    spared: IntCounterVec,
}

impl CallerMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        Ok(Self {
            reads: registry.counters(
                "appset_gateway_issuer_key_reads_total",
                "How often an issuer's keys were read, by issuer and outcome (ok, failed).",
                &["issuer", "outcome"],
            )?,
            read_at: registry.gauges(
                "appset_gateway_issuer_keys_read_timestamp_seconds",
                "When an issuer's keys were last read without an error, in seconds since 1970, or 0 before the first time.",
                &["issuer"],
            )?,
            keys: registry.gauges("appset_gateway_issuer_keys", "Keys in use, by issuer.", &["issuer"])?,
            reviews: registry.explained(
                "appset_gateway_token_reviews_total",
                "Reviews of tokens by a cluster's API server.",
                &["outcome"],
                &REVIEW_OUTCOMES,
            )?,
            reviews_spared: registry.explained(
                "appset_gateway_token_reviews_spared_total",
                "Tokens for which the gateway did not ask a cluster's API server, or did not wait for its answer.",
                &["reason"],
                &SPARED_REASONS,
            )?,
        })
    }

    /// Metrics of token reviews, from zero.
    #[must_use]
    pub fn reviews(&self) -> ReviewMetrics {
        for (outcome, _) in REVIEW_OUTCOMES {
            self.reviews.with_label_values(&[outcome]);
        }
        for (reason, _) in SPARED_REASONS {
            self.reviews_spared.with_label_values(&[reason]);
        }
        ReviewMetrics { done: self.reviews.clone(), spared: self.reviews_spared.clone() }
    }

    /// Metrics of the keys of `issuer`, a name from the configuration.
    #[must_use]
    pub fn keys(&self, issuer: &str) -> KeySetMetrics {
        KeySetMetrics {
            read: self.reads.with_label_values(&[issuer, "ok"]),
            failed: self.reads.with_label_values(&[issuer, "failed"]),
            read_at: self.read_at.with_label_values(&[issuer]),
            keys: self.keys.with_label_values(&[issuer]),
        }
    }
}

impl ReviewMetrics {
    /// Counts a review that ended as `outcome`.
    pub fn reviewed(&self, outcome: &'static str) {
        debug_assert!(is_explained(&REVIEW_OUTCOMES, outcome), "{outcome}");
        self.done.with_label_values(&[outcome]).inc();
    }

    /// Counts a token for which the API server was not called, or not waited for, because of `reason`.
    pub fn spared(&self, reason: &'static str) {
        debug_assert!(is_explained(&SPARED_REASONS, reason), "{reason}");
        self.spared.with_label_values(&[reason]).inc();
    }
}

impl KeySetMetrics {
    /// Notes that the keys were read at `now`, and how many there are.
    pub fn read(&self, now: Timestamp, keys: usize) {
        self.read.inc();
        self.read_at.set(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX));
        self.keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
    }

    /// When the keys were last read without an error, to the second.
    pub fn last_read(&self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.read_at.get()).ok().filter(|seconds| *seconds > 0)?;
        Some(Timestamp(seconds.saturating_mul(1000)))
    }

    /// Counts a failure to read the keys.
    pub fn failed(&self) {
        self.failed.inc();
    }
}
