//! The configuration in use, and attempts to replace it.

use prometheus::{IntCounterVec, IntGauge};

use super::registry::{Made, MetricRegistry};
use domain::clock::Timestamp;

/// Reports which configuration is in use, and counts reloads.
#[derive(Debug, Clone)]
pub struct ReloadMetrics {
    generation: IntGauge,
    is_good: IntGauge,
    since: IntGauge,
    total: IntCounterVec,
}

impl ReloadMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let metrics = Self {
            generation: registry
                .gauge("appset_gateway_config_generation", "How many configurations were loaded since the start.")?,
            is_good: registry.gauge(
                "appset_gateway_config_last_reload_successful",
                "1 if the latest configuration is in use, 0 if it was refused.",
            )?,
            since: registry.gauge(
                "appset_gateway_config_last_reload_success_timestamp_seconds",
                "When the configuration in use was loaded, in seconds since 1970.",
            )?,
            total: registry.counters(
                "appset_gateway_config_reloads_total",
                "Attempts to load another configuration, by outcome (ok, failed).",
                &["outcome"],
            )?,
        };
        for outcome in ["ok", "failed"] {
            metrics.total.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Notes that the configuration with the number `generation` is in use since `at`.
    pub fn record_start(&self, generation: u64, at: Timestamp) {
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.generation.set(gauge(generation));
        self.is_good.set(1);
        self.since.set(gauge(at.0 / 1000));
    }

    /// Counts a reload that put another configuration into use.
    pub fn succeeded(&self, generation: u64, at: Timestamp) {
        self.record_start(generation, at);
        self.total.with_label_values(&["ok"]).inc();
    }

    /// Counts a configuration that was refused.
    pub fn failed(&self) {
        self.is_good.set(0);
        self.total.with_label_values(&["failed"]).inc();
    }
}
