//! The metrics of the engine.

use std::{collections::HashMap, sync::Arc};

use crate::{
    answer::Engine,
    cache::Usage,
    route::{Route, RouteTable},
    state::set_counts::ServedNow,
};
use telemetry::metrics::{LimitUse, SharedLimit};

impl Engine {
    /// The size of the cache in entries and bytes, and the number of runs under way, for metrics.
    pub fn observe(&self) {
        let as_gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.cache_entries.set(as_gauge(self.answers().memory().len() as u64));
        self.metrics.cache_bytes.set(as_gauge(self.answers().memory().size()));
        self.metrics.flights.set(as_gauge(self.known.flights.len() as u64));
        if let Some(contact) = self.known.peers.contact() {
            let metrics = &self.metrics.store;
            metrics.set_in_contact(contact.is_in_contact);
            metrics.replicas.set(as_gauge(contact.replicas as u64));
            metrics.recovering.set(i64::from(contact.is_recovering));
            metrics.lossy.set(i64::from(contact.has_lost_records));
        }
    }

    /// How many runs are under way.
    pub fn runs(&self) -> usize {
        self.known.flights.len()
    }

    /// Sets the metrics of each of `routes`: its held answers and its parameter sets.
    pub fn observe_routes(&self, routes: &RouteTable) {
        let now = self.clock.now();
        let mut held = HashMap::<Arc<str>, usize>::new();
        for route in self.known.held.routes(now) {
            *held.entry(route).or_default() += 1;
        }
        let (served, fallbacks) = (self.served(routes), self.oldest_fallbacks(routes));
        let as_gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for route in routes.iter() {
            let gauges = &route.metrics.now;
            gauges.held.set(as_gauge(held.get(&route.name).copied().unwrap_or_default()));
            gauges.parameter_sets.set(as_gauge(served.get(&route.name).map_or(0, |served| served.sets)));
            gauges.ttl.set(i64::try_from(route.policy.ttl().as_secs()).unwrap_or(i64::MAX));
            let age = fallbacks.get(&route.name).and_then(|oldest| now.since(*oldest));
            gauges.fallback_age.set(i64::try_from(age.unwrap_or_default().as_secs()).unwrap_or(i64::MAX));
            self.observe_elements(route, served.get(&route.name));
            self.observe_limits(route);
        }
        // A run may hold an answer again just now. What it writes must not be erased after it.
        let _deciding = self.known.deciding.lock();
        self.known.erase_forgotten();
    }

    /// Sets how many elements the answers of `route` have, if they are made of elements. A reload may have changed that.
    fn observe_elements(&self, route: &Route, served: Option<&ServedNow>) {
        let counts = served.map(|served| served.elements).unwrap_or_default();
        if route.parts.is_some() {
            self.metrics.routes.set_elements(&route.name, &counts.by_name());
        } else {
            self.metrics.routes.forget_elements(&route.name);
        }
    }

    /// Sets the metrics of how much `route` uses of the limits that routes share.
    fn observe_limits(&self, route: &Route) {
        let (id, route) = (route.id(), &*route.name);
        let of = |(usage, share): (Usage, u64)| LimitUse {
            records: usage.records,
            bytes: usage.weight,
            share,
            evicted: usage.left,
        };
        let limits = &self.metrics.limits;
        limits.set(route, SharedLimit::Memory, of(self.answers().memory().usage(id)));
        limits.set(route, SharedLimit::Baselines, of(self.known.baselines.usage(id)));
        limits.set(route, SharedLimit::Held, of(self.known.held.usage(id)));
        if let Some(disk) = self.answers().disk() {
            limits.set(route, SharedLimit::File, of(disk.usage(id)));
            limits.set(route, SharedLimit::Marks, of(disk.marks(id)));
        }
    }

    /// The last answers that each of `routes` serves.
    #[must_use]
    pub fn served(&self, routes: &RouteTable) -> HashMap<Arc<str>, ServedNow> {
        self.known.served.count(routes, self.clock.now())
    }
}
