//! The baselines of all lineages. They are small, so they stay in memory when answers are evicted.

use std::{collections::HashMap, sync::Arc};

use moka::{notification::RemovalCause, sync::Cache};
use parking_lot::Mutex;

use crate::{
    bounded_cache::{self, Bounded},
    engine::{
        cache::{Answers, Entry, EvictedKeys, Key, Unreadable},
        guard::{Baseline, Guard},
    },
};

/// About how many bytes of baselines are stored: a hundred thousand lineages with one parameter set.
const CAPACITY: u64 = 32 * 1024 * 1024;
/// The cache's overhead per baseline, in bytes.
const BESIDE: usize = 256;

/// The baselines, by lineage.
#[derive(Debug, Clone)]
pub(super) struct Baselines {
    memory: Bounded<Key, Arc<Baseline>>,
    /// The lineages whose baselines were evicted.
    evicted: Arc<Mutex<EvictedKeys>>,
}

impl Default for Baselines {
    fn default() -> Self {
        let evicted = Arc::<Mutex<EvictedKeys>>::default();
        let keys = Arc::clone(&evicted);
        let listener = move |key: Arc<Key>, _, cause| {
            if cause == RemovalCause::Size {
                keys.lock().insert(&key);
            }
        };
        let weight = |_: &Key, baseline: &Arc<Baseline>| u32::try_from(BESIDE + baseline.weight()).unwrap_or(u32::MAX);
        let memory = Cache::builder().max_capacity(CAPACITY).weigher(weight).eviction_listener(listener);
        Self { memory: bounded_cache::build(memory), evicted }
    }
}

impl Baselines {
    /// The baseline of `lineage`; empty if there never was an answer. `key` is the cache key of the question.
    ///
    /// # Errors
    /// When there may have been an answer, and its record is lost.
    pub(crate) fn get(
        &self,
        lineage: &Key,
        key: &Key,
        answers: &Answers,
        guard: &Guard,
    ) -> Result<Arc<Baseline>, Unreadable> {
        if let Some(baseline) = bounded_cache::get_rare(&self.memory, lineage) {
            return Ok(baseline);
        }
        if let Some(disk) = answers.disk()
            && let Some(baseline) = disk.baseline::<Baseline>(lineage)?
        {
            let baseline = Arc::new(baseline);
            self.memory.insert(*lineage, Arc::clone(&baseline));
            return Ok(baseline);
        }
        // A file of an earlier version holds the answer alone.
        if let Some(last) = last_answer(lineage, key, answers)? {
            return Ok(Arc::new(Baseline::of(guard.config(), &last.encoded.decode())));
        }
        let is_evicted = self.evicted.lock().contains(lineage);
        if is_evicted { Err(Unreadable) } else { Ok(Arc::default()) }
    }

    /// Whether there is a baseline of `lineage`: an answer of it was accepted.
    pub(crate) fn has(&self, lineage: &Key, answers: &Answers) -> bool {
        self.memory.contains_key(lineage)
            || answers.disk().is_some_and(|disk| matches!(disk.baseline::<Baseline>(lineage), Ok(Some(_))))
    }

    /// All baselines that can be read, by lineage.
    pub(crate) fn list(&self, answers: &Answers) -> HashMap<Key, Arc<Baseline>> {
        let stored = answers.disk().map(super::super::cache::disk::Disk::baselines::<Baseline>).into_iter().flatten();
        let mut all: HashMap<Key, Arc<Baseline>> = stored.map(|(key, of)| (key, Arc::new(of))).collect();
        all.extend(self.memory.iter().map(|(key, of)| (*key, of)));
        all
    }

    /// Loses the record of `lineage`, as a bad disk or too little memory would.
    #[cfg(test)]
    pub(crate) fn lose(&self, lineage: &Key) {
        self.memory.invalidate(lineage);
        self.evicted.lock().insert(lineage);
    }

    /// Stores `baseline` for `lineage`, on disk too.
    pub(crate) fn put(&self, lineage: Key, baseline: Arc<Baseline>, answers: &Answers) {
        if let Some(disk) = answers.disk() {
            disk.put_baseline(lineage, &*baseline);
        }
        self.memory.insert(lineage, baseline);
    }
}

/// The last answer of `lineage`. If it has none, as when `lineage` was configured only now, the answer under `key`.
///
/// # Errors
/// When there may have been an answer, and it cannot be read.
pub(super) fn last_answer(lineage: &Key, key: &Key, answers: &Answers) -> Result<Option<Arc<Entry>>, Unreadable> {
    match answers.try_get_again(lineage)? {
        None if lineage != key => answers.try_get_again(key),
        last => Ok(last),
    }
}
