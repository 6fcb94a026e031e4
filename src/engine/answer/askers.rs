//! The ApplicationSets that recently asked each question, for operators. Where the answer does not depend on the
//! ApplicationSet, neither the question nor its key names one.
//!
//! A cache hit costs one hash and one load: a table of atomic numbers tells that the asker was recorded within the hour.
//! Otherwise the lock is taken. Nothing is written to disk: after a start the names return with the next calls.

use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use crate::{domain::clock::Timestamp, engine::cache::Key};

/// The number of ApplicationSets that are remembered for one question.
const MAX_PER_QUESTION: usize = 5;
/// The number of questions in a generation; two generations are remembered.
const MAX_QUESTIONS: usize = 20_000;
/// The number of different names that are remembered.
const MAX_NAMES: usize = 1000;
/// The longest name, in bytes: Kubernetes has no longer ones.
const MAX_NAME_BYTES: usize = 253;
/// ApplicationSets that asked longer ago are not listed.
const TOLD_FOR: Duration = Duration::from_hours(24);
/// How often the time of an asker is renewed, in milliseconds.
const RENEWED_EVERY_MS: u64 = 3_600_000;
/// The logarithm of the number of slots, which are 64 KiB in all.
const SLOT_BITS: u32 = 13;

/// The ApplicationSets that recently asked each question.
#[derive(Debug)]
pub(super) struct Askers {
    hasher: RandomState,
    /// Hashes of a question, a name and the hour. A slot that is overwritten costs one more look into the book.
    noted: Box<[AtomicU64]>,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    young: HashMap<Key, Vec<Asker>>,
    /// The older generation. A question that is asked again moves to the young one; the rest is dropped with the next change.
    old: HashMap<Key, Vec<Asker>>,
    names: HashSet<Arc<str>>,
}

#[derive(Debug)]
struct Asker {
    name: Arc<str>,
    at: Timestamp,
}

impl Default for Askers {
    fn default() -> Self {
        let noted = std::iter::repeat_with(AtomicU64::default).take(1 << SLOT_BITS).collect();
        Self { hasher: RandomState::default(), noted, book: Mutex::default() }
    }
}

impl Askers {
    /// Notes that the ApplicationSet `name` asked the question with `key` at `now`.
    pub(crate) fn note(&self, key: &Key, name: &str, now: Timestamp) {
        // Never 0, which is what an unused slot holds.
        let hash = self.hasher.hash_one((key, name, now.0 / RENEWED_EVERY_MS)) | 1;
        let slot = usize::try_from(hash >> (u64::BITS - SLOT_BITS)).unwrap_or_default();
        let Some(slot) = self.noted.get(slot) else { return };
        if slot.load(Ordering::Relaxed) != hash {
            slot.store(hash, Ordering::Relaxed);
            self.write(*key, name, now);
        }
    }

    #[cold]
    fn write(&self, key: Key, name: &str, now: Timestamp) {
        // Anything else is not a Kubernetes name, and could do harm on a terminal.
        let is_name = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name {
            self.book.lock().write(key, name, now);
        }
    }

    /// The ApplicationSets that asked the question with `key` in the day before `now`: the last one first.
    pub(crate) fn of(&self, key: &Key, now: Timestamp) -> Vec<Arc<str>> {
        let book = self.book.lock();
        let askers = book.young.get(key).or_else(|| book.old.get(key)).into_iter().flatten();
        let recent = askers.filter(|asker| now.since(asker.at).is_none_or(|passed| passed < TOLD_FOR));
        recent.map(|asker| Arc::clone(&asker.name)).collect()
    }
}

