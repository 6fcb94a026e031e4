//! The configuration of the gateways: five routes, whose settings and names operators change.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use crate::{sources::Sources, truth::Set};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    units::HumanDuration,
};
use engine::{
    guard::Guard,
    route::{Accepts, Origin, Route, RouteParts, RouteTable},
    shape::{Nulls, Shape, ShapeConfig},
};
use lang::{evaluator::Evaluator, scope::NameScope};
use telemetry::metrics::Metrics;

/// A configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// How often it was changed.
    pub generation: u32,
    /// How often each route was renamed.
    pub names: [u32; Set::COUNT],
}

impl Settings {
    /// The name of the route of `set`.
    pub fn route(&self, set: Set) -> String {
        named(set, self.names[set as usize])
    }

    /// How long the answers of `set` are fresh, in seconds.
    fn ttl(&self, set: Set) -> u64 {
        match set {
            Set::Regions => 0,
            Set::Tenants | Set::Edges | Set::Previews | Set::Pulls => 60 + u64::from(self.generation % 3) * 20,
        }
    }

    /// For how long an outdated answer of `set` is still served while another is made, in seconds.
    pub const fn stale(set: Set) -> u64 {
        match set {
            Set::Regions => 0,
            Set::Tenants | Set::Edges | Set::Previews | Set::Pulls => 300,
        }
    }

    /// How long a loss of `set` must be confirmed, in seconds; 0 if only an operator accepts it.
    pub const fn confirmed(set: Set) -> u64 {
        match set {
            Set::Tenants | Set::Pulls => 60,
            Set::Regions => 120,
            Set::Edges | Set::Previews => 0,
        }
    }

    fn document(&self, set: Set) -> Value {
        let rule = if Self::confirmed(set) == 0 { "keep" } else { "confirm" };
        // The loss of one element is held too: a source that is wrong about one is believed otherwise.
        let shrink = if matches!(set, Set::Edges | Set::Pulls) { "0%" } else { "30%" };
        let identity =
            if matches!(set, Set::Regions | Set::Edges | Set::Pulls) { json!(["name"]) } else { json!("auto") };
        let mut document = json!({
            "name": self.route(set),
            "cache": {
                "ttl": format!("{}s", self.ttl(set)),
                "staleWhileRevalidate": format!("{}s", Self::stale(set)),
                // A commit whose build fails may be the head for days.
                "staleIfError": if set == Set::Previews { "168h" } else { "24h" },
                "prefetch": true,
            },
            "guard": {
                "onEmpty": rule, "onShrink": rule, "maxShrink": shrink, "identity": identity,
                "confirmAfter": if set == Set::Regions { 3 } else { 2 },
                "confirmFor": format!("{}s", Self::confirmed(set).max(60)),
            },
        });
        if set == Set::Previews {
            document["lineage"] = json!(["branch"]);
        }
        document
    }

    /// The routes over `sources`.
    ///
    /// # Panics
    /// When the simulation's own configuration has problems.
    pub fn routes(&self, sources: &Arc<Sources>, metrics: &Metrics) -> RouteTable {
        RouteTable::new(Set::ALL.iter().map(|set| Arc::new(self.route_of(*set, sources, metrics))).collect())
    }

    fn route_of(&self, set: Set, sources: &Arc<Sources>, metrics: &Metrics) -> Route {
        let (raw, path, mut problems) = (self.document(set), Path::root(), Problems::default());
        let guard = read(&raw, "guard");
        let shape = ShapeConfig { output: None, echo: &[], stringify: true, nulls: Nulls::default() };
        let name = self.route(set);
        let formerly = (0..self.names[set as usize]).rev().map(|number| named(set, number).into()).collect();
        let route = Route::new(RouteParts {
            metrics: metrics.route(&name, "simulated"),
            name,
            formerly,
            kind: "simulated",
            backend: sources.backend(set),
            matcher: None,
            input: Accepts::All,
            shape: Shape::build(shape, &NameScope::input(), &Evaluator::none(), &path, &mut problems),
            cache: read(&raw, "cache"),
            lineage: read(&raw, "lineage"),
            guard: Guard::build(&guard, &path.key("guard"), &mut problems),
            deadline: Duration::from_secs(25),
            shadow: None,
            origin: Origin { raw, base: BaseDir::default(), deadline: HumanDuration::from_secs(25), package: None },
        });
        assert!(problems.into_vec().is_empty(), "the simulation's own configuration has problems");
        route
    }
}

/// How often the ApplicationSet of `set` asks.
pub const fn requeue(set: Set) -> Duration {
    Duration::from_secs(match set {
        Set::Tenants | Set::Previews => 180,
        Set::Regions | Set::Pulls => 300,
        Set::Edges => 600,
    })
}

fn named(set: Set, number: u32) -> String {
    if number == 0 { set.name().to_owned() } else { format!("{}-v{number}", set.name()) }
}

/// A part of the configuration.
fn read<T: serde::de::DeserializeOwned + Default>(raw: &Value, part: &str) -> T {
    let Some(value) = raw.get(part).cloned() else { return T::default() };
    serde_json::from_value(value).unwrap_or_else(|error| panic!("the simulation's own {part}: {error}"))
}
