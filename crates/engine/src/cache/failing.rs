//! Backoff: after a failure, the backend is not called for the question for a while, so that callers do not overload a source in
//! trouble. A stored failure never replaces a last good answer.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::cache::{Key, Shares};
use domain::clock::Timestamp;

/// The first backoff.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest backoff without a `retry_after`.
const LONGEST: Duration = Duration::from_mins(1);
/// The longest backoff that a source may ask for.
const LONGEST_REQUESTED: Duration = Duration::from_mins(10);
/// How many bytes of failures are stored: about ten thousand.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The failures, by question. Routes share their limit; those of the greatest user that were read longest ago are evicted first.
#[derive(Debug, Clone)]
pub struct Failing<F: Failed>(Arc<Mutex<Records<F>>>);

/// The record of a failure.
pub trait Failed: Clone + Send + Sync + 'static {
    /// About how much memory it takes, in bytes.
    fn weight(&self) -> usize;

    /// The subject of the question, if questions with other keys may have the same one, such as an element whose item changes. The last
    /// failure about a subject replaces those before, and its row goes on.
    fn subject(&self) -> Option<Subject> {
        None
    }
}

/// What questions with different keys are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Subject(pub u64);

/// The stored failures.
#[derive(Debug)]
struct Records<F> {
    by_key: Shares<Key, Backoff<F>>,
    /// The key of the last failure about each subject.
    by_subject: HashMap<Subject, Key>,
}

/// How long a backoff should last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delay {
    /// The usual time.
    Usual,
    /// At least this long, because the source wants it.
    AtLeast(Duration),
    /// At most this long, because the question is due then.
    AtMost(Duration),
}

/// One question's backoff.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Backoff<F> {
    /// How often in a row it failed.
    pub times: u32,
    /// The last failure.
    pub failure: F,
    /// When the last failure was.
    pub since: Timestamp,
    /// When the first failure of the row was. Records from before this field have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    /// How long it lasts.
    pub lasts: Duration,
}

impl<F> Backoff<F> {
    /// When the first failure of the row was.
    #[must_use]
    pub fn began(&self) -> Timestamp {
        self.first.unwrap_or(self.since)
    }

    /// For how long it failed, until the last failure.
    #[must_use]
    pub fn lasted(&self) -> Duration {
        self.since.since(self.began()).unwrap_or_default()
    }

    /// How long the backoff still lasts; `None` when it is over, or the clock jumped.
    #[must_use]
    pub fn left(&self, now: Timestamp) -> Option<Duration> {
        self.lasts.checked_sub(now.since(self.since)?).filter(|left| !left.is_zero())
    }
}

impl<F: Failed> Default for Failing<F> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Records { by_key: Shares::new(MAX_BYTES), by_subject: HashMap::new() })))
    }
}

impl<F: Failed> Records<F> {
    fn put(&mut self, key: Key, backoff: Backoff<F>, weight: u64) {
        if let Some(subject) = backoff.failure.subject()
            && let Some(before) = self.by_subject.insert(subject, key).filter(|before| *before != key)
        {
            self.by_key.remove(&before);
        }
        for (key, evicted) in self.by_key.insert(key, backoff, weight) {
            self.forget_subject(&key, &evicted);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(removed) = self.by_key.remove(key) {
            self.forget_subject(key, &removed);
        }
    }

    fn forget_subject(&mut self, key: &Key, removed: &Backoff<F>) {
        if let Some(subject) = removed.failure.subject()
            && self.by_subject.get(&subject) == Some(key)
        {
            self.by_subject.remove(&subject);
        }
    }
}

impl<F: Failed> Failing<F> {
    /// The failure of `key`, if its backoff still lasts at `now`.
    #[must_use]
    pub fn backoff(&self, key: &Key, now: Timestamp) -> Option<(Backoff<F>, Duration)> {
        let backoff = self.get(key)?;
        let left = backoff.left(now)?;
        Some((backoff, left))
    }

    /// All questions whose last run failed, whether their backoff is over or not.
    pub fn all(&self) -> impl Iterator<Item = (Key, F)> {
        self.backoffs().map(|(key, backoff)| (key, backoff.failure))
    }

    /// All questions whose last run failed, with their backoffs, which may be over.
    pub fn backoffs(&self) -> impl Iterator<Item = (Key, Backoff<F>)> {
        let backoffs: Vec<_> = self.0.lock().by_key.iter().map(|(key, backoff)| (*key, backoff.clone())).collect();
        backoffs.into_iter()
    }

    /// The last failure of `key`, whether its backoff is over or not.
    pub(crate) fn get(&self, key: &Key) -> Option<Backoff<F>> {
        self.0.lock().by_key.get(key).cloned()
    }

