//! The questions that events concern, until each was looked at. Pure: no time but what is given.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    domain::generator::Question,
    engine::{answer::events::Look, cache::Key},
    hooks::Subjects,
};

/// How many looks are under way at once.
pub(super) const AT_ONCE: usize = 8;
/// When a look that found nothing new is repeated, after the look before.
pub(super) const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_mins(1)];
/// The time between two looks at one question. Events that come meanwhile are one look.
const SPACING: Duration = Duration::from_secs(2);
/// An event that comes so soon after a look that found something new is most likely about the same change.
const ECHO: Duration = Duration::from_secs(10);
/// How many times of looks are remembered before old ones are removed.
const MAX_LOOKED: usize = 10_000;
/// How many subjects wait to be compared once more.
const MAX_LATE: usize = 20_000;

/// Names a delivery: its hook, and its id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Receipt {
    pub(super) hook: Arc<str>,
    pub(super) id: String,
}

impl Receipt {
    /// The name for the shared store.
    pub(super) fn name(&self) -> String {
        format!("delivery:{}:{}", self.hook, self.id)
    }
}

/// Subjects that were compared together, and the deliveries that they came with.
pub(super) type Batch = Vec<Arc<Receipt>>;

/// A question that is looked at when it is due.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) question: Question,
    at: Instant,
    /// Tells questions apart that are due at the same time.
    number: u64,
    /// How many looks have found nothing new.
    looks: usize,
    /// Whether its events came shortly after a look that found something new, or during that look.
    is_echo: bool,
    /// The deliveries that wait for the first look.
    pub(super) batches: Vec<Arc<Batch>>,
}

/// The questions to look at.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: HashMap<Key, Due>,
    order: BTreeMap<(Instant, u64), Key>,
    running: HashMap<Key, Question>,
    /// When each question was last looked at, if that is not long ago.
    looked: HashMap<Key, Instant>,
    /// When a look at each question has found something new, if that is not long ago.
    changed: HashMap<Key, Instant>,
    numbers: u64,
}

impl Queue {
    /// An event of `batch` concerns `question`: it is looked at as soon as it may be, after a look that is under way.
    pub(super) fn concern(&mut self, key: Key, question: Question, batch: Option<&Arc<Batch>>, now: Instant) {
        let at = self.looked.get(&key).map_or(now, |looked| now.max(*looked + SPACING));
        // A first look that waits already is due before.
        let at = self.waiting.get(&key).filter(|due| due.looks == 0).map_or(at, |due| due.at);
        let is_echo = self.changed.get(&key).is_some_and(|changed| now < *changed + ECHO);
        let batches = batch.into_iter().cloned().collect();
        self.put(key, Due { question, at, number: 0, looks: 0, is_echo, batches });
    }

    fn put(&mut self, key: Key, mut due: Due) {
        self.numbers += 1;
        due.number = self.numbers;
        self.order.insert((due.at, due.number), key);
        match self.waiting.entry(key) {
            Entry::Vacant(place) => drop(place.insert(due)),
            Entry::Occupied(mut place) => {
                self.order.remove(&(place.get().at, place.get().number));
                due.batches.append(&mut place.get_mut().batches);
                due.is_echo &= place.get().is_echo;
                place.insert(due);
            }
        }
    }

    /// Removes the questions that wait for another look.
    pub(super) fn take_repeats(&mut self) -> Vec<Question> {
        let repeats: Vec<Key> = self.waiting.iter().filter(|(_, due)| due.looks > 0).map(|(key, _)| *key).collect();
        let taken = repeats.iter().filter_map(|key| {
            let due = self.waiting.remove(key)?;
            self.order.remove(&(due.at, due.number));
            Some(due.question)
        });
        taken.collect()
    }

    /// The next question that is due and not under way.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Key, Due)> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let (place, key) = self.order.range(..=(now, u64::MAX)).find(|(_, key)| !self.running.contains_key(key))?;
        let (place, key) = (*place, *key);
        self.order.remove(&place);
        let due = self.waiting.remove(&key)?;
        self.running.insert(key, due.question.clone());
        if self.looked.len() >= MAX_LOOKED {
            self.looked.retain(|_, looked| now < *looked + SPACING);
        }
        self.looked.insert(key, now);
        Some((key, due))
    }

    /// The questions that had no answer from a look yet, or none that was new.
    pub(super) fn into_unfinished(self) -> Vec<Question> {
        let waiting = self.waiting.into_values().map(|due| due.question);
        self.running.into_values().chain(waiting).collect()
    }

    /// A look has ended. If it found nothing new, and no event came meanwhile, it is repeated later, unless something new was found just
    /// before its event. If the source asked not to be called, it is made when it may be called again.
    pub(super) fn ended(&mut self, key: Key, due: Due, look: Look, now: Instant) {
        self.running.remove(&key);
        if look == Look::Changed {
            self.note_change(key, now);
        }
        if self.waiting.contains_key(&key) {
            return;
        }
        let (after, looks) = match look {
            Look::Changed | Look::Held => return,
            Look::Unchanged if due.is_echo => return,
            Look::Resting(left) => (Some(left.max(SPACING)), due.looks),
            Look::Unchanged | Look::Failed => (AGAIN.get(due.looks).copied(), due.looks + 1),
        };
        if let Some(after) = after {
            self.put(key, Due { at: now + after, looks, batches: Vec::new(), ..due });
        }
    }

    /// A look has found something new. The events that came during it are most likely about that.
    fn note_change(&mut self, key: Key, now: Instant) {
        if self.changed.len() >= MAX_LOOKED {
            self.changed.retain(|_, changed| now < *changed + ECHO);
        }
        self.changed.insert(key, now);
        if let Some(due) = self.waiting.get_mut(&key) {
            due.is_echo = true;
        }
    }

    /// When the next question is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let (at, _) = self.order.iter().find(|(_, key)| !self.running.contains_key(key))?.0;
        Some(*at)
    }
}

