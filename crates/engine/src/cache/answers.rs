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

use crate::cache::{Disk, Entry, Key, Life, Listed, Memory, disk::Unreadable, outline::Outline};
use domain::{
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
    /// Whether a disk is configured and not open yet.
    is_missing: AtomicBool,
    /// The recent invalidations and their times: the disk may still hold older answers.
    invalidated: Mutex<VecDeque<(Selector, Timestamp)>>,
}

/// How many invalidations are remembered.
const MAX_INVALIDATED: usize = 1000;

impl Answers {
    /// Answers in memory only.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, behind: Arc::default() }
    }

    /// Stores answers on `disk` too, from now on, including those that came before it was open.
    pub fn keep_on(&self, disk: Disk) {
        let _ = self.behind.disk.set(disk);
        self.behind.is_missing.store(false, Ordering::Relaxed);
        for (key, mut entry) in self.memory.iter() {
            // A run may store another answer meanwhile. The answer in memory must be written last.
            while let Some(disk) = self.disk().filter(|disk| !disk.has_since(&key, entry.stored_at)) {
                disk.put(key, &entry);
                match self.memory.get(&key) {
                    Some(other) if !Arc::ptr_eq(&other, &entry) => entry = other,
                    _ => break,
                }
            }
        }
    }

    /// Notes that a disk is configured, so that an answer on it does not count as absent before it is open.
    pub fn miss_disk(&self) {
        self.behind.is_missing.store(true, Ordering::Relaxed);
    }

    /// Whether a disk is configured and not open yet.
    pub fn misses_disk(&self) -> bool {
        self.behind.is_missing.load(Ordering::Relaxed)
    }

    /// The answer under `key`, if it can be read.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.try_get(key).ok().flatten()
    }

    /// The answer under `key`.
    ///
    /// # Errors
    /// When there may have been an answer that is not in memory, and it cannot be read.
    pub(crate) fn try_get(&self, key: &Key) -> Result<Option<Arc<Entry>>, Unreadable> {
        self.or_from_disk(key, self.memory.get(key))
    }

    /// The same, for a run: the call that started it did the lookup already, which counts as the use of the key.
    ///
    /// # Errors
    /// As [`Self::try_get`].
    pub(crate) fn try_get_again(&self, key: &Key) -> Result<Option<Arc<Entry>>, Unreadable> {
        self.or_from_disk(key, self.memory.get(key))
    }

    /// `in_memory`, else the answer that the disk has under `key`.
    fn or_from_disk(&self, key: &Key, in_memory: Option<Arc<Entry>>) -> Result<Option<Arc<Entry>>, Unreadable> {
        if let Some(entry) = in_memory {
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

    /// Whether `entry` may replace the answer under `key`: no later run stored that.
    pub(crate) fn is_latest(&self, key: &Key, entry: &Entry) -> bool {
        self.memory.get(key).is_none_or(|other| other.run_number <= entry.run_number)
    }

    /// Whether `entry` is the last answer of `lineage`: no later question of the lineage was answered. An earlier question
    /// that is answered again, as after a start, does not replace it. If the clock was put back, the count restarts.
    pub(crate) fn is_lineage_head(&self, lineage: &Key, entry: &Entry) -> bool {
        let is_later = |other: Arc<Entry>| {
            (other.first_at, other.run_number) > (entry.first_at, entry.run_number) && other.first_at <= entry.stored_at
        };
        !self.get(lineage).is_some_and(is_later)
    }

    /// Stores `entry` under `key`, on disk too.
    pub fn put(&self, key: Key, entry: &Arc<Entry>) {
        self.memory.insert(key, Arc::clone(entry));
        if let Some(disk) = self.behind.disk.get() {
            disk.put(key, entry);
        }
    }

    /// Makes the answer under `key` in memory not fresh any more.
    pub(crate) fn end_life(&self, key: &Key) {
        if let Some(entry) = self.memory.get(key) {
            self.memory.insert(*key, Arc::new(Entry { life: Life::For(Duration::ZERO), ..(*entry).clone() }));
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
    pub fn lose(&self, key: &Key) {
        self.evict(key);
        if let Some(disk) = self.disk() {
            disk.damage(key);
        }
    }

    /// Records a use of the answer under `key`, so that it is not evicted next.
    pub fn used(&self, key: Key) {
        if let Some(disk) = self.behind.disk.get() {
            disk.used(key);
        }
    }

    /// Makes every selected answer in memory stale until its backend was called. Returns the selected answers.
    #[must_use]
    pub(crate) fn expire_in_memory(&self, selector: &Selector, now: Timestamp) -> Vec<(Key, Question)> {
        let mut invalidated = self.behind.invalidated.lock();
        invalidated.truncate(MAX_INVALIDATED - 1);
        invalidated.push_front((selector.clone(), now));
        drop(invalidated);
        let (mut expired, only) = (Vec::new(), Outline::of_only(selector));
        for (key, entry) in self.memory.iter() {
            if only.as_ref().is_some_and(|only| *only != Outline::of(&entry.question)) {
                continue;
            }
            let question = entry.question.open();
            if !selector.selects(&question) {
                continue;
            }
            expired.push((key, question));
            self.memory.insert(key, Arc::new(Entry { life: Life::For(Duration::ZERO), ..(*entry).clone() }));
        }
        expired
    }

    /// All stored answers. Reads the whole file.
    #[must_use]
    pub fn list(&self) -> HashMap<Key, Listed> {
        let mut all: HashMap<Key, Listed> = self.behind.disk.get().map(Disk::list).into_iter().flatten().collect();
        all.extend(self.memory.iter().map(|(key, entry)| (key, Listed::remembered(&entry))));
        all
    }

    /// The answers in memory.
    #[must_use]
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The disk, if there is one.
    #[must_use]
    pub fn disk(&self) -> Option<&Disk> {
        self.behind.disk.get()
    }
}
