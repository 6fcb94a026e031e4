//! The baselines of all lineages. They are small, so they stay in memory when answers are evicted.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::{
    cache::{Answers, Entry, EvictedKeys, Key, RouteId, Shares, Unreadable, Usage},
    guard::{Baseline, Guard},
};

/// About how many bytes of baselines are stored: a hundred thousand lineages with one parameter set.
const CAPACITY: u64 = 32 * 1024 * 1024;
/// The cache's overhead per baseline, in bytes.
const BESIDE: usize = 256;

/// The baselines, by lineage. Routes share their limit.
#[derive(Debug, Clone)]
pub(crate) struct Baselines(Arc<Mutex<Book>>);

#[derive(Debug)]
struct Book {
    shares: Shares<Key, Arc<Baseline>>,
    /// The lineages whose baselines were evicted.
    evicted: EvictedKeys,
}

impl Default for Baselines {
    fn default() -> Self {
        Self::with_capacity(CAPACITY)
    }
}

impl Baselines {
    /// At most about `capacity` bytes of baselines.
    fn with_capacity(capacity: u64) -> Self {
        Self(Arc::new(Mutex::new(Book { shares: Shares::new(capacity), evicted: EvictedKeys::default() })))
    }

    /// The baseline of `lineage`; `None` if there never was an answer. `key` is the cache key of the question.
    ///
    /// # Errors
    /// When there may have been an answer, and its record is lost.
    pub(crate) fn get(
        &self,
        lineage: &Key,
        key: &Key,
        answers: &Answers,
        guard: &Guard,
    ) -> Result<Option<Arc<Baseline>>, Unreadable> {
        if let Some(baseline) = self.0.lock().shares.get(lineage) {
            return Ok(Some(Arc::clone(baseline)));
        }
        if let Some(disk) = answers.disk()
            && let Some(baseline) = disk.baseline::<Baseline>(lineage)?
        {
            let baseline = Arc::new(baseline);
            self.keep(*lineage, Arc::clone(&baseline));
            return Ok(Some(baseline));
        }
        // A file of an earlier version holds the answer alone.
        if let Some(last) = last_answer(lineage, key, answers)? {
            return Ok(Some(Arc::new(Baseline::of(guard.config(), &last.encoded.decode()))));
        }
        let is_evicted = self.0.lock().evicted.contains(lineage);
        if is_evicted { Err(Unreadable) } else { Ok(None) }
    }

    /// Whether there is a baseline of `lineage`: an answer of it was accepted.
    pub(crate) fn has(&self, lineage: &Key, answers: &Answers) -> bool {
        self.0.lock().shares.peek(lineage).is_some()
            || answers.disk().is_some_and(|disk| matches!(disk.baseline::<Baseline>(lineage), Ok(Some(_))))
    }

    /// All baselines that can be read, by lineage.
    pub(crate) fn list(&self, answers: &Answers) -> HashMap<Key, Arc<Baseline>> {
        let stored = answers.disk().map(super::super::cache::disk::Disk::baselines::<Baseline>).into_iter().flatten();
        let mut all: HashMap<Key, Arc<Baseline>> = stored.map(|(key, of)| (key, Arc::new(of))).collect();
        all.extend(self.0.lock().shares.iter().map(|(key, of)| (*key, Arc::clone(of))));
        all
    }

    /// Loses the record of `lineage`, as a bad disk or too little memory would.
    #[cfg(test)]
    pub(crate) fn lose(&self, lineage: &Key) {
        let mut book = self.0.lock();
        book.shares.remove(lineage);
        book.evicted.insert(lineage);
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
        let weight = (BESIDE + baseline.weight()) as u64;
        let mut book = self.0.lock();
        for (key, _) in book.shares.insert(lineage, baseline, weight) {
            book.evicted.insert(&key);
        }
    }

    /// How much the baselines of `route` take in memory, and how much they may take before some of them leave.
    pub(crate) fn usage(&self, route: RouteId) -> (Usage, u64) {
        let book = self.0.lock();
        (book.shares.usage(route), book.shares.share(route))
    }
}

/// The last answer of `lineage`. If it has none, as when `lineage` was configured only now, the answer under `key`.
///
/// # Errors
/// When there may have been an answer, and it cannot be read.
pub(crate) fn last_answer(lineage: &Key, key: &Key, answers: &Answers) -> Result<Option<Arc<Entry>>, Unreadable> {
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
        cache::{CacheLimits, Memory},
        guard::GuardConfig,
    };
    use domain::{
        generator::ParameterSet,
        problem::{Path, Problems},
    };

    /// About how many baselines fit.
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
        let baselines = Baselines::with_capacity((ROOM * (BESIDE + baseline(1).weight())) as u64);
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
                            assert!(get(number).map_or(true, |of| of.is_some_and(|of| of.count() == 1)), "{number}");
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
        assert_eq!(get(STORED).unwrap(), None, "there never was an answer");
    }

    #[test]
    fn a_baseline_that_is_too_large_is_lost() {
        let baselines = Baselines::with_capacity((BESIDE + baseline(1).weight()) as u64);
        baselines.keep(lineage(1), baseline(1));
        baselines.keep(lineage(1), Arc::new(Baseline::default()));
        let is_evicted = |baselines: &Baselines| baselines.0.lock().evicted.contains(&lineage(1));
        assert!(!is_evicted(&baselines), "it was replaced");
        let large = Baselines::with_capacity(BESIDE as u64 - 1);
        large.keep(lineage(1), baseline(1));
        assert!(is_evicted(&large) && large.0.lock().shares.len() == 0);
    }

    #[test]
    fn a_route_does_not_push_out_the_baselines_of_another() {
        let baselines = Baselines::with_capacity((ROOM * (BESIDE + baseline(1).weight())) as u64);
        let other = |number: u8| Key::of_bytes([number; 32]);
        for number in 1..=5 {
            baselines.keep(other(number), baseline(1));
        }
        (0..STORED).for_each(|number| baselines.keep(lineage(number), baseline(1)));
        let mut book = baselines.0.lock();
        assert!((1..=5).all(|number| book.shares.get(&other(number)).is_some()));
        assert_eq!(book.shares.usage(lineage(0).route()).records, ROOM as u64 - 5);
    }
}
