//! Limits how many different questions the callers of one entry ask within a day. Each new question may make the gateway ask a source, and
//! remember the answer.
//!
//! A question that was sent within this hour costs one load: a table of atomic numbers shows it. Otherwise the lock is taken.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use domain::clock::Timestamp;

/// The highest limit. Each question takes some 20 bytes.
pub(super) const MOST: usize = 1_000_000;
/// A question counts for so many hours after the one in which it was last sent.
const COUNTS_FOR: u64 = 24;
const HOUR_MS: u64 = 3_600_000;
/// The logarithm of the number of slots, which are 64 KiB in all.
const SLOT_BITS: u32 = 13;
/// Spreads the hours over all bits: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The questions of one entry's callers.
#[derive(Debug)]
pub(super) struct Questions {
    max: usize,
    /// Questions with the hour in which they were sent. A slot that is overwritten costs one more lookup in the book.
    noted: Box<[AtomicU64]>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    /// The hour in which each question was last sent.
    hours: HashMap<u64, u64, RandomState>,
    /// The hour in which questions were last dropped, and the one from which on more can be.
    swept: u64,
    next: u64,
}

impl Questions {
    /// At most `max` questions within a day.
    pub(super) fn new(max: usize) -> Self {
        let noted = std::iter::repeat_with(AtomicU64::default).take(1 << SLOT_BITS).collect();
        Self { max, noted, book: Mutex::default() }
    }

    /// How many questions there may be.
    pub(super) const fn max(&self) -> usize {
        self.max
    }

    /// Notes that the question `id` is sent at `now`. Ids are hashes, and look random.
    ///
    /// # Errors
    /// When it would be one too many: the time until another may be allowed.
    pub(super) fn note(&self, id: u64, now: Timestamp) -> Result<(), Duration> {
        let hour = now.0 / HOUR_MS;
        // Never 0, which is what an unused slot holds.
        let mark = (id ^ hour.wrapping_mul(SPREAD)) | 1;
        let slot = usize::try_from(id >> (u64::BITS - SLOT_BITS)).ok().and_then(|slot| self.noted.get(slot));
        if slot.is_some_and(|slot| slot.load(Ordering::Relaxed) == mark) {
            return Ok(());
        }
        self.write(id, hour, now)?;
        if let Some(slot) = slot {
            slot.store(mark, Ordering::Relaxed);
        }
        Ok(())
    }

    #[cold]
    fn write(&self, id: u64, hour: u64, now: Timestamp) -> Result<(), Duration> {
        let mut book = self.book.lock();
        if let Some(last) = book.hours.get_mut(&id) {
            *last = hour;
            return Ok(());
        }
        if book.hours.len() >= self.max {
            book.sweep(hour);
        }
        if book.hours.len() >= self.max {
            return Err(Duration::from_millis((book.next * HOUR_MS).saturating_sub(now.0)));
        }
        book.hours.insert(id, hour);
        Ok(())
    }
}

impl Book {
    /// Drops the questions that were not sent for a day. A clock that was put back drops none.
    fn sweep(&mut self, hour: u64) {
        if self.swept == hour {
            return;
        }
        self.swept = hour;
        self.hours.retain(|_, last| hour.saturating_sub(*last) <= COUNTS_FOR);
        self.next = self.hours.values().min().map_or(hour, |last| last + COUNTS_FOR) + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> u64 {
        (number + 1).wrapping_mul(SPREAD)
    }

    fn at(hours: u64) -> Timestamp {
        Timestamp((480_000 + hours) * HOUR_MS + 1_800_000)
    }

    #[test]
    fn a_day_has_so_many_questions_and_no_more() {
        let questions = Questions::new(3);
        for number in [0, 1, 2, 1, 0] {
            assert_eq!(questions.note(id(number), at(0)), Ok(()));
        }
        let refused = questions.note(id(3), at(0)).unwrap_err();
        assert_eq!(refused, Duration::from_mins(24 * 60 + 30));
        assert_eq!(questions.note(id(0), at(20)), Ok(()), "it was sent before");
        assert!(questions.note(id(3), at(24)).is_err());
        assert_eq!((questions.note(id(3), at(25)), questions.note(id(4), at(25))), (Ok(()), Ok(())));
        assert_eq!(questions.note(id(5), at(25)), Err(Duration::from_mins(19 * 60 + 30)), "the first still counts");
        assert_eq!(questions.note(id(0), at(25)), Ok(()));
        assert!(questions.note(id(5), at(0)).is_err(), "the clock was put back");
    }

    #[test]
    fn its_memory_is_bounded_by_the_limit() {
        let questions = Questions::new(1000);
        let taken = (0..100_000).filter(|number| questions.note(id(*number), at(0)).is_ok()).count();
        assert_eq!((taken, questions.book.lock().hours.len()), (1000, 1000));
        assert!((0..1000).all(|number| questions.note(id(number), at(1)).is_ok()));
    }
}
