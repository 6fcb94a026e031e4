//! What is counted of evaluations in processes of their own.

use prometheus::{IntCounterVec, Registry};

use super::counters;

/// What is counted of evaluations in processes of their own.
#[derive(Debug, Clone)]
pub struct EvaluationMetrics(IntCounterVec);

/// What comes of evaluations.
const OUTCOMES: [&str; 8] = ["done", "wrong", "timeout", "share", "no_turn", "memory", "crashed", "unavailable"];

impl EvaluationMetrics {
    /// None yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counters = counters(
            registry,
            "appset_gateway_evaluations_total",
            "Evaluations of expressions and templates in a process of their own, by outcome: done, wrong (an error of the expression or \
             template), timeout, share (2 s while other routes waited), no_turn, memory, crashed, unavailable (none could be started).",
            &["outcome"],
        )?;
        for outcome in OUTCOMES {
            counters.with_label_values(&[outcome]);
        }
        Ok(Self(counters))
    }

    /// Notes one.
    pub(crate) fn count(&self, outcome: &str) {
        self.0.with_label_values(&[outcome]).inc();
    }
}
