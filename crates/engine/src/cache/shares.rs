//! A limit that routes share, so that no route can evict the records of another. It is used for answers in memory and in the
//! file, for baselines, for held answers and for failures.
//!
//! The unused part of a share is lent to other routes. When the limit is reached, the route that uses the most loses its own records, the
//! least recently used first. So a route keeps at least the limit divided by the number of routes that use it, whatever
//! the others do (max-min fairness), and a single route may use all of it.
//!
//! Each record's key contains its route ([`OfRoute`]). Nothing here takes a lock: the owner has one.

#[cfg(test)]
mod tests;

use std::{collections::HashMap, fmt, hash::Hash};

use foldhash::quality::RandomState;
use lru::LruCache;

use crate::cache::{Key, RouteId};

/// A key that contains the route of its record.
pub trait OfRoute: Hash + Eq + Clone {
    /// The route.
    fn route(&self) -> RouteId;
}

impl OfRoute for Key {
    fn route(&self) -> RouteId {
        Self::route(self)
    }
}

/// The use of the limit by a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many records.
    pub records: u64,
    /// How much they weigh together.
    pub weight: u64,
    /// How many of its records were evicted since the start.
    pub left: u64,
}

/// The records of all routes, and the limit that they share.
pub struct Shares<K, V> {
    max: u64,
    weight: u64,
    routes: HashMap<RouteId, Records<K, V>, RandomState>,
    /// How many records of each route were evicted.
    left: HashMap<RouteId, u64, RandomState>,
}

/// The records of one route.
struct Records<K, V> {
    by_use: LruCache<K, Stored<V>, RandomState>,
    weight: u64,
}

struct Stored<V> {
    value: V,
    weight: u64,
}

