//! Evaluations of expressions and templates in evaluators.

use prometheus::IntCounterVec;

use super::registry::{Made, Meaning, MetricRegistry, is_explained};

const OUTCOMES: [Meaning; 8] = [
    ("done", "it gave a result"),
    ("wrong", "an error in the expression or template"),
    ("timeout", "the deadline passed"),
    ("share", "it took 2 s while other routes waited"),
    ("no_permit", "no evaluator was free before the deadline"),
    ("memory", "it needed too much memory"),
    ("crashed", "the evaluator ended"),
    ("unavailable", "no evaluator could be started"),
];

/// Counts evaluations by [outcome](OUTCOMES).
#[derive(Debug, Clone)]
pub struct EvaluationMetrics(IntCounterVec);

impl EvaluationMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let counters = registry.explained(
            "appset_gateway_evaluations_total",
            "Evaluations of expressions and templates in a process of their own.",
            &["outcome"],
            &OUTCOMES,
        )?;
        for (outcome, _) in OUTCOMES {
            counters.with_label_values(&[outcome]);
        }
        Ok(Self(counters))
    }

    /// Counts an evaluation that ended as `outcome`.
    pub fn count(&self, outcome: &str) {
        debug_assert!(is_explained(&OUTCOMES, outcome), "{outcome}");
        self.0.with_label_values(&[outcome]).inc();
    }
}
