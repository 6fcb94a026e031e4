//! The current state of each route.

use prometheus::{IntGauge, IntGaugeVec};

use super::registry::{Made, MetricRegistry};
use crate::domain::clock::Timestamp;

/// Gauges of all routes, by name.
#[derive(Debug)]
pub(crate) struct RouteGauges {
    held: IntGaugeVec,
    parameter_sets: IntGaugeVec,
    last_success: IntGaugeVec,
}

/// Gauges of one route.
#[derive(Debug)]
pub(crate) struct RouteNow {
    /// Answers that the guard holds.
    pub(crate) held: IntGauge,
    /// Parameter sets in the answers that may be served.
    pub(crate) parameter_sets: IntGauge,
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
        })
    }

    /// The gauges of `route`.
    #[must_use]
    pub(crate) fn route(&self, route: &str) -> RouteNow {
        RouteNow {
            held: self.held.with_label_values(&[route]),
            parameter_sets: self.parameter_sets.with_label_values(&[route]),
            last_success: self.last_success.with_label_values(&[route]),
        }
    }

    /// Removes the gauges of `route`, which is no longer configured. Otherwise its last values would look current.
    pub(crate) fn forget(&self, route: &str) {
        for gauges in [&self.held, &self.parameter_sets, &self.last_success] {
            // Fails only if there is no such gauge.
            let _ = gauges.remove_label_values(&[route]);
        }
    }
}

impl RouteNow {
    /// Notes that a run brought an accepted answer at `now`.
    pub(crate) fn succeeded(&self, now: Timestamp) {
        self.last_success.set(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX));
    }
}