impl Book {
    fn write(&mut self, key: Key, name: &str, now: Timestamp) {
        let Some(name) = self.intern(name) else { return };
        if !self.young.contains_key(&key) {
            let before = self.old.remove(&key).unwrap_or_default();
            if self.young.len() >= MAX_QUESTIONS {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.insert(key, before);
        }
        let askers = self.young.entry(key).or_default();
        askers.retain(|asker| asker.name != name);
        askers.insert(0, Asker { name, at: now });
        askers.truncate(MAX_PER_QUESTION);
    }

    /// The shared copy of `name`; `None` if too many other names are in use.
    fn intern(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.names.get(name) {
            return Some(Arc::clone(known));
        }
        if self.names.len() >= MAX_NAMES {
            self.names.retain(|name| Arc::strong_count(name) > 1);
        }
        let name: Arc<str> = name.into();
        (self.names.len() < MAX_NAMES && self.names.insert(Arc::clone(&name))).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Key::of_bytes(bytes)
    }

    fn names(askers: &Askers, number: usize, now: Timestamp) -> Vec<String> {
        askers.of(&key(number), now).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_last_few_are_told_the_last_one_first() {
        let (askers, now) = (Askers::default(), Timestamp(0));
        for name in ["a", "b", "c", "a"] {
            askers.note(&key(1), name, now);
        }
        assert_eq!(names(&askers, 1, now), ["c", "b", "a"], "a hit within the hour is not noted twice");
        for number in 0..10 {
            askers.note(&key(1), &format!("set-{number}"), now);
        }
        assert_eq!(names(&askers, 1, now), ["set-9", "set-8", "set-7", "set-6", "set-5"]);
        assert!(names(&askers, 2, now).is_empty());
    }

    #[test]
    fn whoever_has_not_asked_for_a_day_is_not_told() {
        let (askers, hour) = (Askers::default(), Duration::from_hours(1));
        let at = |hours: u32| Timestamp(0).plus(hour * hours);
        askers.note(&key(1), "left", at(0));
        for hours in 0..24 {
            askers.note(&key(1), "stays", at(hours));
        }
        assert_eq!(names(&askers, 1, at(23)), ["stays", "left"]);
        assert_eq!(names(&askers, 1, at(24)), ["stays"]);
    }

    #[test]
    fn memory_is_bounded() {
        let (askers, now) = (Askers::default(), Timestamp(0));
        for number in 0..3 * MAX_QUESTIONS {
            askers.note(&key(number), "a", now);
            askers.note(
                &key(0),
                "a",
                Timestamp(0).plus(Duration::from_millis(RENEWED_EVERY_MS) * u32::from(number % 2 == 1)),
            );
        }
        let count = |askers: &Askers| {
            let book = askers.book.lock();
            (book.young.len() + book.old.len(), book.names.len())
        };
        assert!(count(&askers).0 <= 2 * MAX_QUESTIONS);
        assert_eq!(names(&askers, 0, now), ["a"], "what is asked again is not forgotten");
        assert!(names(&askers, 1, now).is_empty());
        for number in 0..3 * MAX_NAMES {
            askers.note(&key(0), &format!("set-{number}"), now);
        }
        assert!(count(&askers).1 <= MAX_NAMES);
        assert_eq!(names(&askers, 0, now)[0], format!("set-{}", 3 * MAX_NAMES - 1), "names that nobody uses make room");
    }

    #[test]
    fn the_question_that_begins_a_generation_keeps_its_names() {
        let (askers, now) = (Askers::default(), Timestamp(0));
        (0..=MAX_QUESTIONS).for_each(|number| askers.note(&key(number), "a", now));
        // The first is of the old generation now; the young one is full before it is asked again.
        (MAX_QUESTIONS + 1..2 * MAX_QUESTIONS).for_each(|number| askers.note(&key(number), "a", now));
        askers.note(&key(0), "b", now);
        assert_eq!(names(&askers, 0, now), ["b", "a"]);
    }

    #[test]
    fn what_is_no_name_is_not_kept() {
        let (askers, now) = (Askers::default(), Timestamp(0));
        for name in ["", "a\u{1b}[2J", "ü", "a b", &"x".repeat(MAX_NAME_BYTES + 1)] {
            askers.note(&key(1), name, now);
        }
        assert!(names(&askers, 1, now).is_empty());
    }
}
