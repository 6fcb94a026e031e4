//! The recent requesters of each question, ApplicationSets, and the answer that each was served: for operators, and to notify an ApplicationSet
//! of another answer. Where the answer does not depend on the ApplicationSet, neither the question nor its key names one.
//!
//! A cache hit costs one hash and one load: a table of atomic numbers shows that the requester was recorded within the hour, with the
//! answer of the same run. Otherwise the lock is taken. Changes are written to the file and sent to other replicas in the background
//! if Argo CD is to be notified. Otherwise the names return with the next calls after a start.

use std::{
    collections::{HashMap, HashSet},
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::cache::{Key, RouteId, Shares};
use domain::{clock::Timestamp, generator::Question};

/// The number of ApplicationSets that are remembered for one question.
const MAX_PER_QUESTION: usize = 100;
/// The number of questions and of ApplicationSets that are remembered, counted for each question. Routes share it.
const MAX_REQUESTERS: u64 = 100_000;
/// The number of changes that wait to be sent to other replicas. Later ones are sent an hour later.
const MAX_CHANGED: usize = 10_000;
/// The number of different names that are remembered of one route.
const MAX_NAMES: usize = 1000;
/// The longest name, in bytes: Kubernetes has none beyond 253, and namespaces have at most 63.
const MAX_NAME_BYTES: usize = 253 + 1 + 63;
/// Requesters of longer ago are not listed.
const LISTED_FOR: Duration = Duration::from_hours(24);
/// How often the time of a requester is renewed, in milliseconds.
const RENEWED_EVERY_MS: u64 = 3_600_000;
/// The logarithm of the number of slots, which are 64 KiB in all.
const SLOT_BITS: u32 = 13;

/// The recent requesters of each question.
#[derive(Debug)]
pub(crate) struct Requesters {
    hasher: RandomState,
    /// Hashes of a question, a name, the hour and a run. A slot that is overwritten costs one more lookup in the book.
    noted: Box<[AtomicU64]>,
    book: Mutex<Book>,
    /// Whether the changes are taken.
    is_followed: AtomicBool,
}

#[derive(Debug)]
struct Book {
    questions: Shares<Key, Vec<Requester>>,
    names: HashMap<RouteId, HashSet<Arc<str>, RandomState>, RandomState>,
    /// The changes that were not taken yet.
    changed: HashMap<(Key, Arc<str>), (Timestamp, Fingerprint), RandomState>,
}

/// An ApplicationSet that sent a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requester {
    /// Its name, with its namespace and a `/` before it if the caller sent it.
    pub name: Arc<str>,
    /// When it last sent it, to the hour.
    pub at: Timestamp,
    // Earlier builds stored it as `given`.
    /// The answer that it was served.
    #[serde(alias = "given")]
    pub served: Fingerprint,
}

/// The requesters of `question`: the `known` ones, which may have a namespace, else the one that the question names.
pub(crate) fn named(question: &Question, known: Vec<Arc<str>>) -> Vec<Arc<str>> {
    match &question.application_set {
        Some(name) if known.is_empty() => Some(Arc::clone(name)).filter(|name| !name.is_empty()).into_iter().collect(),
        _ => known,
    }
}

/// Spreads the numbers of runs over all bits: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// The run of an error.
pub(crate) const NO_RUN: u64 = 0;

/// A hash of the answer that a caller was served; 0 for an error.
pub(crate) type Fingerprint = u64;

impl Default for Requesters {
    fn default() -> Self {
        let noted = std::iter::repeat_with(AtomicU64::default).take(1 << SLOT_BITS).collect();
        let book =
            Book { questions: Shares::new(MAX_REQUESTERS), names: HashMap::default(), changed: HashMap::default() };
        Self { hasher: RandomState::default(), noted, book: Mutex::new(book), is_followed: AtomicBool::new(false) }
    }
}

impl Requesters {
    /// Notes that the ApplicationSet `name` sent the question with `key` at `now`, and was served the answer of `run`. `served` is called
    /// only if that was not noted yet.
    pub(crate) fn note(&self, key: &Key, name: &str, now: Timestamp, run: u64, served: impl FnOnce() -> Fingerprint) {
        let hash = self.hasher.hash_one((key, name, now.0 / RENEWED_EVERY_MS));
        let slot = usize::try_from(hash >> (u64::BITS - SLOT_BITS)).unwrap_or_default();
        // Never 0, which is what an unused slot holds.
        let hash = (hash ^ run.wrapping_mul(SPREAD)) | 1;
        let Some(slot) = self.noted.get(slot) else { return };
        // An error has no run. It may come between two times the same answer, so it is always written.
        if run == NO_RUN || slot.load(Ordering::Relaxed) != hash {
            slot.store(if run == NO_RUN { 0 } else { hash }, Ordering::Relaxed);
            self.write(*key, name, now, served());
        }
    }

