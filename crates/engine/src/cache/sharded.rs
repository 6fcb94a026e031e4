//! The map of answers: any number of threads read it at once, and a change locks one of its shards. It has no limit of its own:
//! [`super::shares::Shares`] selects the answers to evict.

use std::{collections::HashMap, sync::Arc};

use foldhash::quality::RandomState;
use parking_lot::RwLock;

use super::{Entry, Key};

/// How many shards there are. Threads that read one shard at the same moment share the cache line of its lock.
const SHARDS: usize = 64;

/// The answers of one shard.
type Shard = RwLock<HashMap<Key, Arc<Entry>, RandomState>>;

/// Answers by their keys.
#[derive(Debug)]
pub(super) struct Sharded([Shard; SHARDS]);

impl Sharded {
    /// A map without answers.
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Shard::default()))
    }

    /// The answer under `key`.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.shard(key).read().get(key).cloned()
    }

    /// Stores `entry` under `key`.
    pub(super) fn insert(&self, key: Key, entry: Arc<Entry>) {
        let before = self.shard(&key).write().insert(key, entry);
        // Freed after the lock is released: an answer may have a megabyte.
        drop(before);
    }

    /// Removes the answer under `key`.
    pub(super) fn remove(&self, key: &Key) {
        let before = self.shard(key).write().remove(key);
        drop(before);
    }

    /// All answers. Each shard is copied at one moment, so that no lock is held while the caller looks at them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, Arc<Entry>)> {
        self.0.iter().flat_map(|shard| {
            let shard = shard.read();
            shard.iter().map(|(key, entry)| (*key, Arc::clone(entry))).collect::<Vec<_>>()
        })
    }

    /// The shard of `key`, whose beginning looks random.
    fn shard(&self, key: &Key) -> &Shard {
        &self.0[usize::from(key.as_bytes()[0]) % SHARDS]
    }
}
