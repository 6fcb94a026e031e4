//! Programs that backends start.

use prometheus::{IntCounterVec, IntGauge};

use super::registry::{Made, Meaning, MetricRegistry, is_explained};

const REASONS: [Meaning; 5] = [
    ("recycled", "it had answered recycleAfter questions"),
    ("memory", "it used more than maxMemory"),
    ("outdated", "its program, a file or a secret has changed"),
    ("surplus", "it had nothing to do"),
    ("fault", "it broke the protocol of workers"),
];

/// Counts programs that run, and workers that ended.
#[derive(Debug, Clone)]
pub struct ProgramMetrics {
    /// How many programs run now.
    pub running: IntGauge,
    workers_ended: IntCounterVec,
}

impl ProgramMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let metrics = Self {
            running: registry
                .gauge("appset_gateway_programs", "Programs of scripts that run, idle workers included.")?,
            workers_ended: registry.explained(
                "appset_gateway_workers_ended_total",
                "Workers that were replaced or given up.",
                &["reason"],
                &REASONS,
            )?,
        };
        for (reason, _) in REASONS {
            metrics.workers_ended.with_label_values(&[reason]);
        }
        Ok(metrics)
    }

    /// Counts a worker that gets no further question, because of `reason`.
    pub fn worker_ended(&self, reason: &'static str) {
        debug_assert!(is_explained(&REASONS, reason), "{reason}");
        self.workers_ended.with_label_values(&[reason]).inc();
    }
}
