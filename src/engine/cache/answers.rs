//! The stored answers: in memory, and also on disk if a path is configured.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use super::{Disk, Entry, Key, Life, Listed, Memory, disk::Unreadable};
use crate::domain::{
    clock::Timestamp,
    generator::{Question, Selector},
};

/// Memory with a disk behind it.
#[derive(Debug, Clone)]
pub struct Answers {
    memory: Memory,
    behind: Arc<Behind>,
}

#[derive(Debug, Default)]
struct Behind {
    disk: OnceLock<Disk>,
    /// That there should be a disk, and is none yet.
    is_missing: AtomicBool,
    /// What was invalidated of late, and when: the disk may hold it still.
    invalidated: Mutex<VecDeque<(Selector, Timestamp)>>,
}

/// How many invalidations are remembered.
const MAX_INVALIDATED: usize = 1000;

impl Answers {
    /// With nothing but memory.
    #[must_use]
    pub(crate) fn new(memory: Memory) -> Self {
        Self { memory, behind: Arc::default() }
    }

    /// Keeps answers on `disk` too, from now on, also those that were given before it could be opened.
    pub(crate) fn keep_on(&self, disk: Disk) {
        let _ = self.behind.disk.set(disk);
        self.behind.is_missing.store(false, Ordering::Relaxed);
        for (key, mut entry) in self.memory.iter() {
            // A run may bring another answer meanwhile: the one in memory comes last.
            while let Some(disk) = self.disk().filter(|disk| !disk.has_since(&key, entry.stored_at)) {
                disk.put(key, &entry);
                match self.memory.get(&key) {
                    Some(other) if !Arc::ptr_eq(&other, &entry) => entry = other,
                    _ => break,
                }
            }
        }
    }

    /// Notes that there should be a disk, so that what is on it is not taken for what never was.
    pub(crate) fn miss_disk(&self) {
        self.behind.is_missing.store(true, Ordering::Relaxed);
    }

    /// What is remembered under `key`, as far as it can be read.
    #[must_use]
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.try_get(key).ok().flatten()
    }

    /// What is remembered under `key`.
    ///
    /// # Errors
    /// When there may have been something that is not in memory, and cannot be read.
    pub(crate) fn try_get(&self, key: &Key) -> Result<Option<Arc<Entry>>, Unreadable> {
        if let Some(entry) = self.memory.get(key) {
            return Ok(Some(entry));
        }
        let kept = match self.disk() {
            Some(disk) => disk.get(key)?,
            None if self.behind.is_missing.load(Ordering::Relaxed) => return Err(Unreadable),
            None => None,
        };
        let Some(mut entry) = kept else {
            return if self.memory.has_evicted(key) { Err(Unreadable) } else { Ok(None) };
        };
        self.used(*key);
        if self.is_invalidated(&entry) {
            entry.life = Life::For(Duration::ZERO);
        }
        Ok(Some(self.memory.restore(*key, Arc::new(entry))))
    }

    fn is_invalidated(&self, entry: &Entry) -> bool {
        let invalidated = self.behind.invalidated.lock();
        invalidated.iter().any(|(selector, at)| entry.stored_at <= *at && selector.selects(&entry.question.open()))
    }

    /// Remembers `entry` under `key`, unless a later run brought what is there. Whether it did.
    pub(crate) fn insert(&self, key: Key, entry: &Arc<Entry>) -> bool {
        let is_latest = self.memory.get_rare(&key).is_none_or(|other| other.run_number <= entry.run_number);
        if is_latest {
            self.put(key, entry);
        }
        is_latest
    }

    /// Remembers `entry` for those that come after its question in `lineage`, unless a later question was answered: an
    /// earlier one that is asked again, as after a start, does not take them back. A clock that was put back begins anew. Whether it did.
    pub(crate) fn set_lineage_head(&self, lineage: Key, entry: &Arc<Entry>) -> bool {
        let is_later = |other: Arc<Entry>| {
            (other.first_at, other.run_number) > (entry.first_at, entry.run_number) && other.first_at <= entry.stored_at
        };
        let is_head = !self.get(&lineage).is_some_and(is_later);
        if is_head {
            self.put(lineage, entry);
        }
        is_head
    }

    fn put(&self, key: Key, entry: &Arc<Entry>) {
        self.memory.insert(key, Arc::clone(entry));
        if let Some(disk) = self.behind.disk.get() {
            disk.put(key, entry);
        }
    }

    /// Evicts the answer under `key` from memory.
    #[cfg(test)]
    pub(crate) fn evict(&self, key: &Key) {
        if let Some(disk) = self.disk() {
            disk.flush(Duration::from_secs(10));
        }
        self.memory.evict(key);
    }

    /// Loses all records under `key`, as a bad disk would.
    #[cfg(test)]
    pub(crate) fn lose(&self, key: &Key) {
        self.evict(key);
        if let Some(disk) = self.disk() {
            disk.damage(key);
        }
    }

    /// Records a use of the answer under `key`, so that it is not evicted next.
    pub(crate) fn used(&self, key: Key) {
        if let Some(disk) = self.behind.disk.get() {
            disk.used(key);
        }
    }

    /// Lets no answer in memory that is selected be served before its backend was asked. Which those are.
    #[must_use]
    pub(crate) fn expire_in_memory(&self, selector: &Selector, now: Timestamp) -> Vec<(Key, Question)> {
        let mut invalidated = self.behind.invalidated.lock();
        invalidated.truncate(MAX_INVALIDATED - 1);
        invalidated.push_front((selector.clone(), now));
        drop(invalidated);
        let mut expired = Vec::new();
        for (key, entry) in self.memory.iter() {
            let question = entry.question.open();
            if !selector.selects(&question) {
                continue;
            }
            expired.push((key, question));
            self.memory.insert(key, Arc::new(Entry { life: Life::For(Duration::ZERO), ..(*entry).clone() }));
        }
        expired
    }

    /// All remembered answers. Reads the whole file.
    #[must_use]
    pub(crate) fn list(&self) -> HashMap<Key, Listed> {
        let mut all: HashMap<Key, Listed> = self.behind.disk.get().map(Disk::list).into_iter().flatten().collect();
        all.extend(self.memory.iter().map(|(key, entry)| (key, Listed::remembered(&entry))));
        all
    }

    /// What is in memory.
    #[must_use]
    pub(crate) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The disk, if there is one.
    #[must_use]
    pub fn disk(&self) -> Option<&Disk> {
        self.behind.disk.get()
    }
}
