//! The current state of each route.

use prometheus::{IntGauge, IntGaugeVec};

use super::registry::{Made, MetricRegistry};
use domain::clock::Timestamp;

/// The states of elements.
const ELEMENT_STATES: [&str; 4] = ["present", "absent", "last_known", "unknown"];

/// Gauges of all routes, by name.
#[derive(Debug)]
pub struct RouteGauges {
    held: IntGaugeVec,
    parameter_sets: IntGaugeVec,
    last_success: IntGaugeVec,
    fallback_age: IntGaugeVec,
    ttl: IntGaugeVec,
    elements: IntGaugeVec,
}

/// Gauges of one route.
#[derive(Debug, Clone)]
pub struct RouteNow {
    /// Answers that the guard holds.
    pub held: IntGauge,
    /// Parameter sets in the answers that may be served.
    pub parameter_sets: IntGauge,
    /// Age of the oldest answer that is served while a source fails, in seconds.
    pub fallback_age: IntGauge,
    /// How long answers are fresh, in seconds.
    pub ttl: IntGauge,
    last_success: IntGauge,
}

impl RouteGauges {
    pub(super) fn new(registry: &mut MetricRegistry) -> Made<Self> {
        Ok(Self {
            held: registry.gauges("appset_gateway_held_answers", "Answers that the guard holds, by route.", &["route"])?,
            parameter_sets: registry.gauges(
                "appset_gateway_route_parameter_sets",
                "Parameter sets in the answers that may be served, by route. Of each lineage only the last answer counts.",
                &["route"],
            )?,
            last_success: registry.gauges(
                "appset_gateway_route_last_success_timestamp_seconds",
                "When a run of the route's backend last brought an accepted answer, in seconds since 1970, or 0 before the first.",
                &["route"],
            )?,
            fallback_age: registry.gauges(
                "appset_gateway_route_fallback_age_seconds",
                "Age of the oldest answer that is served because a source failed within the last hour, by route, or 0 if there is none.",
                &["route"],
            )?,
            ttl: registry.gauges(
                "appset_gateway_route_ttl_seconds",
                "How long answers of the route are fresh, as configured.",
                &["route"],
            )?,
            elements: registry.gauges(
                "appset_gateway_route_elements",
                "Elements in the answers that may be served, by route with `each`. The state is one of: present; absent; \
                 last_known (unknown, as it was last); unknown (unknown, left out).",
                &["route", "state"],
            )?,
        })
    }

    /// Sets how many elements of `route` are in each state.
    pub fn set_elements(&self, route: &str, counts: &[(&'static str, usize)]) {
        for (state, count) in counts {
            debug_assert!(ELEMENT_STATES.contains(state), "{state}");
            self.elements.with_label_values(&[route, state]).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    /// Removes the counts of the elements of `route`, whose answers are not made of elements.
    pub fn forget_elements(&self, route: &str) {
        for state in ELEMENT_STATES {
            // Fails only if there is no such gauge.
            let _ = self.elements.remove_label_values(&[route, state]);
        }
    }

    /// The gauges of `route`.
    #[must_use]
    pub fn route(&self, route: &str) -> RouteNow {
        RouteNow {
            fallback_age: self.fallback_age.with_label_values(&[route]),
            ttl: self.ttl.with_label_values(&[route]),
            held: self.held.with_label_values(&[route]),
            parameter_sets: self.parameter_sets.with_label_values(&[route]),
            last_success: self.last_success.with_label_values(&[route]),
        }
    }

    /// Removes the gauges of `route`, which is no longer configured. Otherwise its last values would look current.
    pub fn forget(&self, route: &str) {
        for gauges in [&self.held, &self.parameter_sets, &self.last_success, &self.fallback_age, &self.ttl] {
            // Fails only if there is no such gauge.
            let _ = gauges.remove_label_values(&[route]);
        }
        self.forget_elements(route);
    }
}

impl RouteNow {
    /// Notes that a run brought an accepted answer at `now`.
    pub fn succeeded(&self, now: Timestamp) {
        self.last_success.set(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX));
    }

    /// Notes that a run before the start brought an accepted answer at `at`.
    pub fn restored(&self, at: Timestamp) {
        if self.last_success().is_none_or(|last| last < at) {
            self.succeeded(at);
        }
    }

    /// When a run last brought an accepted answer, to the second. `None` if none did, or it is not known.
    pub fn last_success(&self) -> Option<Timestamp> {
        let seconds = u64::try_from(self.last_success.get()).ok().filter(|seconds| *seconds > 0)?;
        Some(Timestamp(seconds.saturating_mul(1000)))
    }
}
