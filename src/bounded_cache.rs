//! Maps of limited size. The least used entries, or the least recently used ones, leave first.

use std::{borrow::Borrow, hash::Hash};

use foldhash::quality::RandomState;
use moka::{
    policy::EvictionPolicy,
    sync::{Cache, CacheBuilder},
};

/// A map of limited size. Its seeded hash is cheaper than the standard library's.
pub(crate) type Bounded<K, V> = Cache<K, V, RandomState>;

/// A map of at most `max` entries.
#[must_use]
pub(crate) fn new<K, V>(max: u64) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    build(Cache::builder().max_capacity(max))
}

/// The map that `builder` describes. The least recently used entries leave first. For maps that are read with [`get_rare`],
/// which does not record misses: by frequency, no new entry would ever be used as often as the old ones.
#[must_use]
pub(crate) fn build_recent<K, V>(builder: CacheBuilder<K, V, Cache<K, V>>) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    build(builder.eviction_policy(EvictionPolicy::lru()))
}

/// The map that `builder` describes.
#[must_use]
pub(crate) fn build<K, V>(builder: CacheBuilder<K, V, Cache<K, V>>) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    builder.build_with_hasher(RandomState::default())
}

/// The value of `key` in a map in which a key is hardly ever found. moka records each `get`, misses included, and processes the
/// records later. Only for maps of [`build_recent`].
pub(crate) fn get_rare<K, V, Q>(map: &Bounded<K, V>, key: &Q) -> Option<V>
where
    K: Borrow<Q> + Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    Q: Hash + Eq + ?Sized,
{
    if map.contains_key(key) { map.get(key) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_map_takes_in_what_is_new() {
        let map: Bounded<u32, u32> = build_recent(Cache::builder().max_capacity(10));
        for key in 0..1000 {
            assert_eq!(get_rare(&map, &key), None);
            map.insert(key, key);
            map.run_pending_tasks();
            assert_eq!(get_rare(&map, &key), Some(key));
        }
        assert_eq!(map.entry_count(), 10);
    }
}