/// Subjects that are compared once more.
#[derive(Debug, Default)]
pub(super) struct Late {
    young: Subjects,
    old: Subjects,
    /// The questions that were found already.
    found: HashSet<Key>,
    found_before: HashSet<Key>,
}

impl Late {
    pub(super) fn add(&mut self, subjects: &Subjects, found: impl Iterator<Item = Key>) {
        if self.young.len() < MAX_LATE {
            self.young.extend(subjects);
            self.found.extend(found);
        }
    }

    /// All subjects that wait.
    pub(super) fn into_subjects(self) -> Subjects {
        let mut all = self.young;
        all.extend(&self.old);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.young.len() == 0 && self.old.len() == 0
    }

    /// The subjects that have waited for a whole turn, and the questions that need no look. To be called at equal intervals.
    pub(super) fn turn(&mut self) -> (Subjects, HashSet<Key>) {
        let due = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let found = self.found_before.union(&self.found).copied().collect();
        self.found_before = std::mem::take(&mut self.found);
        (due, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(number: u8) -> (Key, Question) {
        let question = Question { route: "r".into(), application_set: None, parameters: Arc::default() };
        (Key::of_bytes([number; 32]), question)
    }

    #[test]
    fn events_about_one_question_are_at_most_two_looks() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, of) = question(1);
        (0..100).for_each(|_| queue.concern(key, of.clone(), None, now));
        let (_, due) = queue.next(now).unwrap();
        assert!(queue.next(now).is_none());
        (0..100).for_each(|_| queue.concern(key, of.clone(), None, now));
        assert!(queue.next(now).is_none(), "one look at a time");
        queue.ended(key, due, Look::Changed, now);
        assert!(queue.next(now).is_none(), "one look in two seconds");
        assert_eq!(queue.next_at(), Some(now + SPACING));
        let (_, due) = queue.next(now + SPACING).unwrap();
        queue.ended(key, due, Look::Changed, now + SPACING);
        assert!(queue.next(now + SPACING).is_none() && queue.next_at().is_none());
    }

    #[test]
    fn a_look_that_finds_nothing_new_is_repeated_three_times() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        let (key, of) = question(1);
        queue.concern(key, of, None, now);
        for (number, after) in AGAIN.iter().map(Some).chain([None]).enumerate() {
            let (_, due) = queue.next(now).unwrap();
            queue.ended(key, due, if number == 0 { Look::Failed } else { Look::Unchanged }, now);
            assert_eq!(queue.next_at(), after.map(|after| now + *after));
            assert!(queue.next(now).is_none());
            now = queue.next_at().unwrap_or(now);
        }
    }

    #[test]
    fn what_comes_shortly_after_a_change_is_looked_at_once() {
        for (after, is_repeated) in [(Duration::ZERO, false), (ECHO / 2, false), (ECHO, true)] {
            let (mut queue, now) = (Queue::default(), Instant::now());
            let (key, of) = question(1);
            queue.concern(key, of.clone(), None, now);
            let (_, due) = queue.next(now).unwrap();
            if after.is_zero() {
                queue.concern(key, of.clone(), None, now);
            }
            queue.ended(key, due, Look::Changed, now);
            let later = now + after.max(SPACING);
            queue.concern(key, of, None, later);
            let (_, due) = queue.next(later).unwrap();
            queue.ended(key, due, Look::Unchanged, later);
            assert_eq!(queue.next_at().is_some(), is_repeated, "{after:?}");
        }
    }

    #[test]
    fn a_failure_shortly_after_a_change_is_repeated() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, of) = question(1);
        queue.concern(key, of.clone(), None, now);
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, Look::Changed, now);
        queue.concern(key, of, None, now);
        let (_, due) = queue.next(now + SPACING).unwrap();
        queue.ended(key, due, Look::Failed, now + SPACING);
        let (_, due) = queue.next(now + SPACING + AGAIN[0]).unwrap();
        queue.ended(key, due, Look::Unchanged, now + SPACING + AGAIN[0]);
        assert_eq!(queue.next_at(), None, "once it has answered, that is enough");
    }

    #[test]
    fn a_source_that_rests_is_looked_at_afterwards() {
        let (mut queue, now, rest) = (Queue::default(), Instant::now(), Duration::from_mins(5));
        let (key, of) = question(1);
        queue.concern(key, of, None, now);
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, Look::Resting(rest), now);
        assert_eq!(queue.next_at(), Some(now + rest));
        let (_, due) = queue.next(now + rest).unwrap();
        queue.ended(key, due, Look::Unchanged, now + rest);
        assert_eq!(queue.next_at(), Some(now + rest + AGAIN[0]), "it was no look");
    }

    #[test]
    fn few_looks_are_under_way_at_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for number in 0..20 {
            let (key, of) = question(number);
            queue.concern(key, of, None, now);
        }
        let first: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(first.len(), AT_ONCE);
        let (key, due) = first[0].clone();
        queue.ended(key, due, Look::Held, now);
        assert!(queue.next(now).is_some());
    }
}
