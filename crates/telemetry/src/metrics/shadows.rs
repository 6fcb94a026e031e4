//! Comparisons of routes with their shadows.

use prometheus::IntCounterVec;

use super::registry::{Made, Meaning, MetricRegistry, is_explained};

const RESULTS: [Meaning; 5] = [
    ("same", "the candidate has the same answer"),
    ("differs", "it has another one"),
    ("candidate_error", "it has none"),
    ("primary_error", "the route's own backend has none"),
    (
        "skipped",
        "the candidate was not called, since too many comparisons were under way or no ApplicationSet sent the question",
    ),
];

/// Counts comparisons of all routes.
#[derive(Debug)]
pub struct ShadowMetrics {
    comparisons: IntCounterVec,
}

/// Counts comparisons of one route.
#[derive(Debug)]
pub struct RouteShadowMetrics {
    comparisons: IntCounterVec,
    route: String,
}

impl ShadowMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        Ok(Self {
            comparisons: registry.explained(
                "appset_gateway_shadow_comparisons_total",
                "Comparisons of a route's answers with those of its candidate, by route.",
                &["route", "result"],
                &RESULTS,
            )?,
        })
    }

    /// The metrics of `route`, at zero unless the route had a shadow before.
    #[must_use]
    pub fn of_route(&self, route: &str) -> RouteShadowMetrics {
        for (result, _) in RESULTS {
            self.comparisons.with_label_values(&[route, result]);
        }
        RouteShadowMetrics { comparisons: self.comparisons.clone(), route: route.to_owned() }
    }
}

impl RouteShadowMetrics {
    /// Counts a comparison with this `result`.
    pub fn count(&self, result: &str) {
        debug_assert!(is_explained(&RESULTS, result), "{result}");
        self.comparisons.with_label_values(&[&self.route, result]).inc();
    }
}