    #[cold]
    fn write(&self, key: Key, name: &str, now: Timestamp, served: Fingerprint) {
        // Anything else is not a Kubernetes name, and could do harm on a terminal.
        let is_name = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
        if is_name {
            self.book.lock().write(key, name, now, served, self.is_followed.load(Ordering::Relaxed));
        }
    }

    /// The requesters of the question with `key` in the day before `now`: the last one first.
    pub(crate) fn of(&self, key: &Key, now: Timestamp) -> Vec<Requester> {
        let book = self.book.lock();
        let requesters = book.questions.peek(key).into_iter().flatten();
        requesters
            .filter(|requester| now.since(requester.at).is_none_or(|passed| passed < LISTED_FOR))
            .cloned()
            .collect()
    }

    /// The requesters of questions to `route` in the day before `now`.
    pub(crate) fn of_route(&self, route: RouteId, now: Timestamp) -> Vec<Arc<str>> {
        let book = self.book.lock();
        let requesters = book.questions.of_route(route).flatten();
        let recent = requesters.filter(|requester| now.since(requester.at).is_none_or(|passed| passed < LISTED_FOR));
        recent.map(|requester| Arc::clone(&requester.name)).collect()
    }

    /// The changes since the last call. The first call takes everything.
    pub(crate) fn take_changed(&self) -> Vec<(Key, Requester)> {
        let mut book = self.book.lock();
        if !self.is_followed.swap(true, Ordering::Relaxed) {
            let all = book
                .questions
                .iter()
                .flat_map(|(key, requesters)| requesters.iter().map(|requester| (*key, requester)));
            return all.map(|(key, requester)| (key, requester.clone())).collect();
        }
        let changed = std::mem::take(&mut book.changed).into_iter();
        changed.map(|((key, name), (at, served))| (key, Requester { name, at, served })).collect()
    }

    /// Puts back changes that could not be sent. Later ones of the same requesters stay.
    pub(crate) fn put_back(&self, changes: Vec<(Key, Requester)>) {
        let mut book = self.book.lock();
        for (key, Requester { name, at, served }) in changes {
            if book.changed.len() < MAX_CHANGED {
                book.changed.entry((key, name)).or_insert((at, served));
            }
        }
    }

    /// Takes over the requesters of the question with `key` before a start, the last one first. Returns whether any of them sent it in the
    /// day before `now`.
    pub(crate) fn restore(&self, key: Key, requesters: &[Requester], now: Timestamp) -> bool {
        let mut book = self.book.lock();
        let recent = |requester: &&Requester| now.since(requester.at).is_none_or(|passed| passed < LISTED_FOR);
        let mut is_recent = false;
        for requester in requesters.iter().filter(recent).rev() {
            book.write(key, &requester.name, requester.at, requester.served, false);
            is_recent = true;
        }
        is_recent
    }
}

impl Book {
    fn write(&mut self, key: Key, name: &str, now: Timestamp, served: Fingerprint, is_followed: bool) {
        let Some(name) = self.intern(key.route(), name) else { return };
        let mut requesters = self.questions.remove(&key).unwrap_or_default();
        let is_same = requesters.iter().find(|requester| requester.name == name).is_some_and(|requester| {
            requester.served == served && requester.at.0 / RENEWED_EVERY_MS == now.0 / RENEWED_EVERY_MS
        });
        if is_followed && !is_same && self.changed.len() < MAX_CHANGED {
            self.changed.insert((key, Arc::clone(&name)), (now, served));
        }
        requesters.retain(|requester| requester.name != name);
        requesters.insert(0, Requester { name, at: now, served });
        requesters.truncate(MAX_PER_QUESTION);
        let weight = 1 + requesters.len() as u64;
        self.questions.insert(key, requesters, weight);
    }

    /// The copy of `name` that all requesters of `route` share; `None` if too many other names are in use there.
    fn intern(&mut self, route: RouteId, name: &str) -> Option<Arc<str>> {
        let names = self.names.entry(route).or_default();
        if let Some(known) = names.get(name) {
            return Some(Arc::clone(known));
        }
        if names.len() >= MAX_NAMES {
            names.retain(|name| Arc::strong_count(name) > 1);
        }
        let name: Arc<str> = name.into();
        (names.len() < MAX_NAMES && names.insert(Arc::clone(&name))).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        of_route(0, number)
    }

    fn of_route(route: u8, number: usize) -> Key {
        let mut bytes = [route; 32];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Key::of_bytes(bytes)
    }

    fn note(requesters: &Requesters, number: usize, name: &str, now: Timestamp) {
        requesters.note(&key(number), name, now, 1, || 7);
    }

    fn names(requesters: &Requesters, number: usize, now: Timestamp) -> Vec<String> {
        requesters.of(&key(number), now).iter().map(|requester| requester.name.to_string()).collect()
    }

