//! Deliveries of hooks, and the rechecks that they lead to.

use prometheus::{IntCounter, IntCounterVec};

use super::registry::{Made, Meaning, MetricRegistry, is_explained};

const OUTCOMES: [Meaning; 6] = [
    ("taken", "the questions that it concerns are rechecked"),
    ("ignored", "it names nothing that an answer could depend on"),
    ("duplicate", "a delivery with the same id came before"),
    ("unproven", "its signature or token is missing or wrong"),
    ("malformed", "it is not what the sender sends, or too large"),
    ("refused", "too many events wait"),
];

const RECHECKS: [Meaning; 4] = [
    ("changed", "there is another answer"),
    ("unchanged", "the answer is the same"),
    ("held", "the guard holds the answer"),
    ("failed", "there is no answer"),
];

/// Counts deliveries by hook and [outcome](OUTCOMES), and rechecks by [result](RECHECKS).
#[derive(Debug, Clone)]
pub struct HookMetrics {
    deliveries: IntCounterVec,
    questions: IntCounter,
    rechecks: IntCounterVec,
}

impl HookMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        let rechecks = registry.explained(
            "appset_gateway_hook_rechecks_total",
            "Questions that were rechecked after an event.",
            &["result"],
            &RECHECKS,
        )?;
        for (result, _) in RECHECKS {
            rechecks.with_label_values(&[result]);
        }
        Ok(Self {
            deliveries: registry.explained(
                "appset_gateway_hook_deliveries_total",
                "Deliveries of hooks, by hook.",
                &["hook", "outcome"],
                &OUTCOMES,
            )?,
            questions: registry
                .counter("appset_gateway_hook_questions_total", "Known questions that events concerned.")?,
            rechecks,
        })
    }

    /// Creates the counters of `hook`.
    pub fn of(&self, hook: &str) {
        for (outcome, _) in OUTCOMES {
            self.deliveries.with_label_values(&[hook, outcome]);
        }
    }

    /// Counts a delivery.
    pub fn delivered(&self, hook: &str, outcome: &str) {
        debug_assert!(is_explained(&OUTCOMES, outcome), "{outcome}");
        self.deliveries.with_label_values(&[hook, outcome]).inc();
    }

    /// Counts questions that events concerned.
    pub fn concerned(&self, questions: usize) {
        self.questions.inc_by(questions as u64);
    }

    /// Counts a recheck.
    pub fn rechecked(&self, result: &str) {
        debug_assert!(is_explained(&RECHECKS, result), "{result}");
        self.rechecks.with_label_values(&[result]).inc();
    }
}
