//! Answers in memory: moka with a size limit in bytes. [`super::policy`] judges their age, and [`crate::flight`] joins the
//! runs that renew them.

use std::{path::PathBuf, sync::Arc};

use moka::{notification::RemovalCause, sync::Cache};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Entry, EvictedKeys, Key};
use crate::{
    bounded_cache::{self, Bounded},
    clients::store::StoreConfig,
    domain::units::ByteSize,
};

/// How much is remembered.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct CacheLimits {
    /// The most memory that answers take; those used least leave first. Beside them, recent requests are remembered in up to a quarter
    /// of this size, so that the next ones like them take less time.
    pub(crate) memory: ByteSize,
    /// The file in which last good answers outlive a restart and `kill -9`, relative to the configuration file. Without
    /// it they live in memory only. Four more files stand beside it (`.journal`, `.journal-2`, `.lost`, and `.new` for a
    /// moment), so its folder must be writable. One gateway to a file.
    pub(crate) path: Option<PathBuf>,
    /// The most room that they take in the file, about; those used least recently leave first.
    pub(crate) disk: ByteSize,
    /// A Valkey or Redis server that several replicas share. Each replica keeps a copy in memory, and in its own file if `path` is
    /// set. Takes effect at the next start.
    pub(crate) shared: Option<StoreConfig>,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { memory: ByteSize::mib(64), path: None, disk: ByteSize::mib(256), shared: None }
    }
}

/// A bounded map; the answers that are used least leave first.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    entries: Bounded<Key, Arc<Entry>>,
    evicted: Arc<Mutex<EvictedKeys>>,
}

impl Memory {
    /// Room for about as many bytes of answers as `limits` allow.
    #[must_use]
    pub(crate) fn new(limits: &CacheLimits) -> Self {
        let weight = |_: &Key, entry: &Arc<Entry>| u32::try_from(size_of::<Key>() + entry.weight()).unwrap_or(u32::MAX);
        let evicted = Arc::<Mutex<EvictedKeys>>::default();
        let keys = Arc::clone(&evicted);
        let listener = move |key: Arc<Key>, _, cause| {
            if cause == RemovalCause::Size {
                keys.lock().insert(&key);
            }
        };
        let entries = Cache::builder().max_capacity(limits.memory.0).weigher(weight).eviction_listener(listener);
        let entries = bounded_cache::build(entries);
        Self { entries, evicted }
    }

    /// Whether an answer under `key` was evicted for want of room.
    #[must_use]
    pub(crate) fn has_evicted(&self, key: &Key) -> bool {
        self.evicted.lock().contains(key)
    }

    /// The answer under `key`.
    #[must_use]
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    /// The same, for keys that are rarely present. moka records each `get`, misses included, and processes the records later.
    #[must_use]
    pub(crate) fn get_rare(&self, key: &Key) -> Option<Arc<Entry>> {
        if self.entries.contains_key(key) { self.entries.get(key) } else { None }
    }

    /// Stores `entry`, which takes over when a caller last asked its question.
    pub(crate) fn insert(&self, key: Key, entry: Arc<Entry>) {
        if let Some(before) = self.get_rare(&key).filter(|before| before.question == entry.question) {
            entry.turn.follow(&before.turn);
        }
        self.entries.insert(key, entry);
    }

    /// Stores `entry` unless there is an answer already. Returns the answer that is there now.
    pub(crate) fn restore(&self, key: Key, entry: Arc<Entry>) -> Arc<Entry> {
        self.entries.entry(key).or_insert(entry).into_value()
    }

    /// Evicts the answer under `key`, as too little room would.
    #[cfg(test)]
    pub(crate) fn evict(&self, key: &Key) {
        self.entries.invalidate(key);
        self.evicted.lock().insert(key);
    }

    /// All answers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, Arc<Entry>)> {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }

    /// About how many answers there are.
    #[must_use]
    pub(crate) fn len(&self) -> u64 {
        self.entries.entry_count()
    }

    /// About how many bytes the answers take.
    #[must_use]
    pub(crate) fn size(&self) -> u64 {
        self.entries.weighted_size()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::{
        domain::{clock::Timestamp, generator::Question},
        engine::cache::{Encoded, Life, MadeUnder, PackedQuestion, Revision, Turn},
    };

    #[test]
    fn who_had_to_leave_is_known() {
        let memory = Memory::new(&CacheLimits { memory: ByteSize(20_000), ..CacheLimits::default() });
        let entry = Arc::new(Entry {
            encoded: Encoded::encode(&[]).unwrap(),
            question: PackedQuestion::from(&Question {
                route: "r".into(),
                application_set: None,
                parameters: Arc::default(),
            }),
            made_under: MadeUnder { revision: Revision::of(&json!({})), trust: 0 },
            stored_at: Timestamp(0),
            asked_at: Timestamp(0),
            first_at: Timestamp(0),
            run_number: 1,
            life: Life::For(Duration::ZERO),
            took: Duration::ZERO,
            evidence: Vec::new(),
            note: None,
            turn: Turn::default(),
        });
        let keys: Vec<Key> = (0..200).map(|n| Key::of_bytes([n; 32])).collect();
        for key in &keys {
            memory.insert(*key, Arc::clone(&entry));
        }
        memory.entries.run_pending_tasks();
        let (there, gone): (Vec<Key>, Vec<Key>) = keys.iter().partition(|key| memory.get(key).is_some());
        assert!(!there.is_empty() && gone.len() > 50);
        assert!(gone.iter().all(|key| memory.has_evicted(key)));
        assert!(!there.iter().any(|key| memory.has_evicted(key)));
    }
}
