//! Builds all routes of a configuration, and checks their names and conditions against each other.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;

use super::{
    RouteConfig,
    build::{Defaults, build_route, check_name},
    former::{self, Claim},
    matching::MatchConfig,
};
use backend::Building;
use domain::{problem::Problems, units::HumanDuration};
use engine::route::{Route, RouteTable};
use telemetry::metrics::Metrics;

/// Takes the configurations of routes one after the other, in the order in which the routes are tried.
pub(crate) struct RouteTableBuilder<'a> {
    defaults: Defaults<'a>,
    routes: Vec<Arc<Route>>,
    /// The former names of all added routes, including invalid ones.
    claims: Vec<Claim>,
    /// The names of all added routes, including invalid ones.
    names: HashSet<String>,
    /// The names and conditions of the routes that take calls without a name.
    taken: Vec<(String, MatchConfig)>,
}

impl<'a> RouteTableBuilder<'a> {
    /// Without routes yet. `deadline` is the server's.
    #[must_use]
    pub(crate) fn new(deadline: HumanDuration, metrics: &'a Metrics) -> Self {
        Self {
            defaults: Defaults { deadline, metrics },
            routes: Vec::new(),
            claims: Vec::new(),
            names: HashSet::new(),
            taken: Vec::new(),
        }
    }

    /// Builds the routes of the list `configs`. `raw` is the list as it is in the configuration. A route whose revision changed serves none of
    /// its earlier answers.
    pub(crate) fn add_all(&mut self, configs: &[RouteConfig], raw: &[Value], building: &mut Building<'_>) {
        for (index, config) in configs.iter().enumerate() {
            self.add(config, raw.get(index).unwrap_or(&Value::Null), &mut building.index(index));
        }
    }

    /// Builds one more route.
    pub(crate) fn add(&mut self, config: &RouteConfig, raw: &Value, building: &mut Building<'_>) {
        check_name(config, !self.names.insert(config.name.clone()), &mut building.key("name"));
        if let Some(names) = &config.formerly {
            self.claims.extend(Claim::all(names, &config.name, &building.path.key("formerly")));
        }
        if let Some(matches) = &config.matches {
            self.check_match(matches, &mut building.key("match"));
            self.taken.push((config.name.clone(), matches.clone()));
        }
        let route = build_route(config, raw, self.defaults, building);
        self.routes.extend(route.map(Arc::new));
    }

    /// Whether no route was ever added, not even an invalid one.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The table. Notes former names that a route still has, or that two routes claim.
    #[must_use]
    pub(crate) fn finish(self, problems: &mut Problems) -> RouteTable {
        former::check(&self.claims, &self.names, problems);
        RouteTable::new(self.routes)
    }

    /// Warns if an earlier route takes all calls that `matches` takes.
    fn check_match(&self, matches: &MatchConfig, building: &mut Building<'_>) {
        let Some((first, earlier)) = self.taken.iter().find(|(_, earlier)| earlier.covers(matches)) else { return };
        let (what, help) = if earlier.takes_everything() {
            ("every call", "routes are tried in the order of the file; move the one that takes all to the end")
        } else {
            ("all of these calls", "routes are tried in the order of the file; move the narrower one up")
        };
        building.warning(format!("never used: the route `{first}` before it takes {what}"), help);
    }
}