    /// The last failure about `subject`.
    pub(crate) fn about(&self, subject: Subject) -> Option<Backoff<F>> {
        let mut records = self.0.lock();
        let key = *records.by_subject.get(&subject)?;
        records.by_key.get(&key).cloned()
    }

    /// Forgets the failures about `subject`, because something was known of it at `at`.
    pub(crate) fn recovered_at(&self, subject: Subject, at: Timestamp) {
        let mut records = self.0.lock();
        if let Some(key) = records.by_subject.get(&subject).copied()
            && records.by_key.peek(&key).is_some_and(|backoff| backoff.since <= at)
        {
            records.remove(&key);
        }
    }

    /// All questions whose last run failed, and how long their backoffs last from `now`. Zero: the backoff is over.
    pub(crate) fn all_with_backoffs(&self, now: Timestamp) -> impl Iterator<Item = (Key, Backoff<F>, Duration)> {
        self.backoffs().map(move |(key, backoff)| {
            let left = backoff.left(now).unwrap_or_default();
            (key, backoff, left)
        })
    }

    /// Forgets the failures that `is_meant`.
    pub fn forget(&self, is_meant: impl Fn(&F) -> bool) {
        for (key, _) in self.backoffs().filter(|(_, backoff)| is_meant(&backoff.failure)) {
            self.recovered(&key);
        }
    }

    /// Ends the backoffs of the failures that `is_meant`. How often they failed is still known.
    pub(crate) fn end_backoffs(&self, is_meant: impl Fn(&F) -> bool) {
        for (key, backoff) in self.backoffs().filter(|(_, backoff)| is_meant(&backoff.failure)) {
            self.put(key, Backoff { lasts: Duration::ZERO, ..backoff });
        }
    }

    /// The backoff after one more failure. The first is one second, and each next one is twice as long, up to a minute, plus or
    /// minus a tenth. A failure about a subject continues the row of the last one about it.
    #[must_use]
    pub fn next(&self, key: &Key, failure: F, delay: Delay, now: Timestamp) -> Backoff<F> {
        let before = self.get(key);
        let times = before.as_ref().map_or(0, |before| before.times).saturating_add(1);
        let doubled = SHORTEST.saturating_mul(1_u32.checked_shl(times - 1).unwrap_or(u32::MAX)).min(LONGEST);
        let usual = doubled.mul_f64(0.9 + 0.2 * key.spread(now));
        let lasts = match delay {
            Delay::Usual => usual,
            Delay::AtLeast(least) => usual.max(least.min(LONGEST_REQUESTED)),
            Delay::AtMost(max) => usual.min(max),
        };
        // A clock that was put back must not make a failure older than its row.
        let row = before.or_else(|| self.about(failure.subject()?));
        let first = row.map_or(now, |row| row.began().min(now));
        Backoff { times, failure, since: now, first: Some(first), lasts }
    }

    /// How often in a row `key` has failed.
    pub fn times(&self, key: &Key) -> u32 {
        self.0.lock().by_key.get(key).map_or(0, |backoff| backoff.times)
    }

    /// Starts the backoff of `key`.
    pub fn put(&self, key: Key, backoff: Backoff<F>) {
        let weight = (size_of::<(Key, Backoff<F>)>() + backoff.failure.weight()) as u64;
        self.0.lock().put(key, backoff, weight);
    }

    /// Forgets the failures of `key`, because a run has succeeded.
    pub fn recovered(&self, key: &Key) {
        self.0.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::of_bytes([1; 32]);

    impl Failed for &'static str {
        fn weight(&self) -> usize {
            self.len()
        }
    }

    impl Failed for () {
        fn weight(&self) -> usize {
            0
        }
    }

    #[test]
    fn the_failures_of_one_route_do_not_end_the_backoffs_of_another() {
        let failing = Failing::default();
        let key = |route: u8, n: u32| {
            let mut bytes = [route; 32];
            bytes[..4].copy_from_slice(&n.to_le_bytes());
            Key::of_bytes(bytes)
        };
        let fail = |key: Key| failing.put(key, failing.next(&key, LONG, Delay::Usual, Timestamp(0)));
        (0..100).for_each(|n| fail(key(1, n)));
        (0..20_000).for_each(|n| fail(key(2, n)));
        assert!((0..100).all(|n| failing.backoff(&key(1, n), Timestamp(0)).is_some()));
        let kept = failing.backoffs().count();
        assert!((10_000..20_000).contains(&kept), "{kept}");
    }

    /// As long as a usual question and its failure.
    const LONG: &str = include_str!("last_served.rs").split_at(1000).0;

