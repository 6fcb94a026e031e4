//! When a caller last got an answer, and whether the answer was prefetched since.

use std::sync::atomic::{AtomicU64, Ordering};

use domain::clock::Timestamp;

/// When a caller last got an answer, and whether the answer was prefetched since. It lives in memory only, and is
/// changed without a lock by each call: the time in milliseconds, shifted by one bit, which means *prefetched*.
#[derive(Debug, Default)]
pub struct LastServed(AtomicU64);

impl LastServed {
    /// The value of an answer that was prefetched.
    pub const fn prefetched() -> Self {
        Self(AtomicU64::new(1))
    }

    /// Notes that a caller gets the answer at `now`. Returns whether it was prefetched and is served for the first time.
    pub fn note(&self, now: Timestamp) -> bool {
        let was_prefetched = self.0.load(Ordering::Relaxed) & 1 == 1;
        self.0.store(now.0 << 1, Ordering::Relaxed);
        was_prefetched
    }

    /// When a caller last got it. `None` if that is not known.
    pub(crate) fn at(&self) -> Option<Timestamp> {
        Some(Timestamp(self.0.load(Ordering::Relaxed) >> 1)).filter(|at| at.0 > 0)
    }

    /// A number that differs after each call, unless two come within a millisecond.
    pub(super) fn stamp(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes over when a caller last got `before`, an earlier answer to the same question.
    pub fn follow(&self, before: &Self) {
        let own = self.0.load(Ordering::Relaxed);
        let last = before.0.load(Ordering::Relaxed) & !1;
        self.0.store(own.max(last | (own & 1)), Ordering::Relaxed);
    }
}

impl Clone for LastServed {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_caller_after_a_prefetch_learns_of_it() {
        let (before, now) = (LastServed::default(), Timestamp(1_764_000_000_123));
        assert_eq!((before.at(), before.note(now), before.at()), (None, false, Some(now)));
        let renewed = LastServed::prefetched();
        assert_eq!(renewed.at(), None);
        renewed.follow(&before);
        assert_eq!(renewed.at(), Some(now));
        let later = Timestamp(now.0 + 5);
        assert_eq!((renewed.note(later), renewed.note(later)), (true, false));
        assert_eq!(renewed.clone().at(), Some(later));
    }
}