    #[test]
    fn the_last_few_are_listed_the_last_one_first() {
        let (requesters, now) = (Requesters::default(), Timestamp(0));
        for name in ["a", "b", "c", "a"] {
            note(&requesters, 1, name, now);
        }
        assert_eq!(names(&requesters, 1, now), ["c", "b", "a"], "a hit within the hour is not noted twice");
        for number in 0..2 * MAX_PER_QUESTION {
            note(&requesters, 1, &format!("set-{number}"), now);
        }
        let concern = names(&requesters, 1, now);
        assert_eq!((concern.len(), &*concern[0]), (MAX_PER_QUESTION, &*format!("set-{}", 2 * MAX_PER_QUESTION - 1)));
        assert!(names(&requesters, 2, now).is_empty());
    }

    #[test]
    fn requesters_of_more_than_a_day_ago_are_not_listed() {
        let (requesters, hour) = (Requesters::default(), Duration::from_hours(1));
        let at = |hours: u32| Timestamp(0).plus(hour * hours);
        note(&requesters, 1, "left", at(0));
        for hours in 0..24 {
            note(&requesters, 1, "stays", at(hours));
        }
        assert_eq!(names(&requesters, 1, at(23)), ["stays", "left"]);
        assert_eq!(names(&requesters, 1, at(24)), ["stays"]);
    }

    #[test]
    fn memory_is_bounded() {
        let (requesters, now) = (Requesters::default(), Timestamp(0));
        for number in 0..100_000 {
            note(&requesters, number, "a", now);
            let later = Timestamp(0).plus(Duration::from_millis(RENEWED_EVERY_MS) * u32::from(number % 2 == 1));
            note(&requesters, 0, "a", later);
        }
        let count = |requesters: &Requesters| {
            let book = requesters.book.lock();
            (book.questions.len(), book.names[&key(0).route()].len())
        };
        assert_eq!(count(&requesters).0, 50_000);
        assert_eq!(names(&requesters, 0, now), ["a"], "what is sent again is not forgotten");
        assert!(names(&requesters, 1, now).is_empty());
        for number in 0..3 * MAX_NAMES {
            note(&requesters, 0, &format!("set-{number}"), now);
        }
        assert!(count(&requesters).1 <= MAX_NAMES);
        assert_eq!(names(&requesters, 0, now)[0], format!("set-{}", 3 * MAX_NAMES - 1), "unused names are evicted");
    }

    #[test]
    fn the_requesters_of_one_route_evict_none_of_another() {
        let (requesters, now) = (Requesters::default(), Timestamp(0));
        let note = |key: Key, name: &str| requesters.note(&key, name, now, 1, || 7);
        (0..100).for_each(|number| note(of_route(1, number), "quiet"));
        (0..100_000).for_each(|number| note(of_route(2, number), &format!("set-{}", number % 5000)));
        note(of_route(1, 100), "another");
        assert!((0..=100).all(|number| requesters.of(&of_route(1, number), now).len() == 1));
    }

    #[test]
    fn what_is_no_name_is_not_kept() {
        let (requesters, now) = (Requesters::default(), Timestamp(0));
        for name in ["", "a\u{1b}[2J", "ü", "a b", &"x".repeat(MAX_NAME_BYTES + 1)] {
            note(&requesters, 1, name, now);
        }
        assert!(names(&requesters, 1, now).is_empty());
    }

    #[test]
    fn the_last_answer_that_was_served_counts() {
        let (requesters, now) = (Requesters::default(), Timestamp(0));
        let served = |requesters: &Requesters| requesters.of(&key(1), now)[0].served;
        let changed = |served| (key(1), Requester { name: "a".into(), at: now, served });
        requesters.note(&key(1), "a", now, 1, || 11);
        requesters.note(&key(1), "a", now, 1, || unreachable!("this run is noted"));
        assert_eq!(served(&requesters), 11);
        requesters.note(&key(1), "a", now, 2, || 12);
        assert_eq!(served(&requesters), 12);
        assert_eq!(requesters.take_changed(), [changed(12)]);
        assert!(requesters.take_changed().is_empty());
        requesters.note(&key(1), "a", now, 3, || 12);
        assert!(requesters.take_changed().is_empty(), "the same answer of another run");
        requesters.note(&key(1), "a", now, 4, || 13);
        assert_eq!(requesters.take_changed(), [changed(13)]);
        for served in [0, 13, 0, 13] {
            let run = if served == 0 { NO_RUN } else { 4 };
            requesters.note(&key(1), "a", now, run, || served);
            assert_eq!(
                requesters.take_changed(),
                [changed(served)],
                "an error between two times the same answer counts"
            );
        }
        requesters.put_back(vec![changed(1)]);
        assert_eq!(requesters.take_changed(), [changed(1)]);

        let after = Requesters::default();
        assert!(after.restore(key(1), &requesters.of(&key(1), now), now));
        assert_eq!(after.of(&key(1), now), requesters.of(&key(1), now));
        let later = Timestamp(0).plus(LISTED_FOR);
        assert!(!after.restore(key(2), &requesters.of(&key(1), now), later) && names(&after, 2, later).is_empty());
    }
}
