//! What is counted of configurations.

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::{counters, gauge};
use crate::domain::clock::Timestamp;

/// What is counted of configurations.
#[derive(Debug, Clone)]
pub(crate) struct ReloadMetrics {
    generation: IntGauge,
    is_good: IntGauge,
    since: IntGauge,
    total: IntCounterVec,
}

impl ReloadMetrics {
    /// No configuration yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            generation: gauge(
                registry,
                "appset_gateway_config_generation",
                "How many configurations were loaded since the start.",
            )?,
            is_good: gauge(
                registry,
                "appset_gateway_config_last_reload_successful",
                "Whether the last configuration that was found could be used: 1, or 0 while the one before it is in use.",
            )?,
            since: gauge(
                registry,
                "appset_gateway_config_last_reload_success_timestamp_seconds",
                "Since when the configuration is in use, in seconds since 1970.",
            )?,
            total: counters(
                registry,
                "appset_gateway_config_reloads_total",
                "Attempts to take another configuration, by outcome: ok, failed.",
                &["outcome"],
            )?,
        };
        for outcome in ["ok", "failed"] {
            metrics.total.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Notes that the configuration with this number is in use since `at`.
    pub(crate) fn begun(&self, generation: u64, at: Timestamp) {
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.generation.set(gauge(generation));
        self.is_good.set(1);
        self.since.set(gauge(at.0 / 1000));
    }

    /// Notes that another one took its place.
    pub(crate) fn succeeded(&self, generation: u64, at: Timestamp) {
        self.begun(generation, at);
        self.total.with_label_values(&["ok"]).inc();
    }

    /// Notes that one could not be used.
    pub(crate) fn failed(&self) {
        self.is_good.set(0);
        self.total.with_label_values(&["failed"]).inc();
    }
}
