//! Notifications of ApplicationSets.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec};

use super::registry::{Made, Meaning, MetricRegistry, is_explained};

const RESULTS: [Meaning; 4] = [
    ("annotated", "Argo CD reconciles it now"),
    ("unknown", "no ApplicationSet of this name asks this gateway"),
    ("unlisted", "the list of ApplicationSets lacks it, and is read again first"),
    ("failed", "the API server did not take it"),
];

const RECORDED: [Meaning; 2] =
    [("written", "it is there, or was counted"), ("failed", "the API server did not take it")];

/// Counts refreshes of ApplicationSets by [result](RESULTS), and Kubernetes Events.
#[derive(Debug, Clone)]
pub struct RefreshMetrics {
    refreshes: IntCounterVec,
    seconds: Histogram,
    after_event: Histogram,
    dropped: IntCounter,
    events: IntCounterVec,
}

impl RefreshMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let metrics = Self {
            refreshes: registry.explained(
                "appset_gateway_refreshes_total",
                "Attempts to notify an ApplicationSet of another answer.",
                &["result"],
                &RESULTS,
            )?,
            seconds: registry
                .histograms(
                    "appset_gateway_refresh_duration_seconds",
                    "How long it took from another answer until its ApplicationSet was notified.",
                    &[],
                )?
                .with_label_values::<&str>(&[]),
            after_event: registry
                .histograms(
                    "appset_gateway_event_to_refresh_duration_seconds",
                    "How long it took from an event of a hook until an ApplicationSet was notified of the other answer that it led to.",
                    &[],
                )?
                .with_label_values::<&str>(&[]),
            dropped: registry.counter(
                "appset_gateway_refreshes_dropped_total",
                "Changes of which ApplicationSets were not notified: after many attempts, because too many waited, or at the end.",
            )?,
            events: registry.explained(
                "appset_gateway_kubernetes_events_total",
                "Kubernetes Events on ApplicationSets.",
                &["result"],
                &RECORDED,
            )?,
        };
        for (result, _) in RESULTS {
            metrics.refreshes.with_label_values(&[result]);
        }
        for (result, _) in RECORDED {
            metrics.events.with_label_values(&[result]);
        }
        Ok(metrics)
    }

    /// Counts an attempt with this `result`, so long after it was wanted.
    pub fn ended(&self, result: &str, took: Duration) {
        debug_assert!(is_explained(&RESULTS, result), "{result}");
        self.refreshes.with_label_values(&[result]).inc();
        if result == "annotated" {
            self.seconds.observe(took.as_secs_f64());
        }
    }

    /// Notes that an ApplicationSet was notified so long after an event.
    pub fn after_event(&self, after: Duration) {
        self.after_event.observe(after.as_secs_f64());
    }

    /// Counts changes of which ApplicationSets are not notified.
    pub fn dropped(&self, count: usize) {
        self.dropped.inc_by(count as u64);
    }

    /// Counts a Kubernetes Event.
    pub fn recorded(&self, is_written: bool) {
        self.events.with_label_values(&[if is_written { "written" } else { "failed" }]).inc();
    }
}
