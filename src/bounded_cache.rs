//! Maps with a bound, from which those leave first that are used least, or longest ago.

use std::{borrow::Borrow, hash::Hash};

use foldhash::quality::RandomState;
use moka::{
    policy::EvictionPolicy,
    sync::{Cache, CacheBuilder},
};

/// A map with a bound, whose hash is seeded and cheaper than the standard library's.
pub(crate) type Bounded<K, V> = Cache<K, V, RandomState>;

/// One of `most` entries.
#[must_use]
pub(crate) fn new<K, V>(most: u64) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    build(Cache::builder().max_capacity(most))
}

/// The one that `builder` describes, from which those leave first that were used longest ago: for [`get_rare`], which leaves no trace
/// of what was looked for in vain, so that nothing new would ever have been used as often as what is there.
#[must_use]
pub(crate) fn build_recent<K, V>(builder: CacheBuilder<K, V, Cache<K, V>>) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    build(builder.eviction_policy(EvictionPolicy::lru()))
}

/// The one that `builder` describes.
#[must_use]
pub(crate) fn build<K, V>(builder: CacheBuilder<K, V, Cache<K, V>>) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    builder.build_with_hasher(RandomState::default())
}

/// What `map` holds under `key`, where there is hardly ever anything: moka writes down each `get`, those in vain too, and
/// works that off later. Of a map that is asked in no other way, see [`build_recent`].
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
