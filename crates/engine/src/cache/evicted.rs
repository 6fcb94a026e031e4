//! The keys that a bounded map evicted in the last week. A missing entry under such a key never counts as "there was nothing".

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use foldhash::quality::RandomState;

use crate::cache::{Key, RouteId};

/// How many keys are stored of one week, at 8 bytes each.
const MAX_KEYS: usize = 500_000;
/// How long a key is remembered at least; twice as long at most. The marks of loss beside the cache file count as long.
const LASTS: Duration = Duration::from_hours(7 * 24);

/// Keys that were evicted, by their first bytes, in two generations.
#[derive(Debug)]
pub struct EvictedKeys {
    young: Generation,
    old: Generation,
    /// When the young generation began.
    since: Instant,
}

/// If there are too many keys to store, the route with the most of them gives its own up. Then any key of that route may have been evicted.
#[derive(Debug, Default)]
struct Generation {
    keys: HashMap<RouteId, HashSet<[u8; 8], RandomState>, RandomState>,
    /// How many keys there are.
    count: usize,
    /// The routes that gave up their keys.
    full: HashSet<RouteId, RandomState>,
}

impl Default for EvictedKeys {
    fn default() -> Self {
        Self { young: Generation::default(), old: Generation::default(), since: Instant::now() }
    }
}

impl EvictedKeys {
    /// Notes that `key` was evicted.
    pub fn insert(&mut self, key: &Key) {
        self.rotate(Instant::now());
        self.young.insert(key);
    }

    /// Whether `key` may have been evicted.
    #[must_use]
    pub fn contains(&mut self, key: &Key) -> bool {
        self.rotate(Instant::now());
        self.young.contains(key) || self.old.contains(key)
    }

    /// Begins a new generation if it is time.
    fn rotate(&mut self, now: Instant) {
        let lasted = now.saturating_duration_since(self.since);
        if lasted < LASTS {
            return;
        }
        let young = std::mem::take(&mut self.young);
        self.old = if lasted < LASTS * 2 { young } else { Generation::default() };
        self.since = now;
    }
}

impl Generation {
    fn insert(&mut self, key: &Key) {
        let route = key.route();
        if self.full.contains(&route) {
            return;
        }
        let is_new = self.keys.entry(route).or_default().insert(first_bytes(key));
        self.count += usize::from(is_new);
        if self.count > MAX_KEYS
            && let Some(greatest) = self.keys.iter().max_by_key(|(_, keys)| keys.len()).map(|(route, _)| *route)
        {
            self.count -= self.keys.remove(&greatest).map_or(0, |keys| keys.len());
            self.full.insert(greatest);
        }
    }

    fn contains(&self, key: &Key) -> bool {
        let route = key.route();
        self.full.contains(&route) || self.keys.get(&route).is_some_and(|keys| keys.contains(&first_bytes(key)))
    }
}

fn first_bytes(key: &Key) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&key.as_bytes()[..8]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_route(route: u8, n: u32) -> Key {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&n.to_le_bytes());
        bytes[31] = route;
        Key::of_bytes(bytes)
    }

    fn key(n: u32) -> Key {
        of_route(0, n)
    }

    #[test]
    fn a_key_is_remembered_for_a_week_or_two() {
        let mut evicted = EvictedKeys::default();
        evicted.insert(&key(1));
        let began = evicted.since;
        evicted.rotate(began + LASTS);
        evicted.insert(&key(2));
        assert!(evicted.contains(&key(1)) && evicted.contains(&key(2)) && !evicted.contains(&key(3)));
        evicted.rotate(began + LASTS * 2);
        // The generation of `rotate` begins in the future here, so that the present time changes nothing.
        assert!(!evicted.contains(&key(1)) && evicted.contains(&key(2)));
        evicted.rotate(began + LASTS * 5);
        assert!(!evicted.contains(&key(2)), "nothing happened for two weeks");
    }

    #[test]
    fn too_many_keys_count_as_all_of_their_route_until_they_are_old() {
        let mut evicted = EvictedKeys::default();
        let began = evicted.since;
        let other = |n| of_route(1, n);
        (0..10).for_each(|n| evicted.insert(&other(n)));
        (0..=u32::try_from(MAX_KEYS).unwrap()).for_each(|n| evicted.insert(&key(n)));
        (10..20).for_each(|n| evicted.insert(&other(n)));
        let absent = key(u32::MAX);
        assert!(evicted.contains(&absent));
        assert!((0..20).all(|n| evicted.contains(&other(n))) && !evicted.contains(&other(20)), "another route");
        evicted.rotate(began + LASTS);
        assert!(evicted.contains(&absent), "they may have been evicted a moment ago");
        evicted.rotate(began + LASTS * 2);
        assert!(!evicted.contains(&absent));
    }
}
