//! Answers in memory: moka as storage with a size limit in bytes. What they are worth is
//! [`super::policy`]'s business, who asks again is [`crate::flight`]'s.

use std::{path::PathBuf, sync::Arc};

use moka::sync::Cache;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Entry, Key};
use crate::units::ByteSize;

/// How much is remembered.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CacheLimits {
    /// The most memory that answers take; those used least leave first.
    pub memory: ByteSize,
    /// The file in which last good answers outlive a restart, relative to the configuration file. Without it they
    /// live in memory only. One gateway to a file.
    pub path: Option<PathBuf>,
    /// The most room that they take in the file, about; those used least recently leave first.
    pub disk: ByteSize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { memory: ByteSize::mib(64), path: None, disk: ByteSize::mib(256) }
    }
}

/// A bounded map; the answers that are used least leave first.
#[derive(Debug, Clone)]
pub struct Memory {
    entries: Cache<Key, Arc<Entry>>,
}

impl Memory {
    /// Room for about as many bytes of answers as `limits` allow.
    #[must_use]
    pub fn new(limits: &CacheLimits) -> Self {
        let weight = |_: &Key, entry: &Arc<Entry>| u32::try_from(size_of::<Key>() + entry.weight()).unwrap_or(u32::MAX);
        Self { entries: Cache::builder().max_capacity(limits.memory.0).weigher(weight).build() }
    }

    /// What is remembered under `key`.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    /// Remembers `entry`.
    pub fn insert(&self, key: Key, entry: Arc<Entry>) {
        self.entries.insert(key, entry);
    }

    /// Remembers `entry`, unless something is there; what is there now.
    pub fn restore(&self, key: Key, entry: Arc<Entry>) -> Arc<Entry> {
        self.entries.entry(key).or_insert(entry).into_value()
    }

    /// All that is remembered.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Arc<Entry>)> {
        self.entries.iter().map(|(key, entry)| (*key, entry))
    }

    /// How many answers are remembered, about.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.entries.entry_count()
    }

    /// Whether nothing is remembered, about.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes the answers take, about.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.entries.weighted_size()
    }
}
