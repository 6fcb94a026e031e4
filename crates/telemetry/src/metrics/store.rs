//! The shared store, as this replica sees it.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::registry::{Made, MetricRegistry};

/// The state of the shared store, and the requests to it.
#[derive(Debug, Clone)]
pub struct StoreMetrics {
    in_contact: IntGaugeVec,
    /// Replicas that are live.
    pub replicas: IntGauge,
    /// 1 while replicas restore the records that the store lost.
    pub recovering: IntGauge,
    /// 1 while an absent record may be a lost one.
    pub lossy: IntGauge,
    /// Records that could not be read. Their content is unknown.
    pub unreadable: IntCounter,
    /// Records that another key than the first made, when all were last looked through.
    pub old_keys: IntGauge,
    /// Commits that were decided again, since another one came first.
    pub conflicts: IntCounter,
    /// Requests that got nowhere, and were repeated although nothing had changed.
    pub fruitless: IntCounter,
    seconds: HistogramVec,
    errors: IntCounterVec,
}

impl StoreMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        Ok(Self {
            in_contact: registry.gauges(
                "appset_gateway_store_in_contact",
                "1 while this replica has what the shared store held a second ago. Otherwise it answers nothing. Absent without `cache.shared`.",
                &[],
            )?,
            replicas: registry
                .gauge("appset_gateway_store_replicas", "Replicas that have synced with the shared store within three seconds.")?,
            recovering: registry.gauge(
                "appset_gateway_store_recovering",
                "1 while the replicas restore what the shared store lost. Meanwhile no replica answers.",
            )?,
            lossy: registry.gauge(
                "appset_gateway_store_has_lost_records",
                "1 for seven days after the shared store lost records for good. Answers to questions without a record are held.",
            )?,
            unreadable: registry.counter(
                "appset_gateway_store_unreadable_total",
                "Records in the shared store that could not be read. Their content is unknown.",
            )?,
            old_keys: registry.gauge(
                "appset_gateway_store_old_key_records",
                "Records in the shared store under an earlier key of `cache.shared.key`, after all were brought under the first.",
            )?,
            conflicts: registry.counter(
                "appset_gateway_store_conflicts_total",
                "Commits that were decided again, because another replica had changed the record.",
            )?,
            fruitless: registry.counter(
                "appset_gateway_store_fruitless_total",
                "Requests to the shared store that got nowhere: they were refused because of a change that a sync does not bring.",
            )?,
            seconds: registry.histograms(
                "appset_gateway_store_request_duration_seconds",
                "How long requests to the shared store took, by request.",
                &["request"],
            )?,
            errors: registry.counters(
                "appset_gateway_store_errors_total",
                "Requests to the shared store that failed or took too long, by request.",
                &["request"],
            )?,
        })
    }

    /// Sets whether this replica is in contact with the store.
    pub fn set_in_contact(&self, is_in_contact: bool) {
        self.in_contact.with_label_values::<&str>(&[]).set(i64::from(is_in_contact));
    }

    /// Counts `request` from zero.
    pub fn begin(&self, request: &str) {
        self.seconds.with_label_values(&[request]);
        self.errors.with_label_values(&[request]);
    }

    /// Counts a `request`.
    pub fn requested(&self, request: &str, took: Duration, is_good: bool) {
        self.seconds.with_label_values(&[request]).observe(took.as_secs_f64());
        if !is_good {
            self.errors.with_label_values(&[request]).inc();
        }
    }
}
