//! After a failure, a question rests before the backend is asked again, so that callers do not overload a source in
//! trouble. A stored failure never replaces a last good answer.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::Key;
use crate::{bounded_cache::Recent, domain::clock::Timestamp};

/// The first rest.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest rest of our own choosing.
const LONGEST: Duration = Duration::from_mins(1);
/// The longest rest that a source may ask for.
const LONGEST_ASKED: Duration = Duration::from_mins(10);
/// How many questions are stored. Those that were looked at longest ago are dropped first.
const MAX_QUESTIONS: usize = 10_000;

/// The failures, by question.
#[derive(Debug, Clone)]
pub(crate) struct Failing<F: Clone + Send + Sync + 'static>(Arc<Recent<Key, Rest<F>>>);

/// A wish for the length of a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// No wish: the usual time.
    Usual,
    /// At least this long, because the source asked for it.
    AtLeast(Duration),
    /// At most this long, because the question is due then.
    AtMost(Duration),
}

/// One question's rest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Rest<F> {
    /// How often in a row it failed.
    pub(crate) times: u32,
    /// What happened the last time.
    pub(crate) failure: F,
    /// When it began.
    pub(crate) since: Timestamp,
    /// How long it lasts.
    pub(crate) lasts: Duration,
}

impl<F> Rest<F> {
    /// How long the rest still lasts; `None` when it is over, or the clock jumped.
    #[must_use]
    pub(crate) fn left(&self, now: Timestamp) -> Option<Duration> {
        self.lasts.checked_sub(now.since(self.since)?).filter(|left| !left.is_zero())
    }
}

impl<F: Clone + Send + Sync + 'static> Default for Failing<F> {
    fn default() -> Self {
        Self(Arc::new(Recent::new(MAX_QUESTIONS)))
    }
}

impl<F: Clone + Send + Sync + 'static> Failing<F> {
    /// The failure of `key`, if it still rests at `now`.
    #[must_use]
    pub(crate) fn resting(&self, key: &Key, now: Timestamp) -> Option<(Rest<F>, Duration)> {
        let rest = self.0.get(key)?;
        let left = rest.left(now)?;
        Some((rest, left))
    }

    /// All questions whose last run failed, whether they still rest or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Key, F)> {
        self.rests().map(|(key, rest)| (key, rest.failure))
    }

    /// All questions whose last run failed, with their rests, which may be over.
    pub(crate) fn rests(&self) -> impl Iterator<Item = (Key, Rest<F>)> {
        self.0.snapshot().into_iter()
    }

    /// All questions that rest at `now`, and for how long.
    pub(crate) fn resting_all(&self, now: Timestamp) -> impl Iterator<Item = (Key, Rest<F>, Duration)> {
        self.rests().filter_map(move |(key, rest)| {
            let left = rest.left(now)?;
            Some((key, rest, left))
        })
    }

    /// Forgets the failures that `is_meant`.
    pub(crate) fn forget(&self, is_meant: impl Fn(&F) -> bool) {
        for (key, _) in self.rests().filter(|(_, rest)| is_meant(&rest.failure)) {
            self.0.remove(&key);
        }
    }

    /// Ends the rests of the failures that `is_meant`. How often they failed is still known.
    pub(crate) fn end_rests(&self, is_meant: impl Fn(&F) -> bool) {
        for (key, rest) in self.rests().filter(|(_, rest)| is_meant(&rest.failure)) {
            self.0.insert(key, Rest { lasts: Duration::ZERO, ..rest });
        }
    }

    /// The rest after one more failure. The first is one second, and each next one is twice as long, up to a minute, plus or
    /// minus a tenth.
    #[must_use]
    pub(crate) fn next(&self, key: &Key, failure: F, wish: Wish, now: Timestamp) -> Rest<F> {
        let times = self.0.get(key).map_or(0, |rest| rest.times).saturating_add(1);
        let doubled = SHORTEST.saturating_mul(1_u32.checked_shl(times - 1).unwrap_or(u32::MAX)).min(LONGEST);
        let usual = doubled.mul_f64(0.9 + 0.2 * key.spread(now));
        let lasts = match wish {
            Wish::Usual => usual,
            Wish::AtLeast(least) => usual.max(least.min(LONGEST_ASKED)),
            Wish::AtMost(max) => usual.min(max),
        };
        Rest { times, failure, since: now, lasts }
    }

    /// How often in a row `key` has failed.
    pub(crate) fn times(&self, key: &Key) -> u32 {
        self.0.get(key).map_or(0, |rest| rest.times)
    }

    /// Lets `key` rest.
    pub(crate) fn put(&self, key: Key, rest: Rest<F>) {
        self.0.insert(key, rest);
    }

    /// Forgets the failures of `key`, because a run has succeeded.
    pub(crate) fn recovered(&self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::of_bytes([1; 32]);

    #[test]
    fn rests_double_up_to_a_minute() {
        let failing = Failing::default();
        let mut now = Timestamp(1_000_000);
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0] {
            failing.put(KEY, failing.next(&KEY, "why", Wish::Usual, now));
            let (rest, left) = failing.resting(&KEY, now).unwrap();
            assert!((expected * 0.9..=expected * 1.1).contains(&left.as_secs_f64()), "{expected}: {left:?}");
            assert_eq!(rest.failure, "why");
            now = Timestamp(now.0 + 70_000);
            assert!(failing.resting(&KEY, now).is_none());
        }
        failing.recovered(&KEY);
        failing.put(KEY, failing.next(&KEY, "why", Wish::Usual, now));
        assert_eq!(failing.resting(&KEY, now).unwrap().0.times, 1);
    }

    #[test]
    fn a_source_may_ask_for_more_within_reason() {
        let failing = Failing::default();
        let left = |asked| {
            failing.put(KEY, failing.next(&KEY, (), Wish::AtLeast(Duration::from_secs(asked)), Timestamp(0)));
            failing.resting(&KEY, Timestamp(0)).unwrap().1.as_secs()
        };
        assert_eq!((left(120), left(1_000_000)), (120, 600));
    }

    #[test]
    fn what_is_due_does_not_rest_on() {
        let failing = Failing::default();
        for _ in 0..10 {
            failing.put(KEY, failing.next(&KEY, (), Wish::AtMost(Duration::from_secs(8)), Timestamp(0)));
        }
        assert_eq!(failing.resting(&KEY, Timestamp(0)).unwrap().1, Duration::from_secs(8));
        assert!(failing.resting(&KEY, Timestamp(8000)).is_none());
    }

    #[test]
    fn a_clock_that_jumps_ends_the_rest() {
        let failing = Failing::default();
        failing.put(KEY, failing.next(&KEY, (), Wish::Usual, Timestamp(1000)));
        assert!(failing.resting(&KEY, Timestamp(999)).is_none());
    }
}
