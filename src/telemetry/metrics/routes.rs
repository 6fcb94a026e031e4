//! What each route answers with just now.

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

use crate::domain::clock::Timestamp;

/// What each route answers with just now, by the names of the configuration.
#[derive(Debug)]
pub(crate) struct RouteGauges {
    held: IntGaugeVec,
    parameter_sets: IntGaugeVec,
    last_success: IntGaugeVec,
}

/// What one route answers with just now.
#[derive(Debug)]
pub(crate) struct RouteNow {
    /// Answers that the guard holds.
    pub(crate) held: IntGauge,
    /// Parameter sets in its answers.
    pub(crate) parameter_sets: IntGauge,
    last_success: IntGauge,
}

impl RouteGauges {
    /// No route yet.
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauges = |name: &str, help: &str| -> Result<IntGaugeVec, prometheus::Error> {
            let gauges = IntGaugeVec::new(Opts::new(name, help), &["route"])?;
            registry.register(Box::new(gauges.clone()))?;
            Ok(gauges)
        };
        Ok(Self {
            held: gauges("appset_gateway_held_answers", "Answers that the guard does not believe yet, by route.")?,
            parameter_sets: gauges(
                "appset_gateway_route_parameter_sets",
                "Parameter sets in the answers that may be served, by route; of questions with a lineage, the last answer.",
            )?,
            last_success: gauges(
                "appset_gateway_route_last_success_timestamp_seconds",
                "When a run of the route's backend last brought an answer that was believed, in seconds since 1970; 0 when none did since the start.",
            )?,
        })
    }

    /// Those of `route`.
    #[must_use]
    pub(crate) fn route(&self, route: &str) -> RouteNow {
        RouteNow {
            held: self.held.with_label_values(&[route]),
            parameter_sets: self.parameter_sets.with_label_values(&[route]),
            last_success: self.last_success.with_label_values(&[route]),
        }
    }

    /// Tells nothing more of `route`, which is no longer configured: its last values would be taken for what is.
    pub(crate) fn forget(&self, route: &str) {
        for gauges in [&self.held, &self.parameter_sets, &self.last_success] {
            // It fails where there is none.
            let _ = gauges.remove_label_values(&[route]);
        }
    }
}

impl RouteNow {
    /// Notes that a run brought an answer at `now` that is believed.
    pub(crate) fn succeeded(&self, now: Timestamp) {
        self.last_success.set(i64::try_from(now.0 / 1000).unwrap_or(i64::MAX));
    }
}
