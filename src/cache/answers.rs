//! The remembered answers: in memory, and behind it on disk where a path is configured.

use std::sync::{Arc, OnceLock};

use super::{Disk, Entry, Key, Memory};

/// Memory with a disk behind it.
#[derive(Debug, Clone)]
pub struct Answers {
    memory: Memory,
    disk: Arc<OnceLock<Disk>>,
}

impl Answers {
    /// With nothing but memory.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, disk: Arc::default() }
    }

    /// Keeps answers on `disk` too, from now on.
    pub fn keep_on(&self, disk: Disk) {
        let _ = self.disk.set(disk);
    }

    /// What is remembered under `key`.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        if let Some(entry) = self.memory.get(key) {
            return Some(entry);
        }
        let entry = Arc::new(self.disk.get()?.get(key)?);
        self.memory.insert(*key, Arc::clone(&entry));
        Some(entry)
    }

    /// Remembers `entry` under `key`.
    pub fn insert(&self, key: Key, entry: &Arc<Entry>) {
        self.memory.insert(key, Arc::clone(entry));
        if let Some(disk) = self.disk.get() {
            disk.put(key, entry);
        }
    }

    /// What is in memory.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The disk, if there is one.
    #[must_use]
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.get()
    }
}
