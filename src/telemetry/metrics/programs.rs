//! What is counted of the programs that backends start.

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::{counters, gauge};

/// What is counted of the programs that backends start.
#[derive(Debug, Clone)]
pub(crate) struct ProgramMetrics {
    /// Programs that run, workers without a question included.
    pub(crate) running: IntGauge,
    workers_ended: IntCounterVec,
}

/// Why workers are ended, or have ended.
const WORKERS_ENDED: [&str; 5] = ["recycled", "memory", "outdated", "surplus", "fault"];

impl ProgramMetrics {
    /// None yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            running: gauge(
                registry,
                "appset_gateway_programs",
                "Programs of scripts that run, workers that wait included.",
            )?,
            workers_ended: counters(
                registry,
                "appset_gateway_workers_ended_total",
                "Workers that were replaced or given up, by reason: recycled (recycleAfter), memory (maxMemory), outdated (its \
                 program, a file or a secret changed), surplus (nothing to do), fault (it did not do as a worker should).",
                &["reason"],
            )?,
        };
        for why in WORKERS_ENDED {
            metrics.workers_ended.with_label_values(&[why]);
        }
        Ok(metrics)
    }

    /// Notes that a worker is not asked any more; `why` says it.
    pub(crate) fn worker_ended(&self, why: &'static str) {
        self.workers_ended.with_label_values(&[why]).inc();
    }
}