    #[test]
    fn backoffs_double_up_to_a_minute() {
        let failing = Failing::default();
        let mut now = Timestamp(1_000_000);
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            failing.put(KEY, failing.next(&KEY, "why", Delay::Usual, now));
            let (backoff, left) = failing.backoff(&KEY, now).unwrap();
            assert!((expected * 0.9..=expected * 1.1).contains(&left.as_secs_f64()), "{expected}: {left:?}");
            assert_eq!(backoff.failure, "why");
            now = Timestamp(now.0 + 70_000);
            assert!(failing.backoff(&KEY, now).is_none());
        }
        failing.recovered(&KEY);
        failing.put(KEY, failing.next(&KEY, "why", Delay::Usual, now));
        assert_eq!(failing.backoff(&KEY, now).unwrap().0.times, 1);
    }

    #[test]
    fn a_source_may_ask_for_more_within_reason() {
        let failing = Failing::default();
        let left = |resolved| {
            failing.put(KEY, failing.next(&KEY, (), Delay::AtLeast(Duration::from_secs(resolved)), Timestamp(0)));
            failing.backoff(&KEY, Timestamp(0)).unwrap().1.as_secs()
        };
        assert_eq!((left(120), left(1_000_000)), (120, 600));
    }

    #[test]
    fn a_backoff_ends_when_the_question_is_due() {
        let failing = Failing::default();
        for _ in 0..10 {
            failing.put(KEY, failing.next(&KEY, (), Delay::AtMost(Duration::from_secs(8)), Timestamp(0)));
        }
        assert_eq!(failing.backoff(&KEY, Timestamp(0)).unwrap().1, Duration::from_secs(8));
        assert!(failing.backoff(&KEY, Timestamp(8000)).is_none());
    }

    #[test]
    fn a_row_of_failures_lasts_from_its_first_one() {
        let failing = Failing::default();
        let fail = |at| failing.put(KEY, failing.next(&KEY, "why", Delay::Usual, Timestamp(at)));
        [1000, 61_000, 3_661_000].into_iter().for_each(fail);
        let backoff = failing.get(&KEY).unwrap();
        assert_eq!((backoff.began(), backoff.lasted()), (Timestamp(1000), Duration::from_mins(61)));
        fail(500);
        assert_eq!(failing.get(&KEY).unwrap().began(), Timestamp(500), "the clock was put back");
        failing.recovered(&KEY);
        fail(9000);
        assert_eq!(failing.get(&KEY).unwrap().lasted(), Duration::ZERO);
        let old: Backoff<String> =
            serde_json::from_str(r#"{"times":2,"failure":"why","since":7,"lasts":{"secs":1,"nanos":0}}"#).unwrap();
        assert_eq!((old.began(), old.lasted()), (Timestamp(7), Duration::ZERO), "a record without the first one");
    }

    #[derive(Debug, Clone)]
    struct OfSubject(u64);

    impl Failed for OfSubject {
        fn weight(&self) -> usize {
            1_000_000
        }

        fn subject(&self) -> Option<Subject> {
            Some(Subject(self.0))
        }
    }

    #[test]
    fn the_row_of_a_subject_goes_on_under_another_key() {
        let (failing, key) = (Failing::default(), |n| Key::of_bytes([n; 32]));
        let fail = |n, subject, at| {
            failing.put(key(n), failing.next(&key(n), OfSubject(subject), Delay::Usual, Timestamp(at)));
        };
        fail(1, 7, 1000);
        fail(1, 7, 61_000);
        fail(2, 7, 121_000);
        let of_next = failing.get(&key(2)).unwrap();
        assert_eq!((of_next.times, of_next.lasted()), (1, Duration::from_mins(2)), "it is queried again soon");
        assert!(failing.get(&key(1)).is_none(), "nobody asks for the item before");
        fail(3, 8, 121_000);
        assert_eq!(failing.get(&key(3)).unwrap().lasted(), Duration::ZERO, "another subject");

        failing.recovered_at(Subject(7), Timestamp(120_000));
        assert!(failing.about(Subject(7)).is_some(), "that was before the last failure");
        failing.recovered_at(Subject(7), Timestamp(122_000));
        assert!(failing.get(&key(2)).is_none());
        fail(2, 7, 181_000);
        assert_eq!(failing.get(&key(2)).unwrap().lasted(), Duration::ZERO, "a new row");
        failing.recovered(&key(2));
        assert!(failing.about(Subject(7)).is_none());

        (10..60).for_each(|n| fail(n, u64::from(n), 200_000));
        let (stored, subjects) = (failing.backoffs().count(), failing.0.lock().by_subject.len());
        assert!(stored < 20, "{stored}");
        assert_eq!(stored, subjects, "with an evicted failure its subject is forgotten");
    }

    #[test]
    fn a_clock_that_jumps_ends_the_backoff() {
        let failing = Failing::default();
        failing.put(KEY, failing.next(&KEY, (), Delay::Usual, Timestamp(1000)));
        assert!(failing.backoff(&KEY, Timestamp(999)).is_none());
    }
}
