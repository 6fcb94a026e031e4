//! Maps of limited size. There are two kinds:
//!
//! - [`Recent`] is behind one lock: small, or a shard of many. The least recently used entries leave first.
//! - [`Bounded`] is for values that each call reads, from many threads at once. The least used entries leave first. Each type of it adds
//!   much machine code, and each insertion costs thousands of instructions.

mod recent;

use std::hash::Hash;

use foldhash::quality::RandomState;
use moka::sync::{Cache, CacheBuilder};

pub use self::recent::Recent;

/// A map of limited size. Its seeded hash is cheaper than the standard library's.
pub type Bounded<K, V> = Cache<K, V, RandomState>;

/// A map of at most `max` entries.
#[must_use]
pub fn new<K, V>(max: u64) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    from_builder(Cache::builder().max_capacity(max))
}

/// The map that `builder` describes.
#[must_use]
pub fn from_builder<K, V>(builder: CacheBuilder<K, V, Cache<K, V>>) -> Bounded<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    builder.build_with_hasher(RandomState::default())
}
