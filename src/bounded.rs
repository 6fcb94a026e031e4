//! Maps with a bound, from which those leave first that are used least.

use std::{borrow::Borrow, hash::Hash};

use foldhash::quality::RandomState;
use moka::sync::{Cache, CacheBuilder};

/// A map with a bound, whose hash is seeded and cheaper than the standard library's.
pub type Bounded<K, V> = Cache<K, V, RandomState>;

/// One of `most` entries.
#[must_use]
pub fn new<K, V>(most: u64) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    build(Cache::builder().max_capacity(most))
}

/// The one that `builder` describes.
#[must_use]
pub fn build<K, V>(builder: CacheBuilder<K, V, Cache<K, V>>) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    builder.build_with_hasher(RandomState::default())
}

/// What `map` holds under `key`, where there is hardly ever anything: moka writes down each `get`, those in vain too, and
/// works that off later.
pub fn get_rare<K, V, Q>(map: &Bounded<K, V>, key: &Q) -> Option<V>
where
    K: Borrow<Q> + Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    Q: Hash + Eq + ?Sized,
{
    if map.contains_key(key) { map.get(key) } else { None }
}
