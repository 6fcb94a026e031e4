//! All routes of a configuration: picks the route that answers a call, and carries routes over a reload.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::{
    Route, RouteConfig,
    build::{build_route, check_name},
    matching::{MatchConfig, Matcher},
};
#[cfg(test)]
use crate::backend::Backend;
use crate::{
    backend::BuildContext,
    domain::{
        error::BackendError,
        generator::Query,
        problem::{Path, Problems},
        units::HumanDuration,
    },
    telemetry::metrics::Metrics,
};

/// All routes.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<Arc<Route>>,
    by_name: HashMap<Arc<str>, Arc<Route>>,
    /// The names of all added routes, including invalid ones.
    names: HashSet<String>,
    /// The names and conditions of the routes that take calls without a name.
    taken: Vec<(String, MatchConfig)>,
}

impl RouteTable {
    /// Builds all routes. `raw` is the list as it is in the configuration. A route whose revision changed
    /// serves none of its earlier answers.
    pub(crate) fn build(
        configs: &[RouteConfig],
        raw: &[Value],
        deadline: HumanDuration,
        around: BuildContext<'_>,
        metrics: &Metrics,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let mut table = Self { routes: Vec::new(), by_name: HashMap::new(), names: HashSet::new(), taken: Vec::new() };
        for (index, config) in configs.iter().enumerate() {
            let raw = raw.get(index).unwrap_or(&Value::Null);
            table.add(config, raw, deadline, around, metrics, &path.index(index), problems);
        }
        table
    }

    /// Builds one more route, whose configuration is at `path`.
    #[expect(clippy::too_many_arguments, reason = "they are those of `build`")]
    pub(crate) fn add(
        &mut self,
        config: &RouteConfig,
        raw: &Value,
        deadline: HumanDuration,
        around: BuildContext<'_>,
        metrics: &Metrics,
        path: &Path,
        problems: &mut Problems,
    ) {
        check_name(config, !self.names.insert(config.name.clone()), path, problems);
        if let Some(matches) = &config.matches {
            self.check_match(matches, &path.key("match"), problems);
            self.taken.push((config.name.clone(), matches.clone()));
        }
        if let Some(route) = build_route(config, raw, deadline, around, metrics, path, problems) {
            let route = Arc::new(route);
            self.by_name.insert(Arc::clone(&route.name), Arc::clone(&route));
            self.routes.push(route);
        }
    }

    /// Warns if an earlier route takes all calls that `matches` takes.
    fn check_match(&self, matches: &MatchConfig, path: &Path, problems: &mut Problems) {
        let Some((first, earlier)) = self.taken.iter().find(|(_, earlier)| earlier.covers(matches)) else { return };
        let (what, help) = if earlier.takes_everything() {
            ("every call", "routes are tried in the order of the file; move the one that takes all to the end")
        } else {
            ("all of these calls", "routes are tried in the order of the file; move the narrower one up")
        };
        problems.warning(path, format!("never used: the route `{first}` before it takes {what}"), help);
    }

    /// The route called `name`.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Route>> {
        self.by_name.get(name)
    }

    /// The route that takes a call: the first route without a command whose `match` fits, else the first route with a command
    /// whose `match` fits and whose command takes the call.
    ///
    /// # Errors
    /// When a command gives no answer, with its route. A later route must not answer in its place.
    pub(crate) async fn by_match(&self, query: &Query) -> Result<Option<&Arc<Route>>, (Arc<Route>, BackendError)> {
        let fits = |matcher: &Matcher| matcher.fits(query);
        let all = || self.routes.iter().filter_map(|route| Some((route, route.matcher.as_ref()?)));
        if let Some((route, _)) = all().find(|(_, matcher)| !matcher.must_look() && fits(matcher)) {
            return Ok(Some(route));
        }
        for (route, matcher) in all().filter(|(_, matcher)| matcher.must_look() && fits(matcher)) {
            // Rare, and larger than the rest of a request.
            if Box::pin(matcher.looks(query)).await.map_err(|error| (Arc::clone(route), error))? {
                return Ok(Some(route));
            }
        }
        Ok(None)
    }

    /// Whether `query` comes to the route `name` if the path names no route, as far as that is known without running a command.
    #[must_use]
    pub(crate) fn is_matched(&self, name: &str, query: &Query) -> bool {
        let fitting = |must_look: bool| {
            self.routes.iter().filter(move |route| {
                route.matcher.as_ref().is_some_and(|matcher| matcher.must_look() == must_look && matcher.fits(query))
            })
        };
        match fitting(false).next() {
            Some(first) => *first.name == *name,
            None => fitting(true).any(|route| *route.name == *name),
        }
    }

    /// Takes over the routes of `before` that have the same configuration, with their state. Returns how many.
    pub(crate) fn keep(&mut self, before: &Self) -> usize {
        let mut kept = 0;
        for route in &mut self.routes {
            if let Some(same) = before.by_name(&route.name).filter(|before| before.origin == route.origin) {
                *route = Arc::clone(same);
                self.by_name.insert(Arc::clone(&route.name), Arc::clone(same));
                kept += 1;
            }
        }
        kept
    }

    /// The routes that were not taken over from `before`.
    pub(crate) fn new_beside(&self, before: &Self) -> impl Iterator<Item = &Arc<Route>> {
        let is_new = |route: &&Arc<Route>| before.by_name(&route.name).is_none_or(|before| !Arc::ptr_eq(before, route));
        self.routes.iter().filter(is_new)
    }

    /// Replaces the backend of all routes, which must not be in use yet.
    #[cfg(test)]
    pub(crate) fn replace_backends(&mut self, backend: &Arc<dyn Backend>) {
        self.by_name.clear();
        for route in &mut self.routes {
            if let Some(route) = Arc::get_mut(route) {
                route.backend = Arc::clone(backend);
            }
            self.by_name.insert(Arc::clone(&route.name), Arc::clone(route));
        }
    }

    /// Whether no route was ever added.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// All routes in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter()
    }
}