impl<K: OfRoute, V> Shares<K, V> {
    /// Records that weigh at most `max` together.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { max, weight: 0, routes: HashMap::default(), left: HashMap::default() }
    }

    /// Changes the limit. Nothing is evicted before [`Self::next`] is called.
    pub fn resize(&mut self, max: u64) {
        self.max = max;
    }

    /// Whether a record that weighs so much could be kept at all.
    #[must_use]
    pub fn fits(&self, weight: u64) -> bool {
        weight <= self.max
    }

    /// The record under `key`, which counts as used.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.routes.get_mut(&key.route())?.by_use.get(key).map(|stored| &stored.value)
    }

    /// The record under `key`. This does not count as a use.
    #[must_use]
    pub fn peek(&self, key: &K) -> Option<&V> {
        self.routes.get(&key.route())?.by_use.peek(key).map(|stored| &stored.value)
    }

    /// The record under `key`, to be changed. This does not count as a use.
    pub(crate) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.routes.get_mut(&key.route())?.by_use.peek_mut(key).map(|stored| &mut stored.value)
    }

    /// How much the record under `key` weighs.
    #[must_use]
    pub(crate) fn weight_of(&self, key: &K) -> Option<u64> {
        self.routes.get(&key.route())?.by_use.peek(key).map(|stored| stored.weight)
    }

    /// Stores a record, which counts as used. Returns the one that it replaces. Nothing is evicted before [`Self::next`] is called.
    pub fn put(&mut self, key: K, value: V, weight: u64) -> Option<V> {
        let records = self.routes.entry(key.route()).or_default();
        let replaced = records.by_use.put(key, Stored { value, weight });
        let before = replaced.as_ref().map_or(0, |stored| stored.weight);
        records.weight = records.weight - before + weight;
        self.weight = self.weight - before + weight;
        replaced.map(|stored| stored.value)
    }

    /// Stores a record, and returns the evicted records. The new record is returned too if it exceeds the limit.
    pub fn insert(&mut self, key: K, value: V, weight: u64) -> Vec<(K, V)> {
        if !self.fits(weight) {
            self.remove(&key);
            self.note_left(key.route());
            return vec![(key, value)];
        }
        self.put(key, value, weight);
        std::iter::from_fn(|| self.next(|_, _| false)).collect()
    }

    /// Removes the record under `key`.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let route = key.route();
        let records = self.routes.get_mut(&route)?;
        let stored = records.by_use.pop(key)?;
        records.weight -= stored.weight;
        self.weight -= stored.weight;
        if records.by_use.is_empty() {
            self.routes.remove(&route);
        }
        Some(stored.value)
    }

    /// Evicts one record, if the limit is exceeded: of the route that uses the most, the least recently used one for which `stays` is false.
    /// Those that stay count as used. `None` too if all records of that route stay.
    pub fn next(&mut self, mut stays: impl FnMut(&K, &mut V) -> bool) -> Option<(K, V)> {
        if self.weight <= self.max {
            return None;
        }
        let (route, _) = self.greatest()?;
        let records = self.routes.get_mut(&route)?;
        for _ in 0..records.by_use.len() {
            let (key, mut stored) = records.by_use.pop_lru()?;
            if stays(&key, &mut stored.value) {
                records.by_use.put(key, stored);
                continue;
            }
            records.weight -= stored.weight;
            self.weight -= stored.weight;
            if records.by_use.is_empty() {
                self.routes.remove(&route);
            }
            self.note_left(route);
            return Some((key, stored.value));
        }
        None
    }

    /// The record that would be evicted next, if the limit is exceeded.
    #[must_use]
    pub fn following(&self) -> Option<K> {
        if self.weight <= self.max {
            return None;
        }
        let (_, records) = self.greatest()?;
        records.by_use.peek_lru().map(|(key, _)| key.clone())
    }

    /// Evicts the record under `key`.
    pub fn leave(&mut self, key: &K) {
        self.remove(key);
        self.note_left(key.route());
    }

    /// The route that uses the most, and its records.
    fn greatest(&self) -> Option<(RouteId, &Records<K, V>)> {
        let greatest = self.routes.iter().max_by_key(|(route, records)| (records.weight, **route));
        greatest.map(|(route, records)| (*route, records))
    }

    /// Counts an evicted record of `route`.
    pub(crate) fn note_left(&mut self, route: RouteId) {
        *self.left.entry(route).or_default() += 1;
    }

    /// All records of `route`, in no order.
    pub fn of_route(&self, route: RouteId) -> impl Iterator<Item = &V> {
        let records = self.routes.get(&route).into_iter();
        records.flat_map(|records| records.by_use.iter().map(|(_, stored)| &stored.value))
    }

    /// All records, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let stored = self.routes.values().flat_map(|records| records.by_use.iter());
        stored.map(|(key, stored)| (key, &stored.value))
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.routes.values().map(|records| records.by_use.len()).sum()
    }

    /// How much all records weigh together.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// How much `route` uses.
    #[must_use]
    pub fn usage(&self, route: RouteId) -> Usage {
        let (records, weight) =
            self.routes.get(&route).map_or((0, 0), |records| (records.by_use.len() as u64, records.weight));
        Usage { records, weight, left: self.left.get(&route).copied().unwrap_or_default() }
    }

    /// How much `route` may use before it loses records: the unused rest of the limit, and at least an equal part of it.
    #[must_use]
    pub fn share(&self, route: RouteId) -> u64 {
        let others = self.routes.iter().filter(|(other, _)| **other != route);
        let mut others: Vec<u64> = others.map(|(_, records)| records.weight).collect();
        others.sort_unstable();
        let (mut left, mut sharing) = (self.max, others.len() as u64 + 1);
        for used in others {
            if used > left / sharing {
                break;
            }
            (left, sharing) = (left - used, sharing - 1);
        }
        left / sharing
    }
}

/// `items` in a round-robin over the routes: the first of each route, then the second of each, and so on.
#[must_use]
pub(crate) fn round_robin<T>(items: Vec<T>, route: impl Fn(&T) -> RouteId) -> Vec<T> {
    let mut counts = HashMap::<RouteId, usize, RandomState>::default();
    let mut ranked: Vec<(usize, T)> = Vec::with_capacity(items.len());
    for item in items {
        let count = counts.entry(route(&item)).or_default();
        ranked.push((*count, item));
        *count += 1;
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, item)| item).collect()
}

impl<K: OfRoute, V> Default for Records<K, V> {
    fn default() -> Self {
        Self { by_use: LruCache::unbounded_with_hasher(RandomState::default()), weight: 0 }
    }
}

impl<K, V> fmt::Debug for Shares<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("max", &self.max).field("weight", &self.weight).finish_non_exhaustive()
    }
}
