//! All routes of a configuration: picks the route that answers a call, and carries routes over a reload.

use std::{collections::HashMap, sync::Arc};

use crate::route::{Route, matching::Matcher};
use domain::{error::BackendError, generator::Query};
#[cfg(feature = "testing")]
use source::Backend;

/// All routes.
#[derive(Debug)]
pub struct RouteTable {
    routes: Vec<Arc<Route>>,
    by_name: HashMap<Arc<str>, Arc<Route>>,
    /// By each former name.
    by_former_name: HashMap<Arc<str>, Arc<Route>>,
}

impl RouteTable {
    /// The table of `routes`, in the order in which they are tried.
    #[must_use]
    pub fn new(routes: Vec<Arc<Route>>) -> Self {
        let by_name = routes.iter().map(|route| (Arc::clone(&route.name), Arc::clone(route))).collect();
        let of_former_names = |route: &Arc<Route>| {
            let names: Vec<Arc<str>> = route.formerly().to_vec();
            let route = Arc::clone(route);
            names.into_iter().map(move |name| (name, Arc::clone(&route)))
        };
        let by_former_name = routes.iter().flat_map(of_former_names).collect();
        Self { routes, by_name, by_former_name }
    }

    /// The route called `name`.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<Route>> {
        self.by_name.get(name)
    }

    /// The route that answers questions to the route `name`, which may be a former name.
    #[must_use]
    pub(crate) fn by_any_name(&self, name: &str) -> Option<&Arc<Route>> {
        self.by_name(name).or_else(|| self.by_former_name.get(name))
    }

    /// The route that takes a call: the first route without a command whose `match` fits, else the first route with a command
    /// whose `match` fits and whose command takes the call.
    ///
    /// # Errors
    /// When a command gives no answer, with its route. A later route must not answer in its place.
    pub async fn by_match(&self, query: &Query) -> Result<Option<&Arc<Route>>, (Arc<Route>, BackendError)> {
        let fits = |matcher: &Matcher| matcher.fits(query);
        let all = || self.routes.iter().filter_map(|route| Some((route, route.matcher.as_ref()?)));
        if let Some((route, _)) = all().find(|(_, matcher)| !matcher.needs_file() && fits(matcher)) {
            return Ok(Some(route));
        }
        for (route, matcher) in all().filter(|(_, matcher)| matcher.needs_file() && fits(matcher)) {
            // Rare, and larger than all else of a request.
            if Box::pin(matcher.finds(query)).await.map_err(|error| (Arc::clone(route), error))? {
                return Ok(Some(route));
            }
        }
        Ok(None)
    }

    /// The route that takes `query` if the path names no route, as far as that is known without running a command.
    #[must_use]
    pub(crate) fn probably_matched(&self, query: &Query) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| self.is_matched(&route.name, query))
    }

    /// Whether `query` comes to the route `name` if the path names no route, as far as that is known without running a command.
    #[must_use]
    pub fn is_matched(&self, name: &str, query: &Query) -> bool {
        let fitting = |needs_file: bool| {
            self.routes.iter().filter(move |route| {
                route.matcher.as_ref().is_some_and(|matcher| matcher.needs_file() == needs_file && matcher.fits(query))
            })
        };
        match fitting(false).next() {
            Some(first) => *first.name == *name,
            None => fitting(true).any(|route| *route.name == *name),
        }
    }

    /// Takes over the routes of `before` that have the same configuration, with their state. Returns how many.
    pub fn keep(&mut self, before: &Self) -> usize {
        let mut kept = 0;
        let mut routes = std::mem::take(&mut self.routes);
        for route in &mut routes {
            if let Some(same) = before.by_name(&route.name).filter(|before| before.origin == route.origin) {
                *route = Arc::clone(same);
                kept += 1;
            }
        }
        *self = Self::new(routes);
        kept
    }

    /// The routes that were not taken over from `before`.
    pub fn new_beside(&self, before: &Self) -> impl Iterator<Item = &Arc<Route>> {
        let is_new = |route: &&Arc<Route>| before.by_name(&route.name).is_none_or(|before| !Arc::ptr_eq(before, route));
        self.routes.iter().filter(is_new)
    }

    /// Replaces the backend of all routes, which must not be in use yet.
    #[cfg(feature = "testing")]
    pub fn replace_backends(&mut self, backend: &Arc<dyn Backend>) {
        self.by_name.clear();
        for route in &mut self.routes {
            if let Some(route) = Arc::get_mut(route) {
                route.replace_backend(backend);
            }
            self.by_name.insert(Arc::clone(&route.name), Arc::clone(route));
        }
    }

    /// All routes in the order of the configuration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.routes.iter()
    }
}
