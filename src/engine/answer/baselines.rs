//! The baselines of all lineages. They are small, so they stay in memory when answers are evicted.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    bounded_cache::Recent,
    engine::{
        cache::{Answers, Entry, EvictedKeys, Key, Unreadable},
        guard::{Baseline, Guard},
    },
};

/// About how many bytes of baselines are stored: a hundred thousand lineages with one parameter set.
const CAPACITY: usize = 32 * 1024 * 1024;
/// The cache's overhead per baseline, in bytes.
const BESIDE: usize = 256;

/// The baselines, by lineage.
#[derive(Debug, Clone)]
pub(super) struct Baselines {
    memory: Arc<Recent<Key, Arc<Baseline>>>,
    /// The lineages whose baselines were evicted. It is locked while a baseline is stored, so whoever misses an evicted baseline finds
    /// its lineage here.
    evicted: Arc<Mutex<EvictedKeys>>,
}

impl Default for Baselines {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl Baselines {
    /// Room for about `capacity` bytes of baselines.
    fn with_capacity(capacity: usize) -> Self {
        let memory = Recent::weighed(capacity, |_, baseline: &Arc<Baseline>| BESIDE + baseline.weight());
        Self { memory: Arc::new(memory), evicted: Arc::default() }
    }

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
        if let Some(baseline) = self.memory.get(lineage) {
            return Ok(baseline);
        }
        if let Some(disk) = answers.disk()
            && let Some(baseline) = disk.baseline::<Baseline>(lineage)?
        {
            let baseline = Arc::new(baseline);
            self.keep(*lineage, Arc::clone(&baseline));
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
        all.extend(self.memory.snapshot());
        all
    }

    /// Loses the record of `lineage`, as a bad disk or too little memory would.
    #[cfg(test)]
    pub(crate) fn lose(&self, lineage: &Key) {
        self.memory.remove(lineage);
        self.evicted.lock().insert(lineage);
    }

    /// Stores `baseline` for `lineage`, on disk too.
    pub(crate) fn put(&self, lineage: Key, baseline: Arc<Baseline>, answers: &Answers) {
        if let Some(disk) = answers.disk() {
            disk.put_baseline(lineage, &*baseline);
        }
        self.keep(lineage, baseline);
    }

    /// Stores `baseline` in memory, and notes whose baselines had to leave.
    fn keep(&self, lineage: Key, baseline: Arc<Baseline>) {
        let mut evicted = self.evicted.lock();
        let left = self.memory.insert(lineage, baseline);
        for (key, _) in &left {
            evicted.insert(key);
        }
        drop(evicted);
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

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    use super::*;
    use crate::{
        domain::{
            generator::ParameterSet,
            problem::{Path, Problems},
        },
        engine::{
            cache::{CacheLimits, Memory},
            guard::GuardConfig,
        },
    };

    /// How many baselines there is room for, about.
    const ROOM: usize = 20;
    /// How many are stored.
    const STORED: u32 = 2000;

    fn lineage(number: u32) -> Key {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        Key::of_bytes(bytes)
    }

    fn baseline(sets: usize) -> Arc<Baseline> {
        Arc::new(Baseline::of(&GuardConfig::default(), &vec![ParameterSet::default(); sets]))
    }

    #[test]
    fn a_baseline_that_has_to_leave_is_lost_and_never_empty() {
        let baselines = Baselines::with_capacity(ROOM * (BESIDE + baseline(1).weight()));
        let answers = Answers::new(Memory::new(&CacheLimits::default()));
        let guard = Guard::build(&GuardConfig::default(), &Path::root(), &mut Problems::default());
        let get = |number| baselines.get(&lineage(number), &lineage(number), &answers, &guard);
        let stored = AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while stored.load(Ordering::Acquire) < STORED {
                        let newest = stored.load(Ordering::Acquire);
                        for number in newest.saturating_sub(40)..newest {
                            assert!(get(number).map_or(true, |baseline| baseline.count() == 1), "{number}");
                        }
                    }
                });
            }
            for number in 0..STORED {
                baselines.put(lineage(number), baseline(1), &answers);
                stored.store(number + 1, Ordering::Release);
            }
        });
        let kept = (0..STORED).filter(|number| get(*number).is_ok()).count();
        assert_eq!(kept, ROOM);
        assert_eq!(get(STORED).unwrap().count(), 0, "there never was an answer");
    }

    #[test]
    fn a_baseline_that_is_too_large_is_lost() {
        let baselines = Baselines::with_capacity(BESIDE + baseline(1).weight());
        baselines.keep(lineage(1), baseline(1));
        baselines.keep(lineage(1), Arc::new(Baseline::default()));
        assert!(!baselines.evicted.lock().contains(&lineage(1)), "it was replaced");
        let large = Baselines::with_capacity(BESIDE - 1);
        large.keep(lineage(1), baseline(1));
        assert!(large.evicted.lock().contains(&lineage(1)) && !large.memory.contains_key(&lineage(1)));
    }
}
