//! The questions that events concern, until each was rechecked. Pure: each call passes the time.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::deliveries::Origins;
use domain::generator::Question;
use engine::{cache::Key, renewal::recheck::Recheck};
use hooks::{Others, Pushed, Pushes};

/// How many rechecks are under way at once.
pub(super) const AT_ONCE: usize = 8;
/// When a recheck that found nothing new is repeated, after the one before.
pub(super) const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_mins(1)];
/// The time between two rechecks of one question. Events that come meanwhile are one recheck.
const SPACING: Duration = Duration::from_secs(2);
/// How many batches of pushes are remembered for a question that waits. Digests of older ones are not compared.
const MAX_BATCHES: usize = 64;
/// How many batches of deliveries wait for the last recheck of a question.
const MAX_DELIVERIES: usize = 1000;
/// How many times of rechecks are remembered before old ones are removed.
const MAX_RECHECKED: usize = 10_000;

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

/// Deliveries whose subjects were compared together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) receipts: Vec<Arc<Receipt>>,
    /// All of them by number, also those without an id.
    pub(super) origins: Origins,
}

/// An event that concerns a question.
#[derive(Debug)]
pub(super) struct Concern<'a> {
    /// The deliveries of the event, and of those that were compared with it.
    pub(super) batch: &'a Arc<Batch>,
    /// What was pushed. `None` if that is not remembered.
    pub(super) pushes: Option<&'a Arc<Pushes>>,
    /// The subjects without a digest that concern the question.
    pub(super) others: Others,
}

/// A question that is rechecked when it is due.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) question: Question,
    at: Instant,
    /// Distinguishes questions that are due at the same time.
    number: u64,
    /// How many rechecks have found nothing new.
    rechecks: usize,
    /// What its events say was pushed.
    pushes: Vec<Arc<Pushes>>,
    /// The subjects of its events without a digest.
    others: Others,
    /// The deliveries that wait for the last recheck.
    pub(super) batches: Vec<Arc<Batch>>,
}

impl Due {
    /// The pushes that its events are about.
    pub(super) fn pushes(&self) -> impl Iterator<Item = &Pushes> {
        self.pushes.iter().map(|pushes| &**pushes)
    }

    /// Whether a recheck that found this is the last one. A change may be the news of one event only, so all events that have no digest must
    /// be about the same.
    fn is_done(&self, (recheck, pushed): (Recheck, Pushed)) -> bool {
        match (recheck, pushed, self.others) {
            (Recheck::Held, ..)
            | (Recheck::Changed, Pushed::Known | Pushed::Untold, Others::None)
            | (Recheck::Changed, Pushed::Untold, Others::One(_))
            | (Recheck::Unchanged, Pushed::Known, Others::None) => true,
            (Recheck::Changed | Recheck::Unchanged | Recheck::Failed | Recheck::Backoff(_), ..) => false,
        }
    }

    /// Adds what `other` events say.
    fn note(&mut self, other: Self) {
        self.batches.extend(other.batches);
        // A delivery that is left out here does not count as seen: if it is repeated, it leads to one more recheck.
        self.batches.truncate(MAX_DELIVERIES);
        self.others = self.others.and(other.others);
        self.pushes.extend(other.pushes);
        if self.pushes.len() > MAX_BATCHES {
            self.pushes.truncate(MAX_BATCHES);
            self.others = Others::Many;
        }
    }
}

/// The questions to recheck.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: HashMap<Key, Due>,
    order: BTreeMap<(Instant, u64), Key>,
    running: HashMap<Key, Question>,
    /// When each question was last rechecked, if that is not long ago.
    rechecked: HashMap<Key, Instant>,
    numbers: u64,
}

impl Queue {
    /// An event concerns `question`: it is rechecked as soon as it may be, after a recheck that is under way.
    pub(super) fn concern(&mut self, key: Key, question: Question, concern: &Concern<'_>, now: Instant) {
        let at = self.rechecked.get(&key).map_or(now, |rechecked| now.max(*rechecked + SPACING));
        // A first recheck that waits already is due before.
        let at = self.waiting.get(&key).filter(|due| due.rechecks == 0).map_or(at, |due| due.at);
        let (pushes, others) = match concern.pushes {
            Some(pushes) => {
                (Some(pushes).filter(|pushes| !pushes.is_empty()).cloned().into_iter().collect(), concern.others)
            }
            None => (Vec::new(), concern.others.and(Others::UNKNOWN)),
        };
        let batches = vec![Arc::clone(concern.batch)];
        self.put(key, Due { question, at, number: 0, rechecks: 0, pushes, others, batches });
    }

    fn put(&mut self, key: Key, mut due: Due) {
        self.numbers += 1;
        due.number = self.numbers;
        self.order.insert((due.at, due.number), key);
        match self.waiting.entry(key) {
            Entry::Vacant(place) => _ = place.insert(due),
            Entry::Occupied(mut place) => {
                self.order.remove(&(place.get().at, place.get().number));
                let (at, number, rechecks) = (due.at, due.number, due.rechecks);
                let before = place.get_mut();
                before.note(due);
                (before.at, before.number, before.rechecks) = (at, number, rechecks);
            }
        }
    }

    /// Removes the questions that wait for another recheck.
    pub(super) fn take_repeats(&mut self) -> Vec<Question> {
        let repeats: Vec<Key> = self.waiting.iter().filter(|(_, due)| due.rechecks > 0).map(|(key, _)| *key).collect();
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
        if self.rechecked.len() >= MAX_RECHECKED {
            self.rechecked.retain(|_, rechecked| now < *rechecked + SPACING);
        }
        self.rechecked.insert(key, now);
        Some((key, due))
    }

    /// The questions that had no answer from a recheck yet, or none that was new.
    pub(super) fn into_unfinished(self) -> Vec<Question> {
        let waiting = self.waiting.into_values().map(|due| due.question);
        self.running.into_values().chain(waiting).collect()
    }

    /// A recheck has ended; `pushed` says whether its answer has the pushes of its events. Unless it found what all of them are about, and
    /// if no event came meanwhile, it is repeated later, since the source may be behind. If the source asked for a pause, it is made
    /// when it may be called again. Returns the deliveries for which all rechecks are over.
    pub(super) fn ended(
        &mut self,
        key: Key,
        due: Due,
        (recheck, pushed): (Recheck, Pushed),
        now: Instant,
    ) -> Vec<Arc<Batch>> {
        self.running.remove(&key);
        if due.is_done((recheck, pushed)) {
            return due.batches;
        }
        if let Some(waiting) = self.waiting.get_mut(&key) {
            // What this recheck did not find, the next one may.
            waiting.note(due);
            return Vec::new();
        }
        let (after, rechecks) = match recheck {
            Recheck::Backoff(left) => (Some(left.max(SPACING)), due.rechecks),
            _ => (AGAIN.get(due.rechecks).copied(), due.rechecks + 1),
        };
        let Some(after) = after else { return due.batches };
        self.put(key, Due { at: now + after, rechecks, ..due });
        Vec::new()
    }

    /// When the next question is due.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let (at, _) = self.order.iter().find(|(_, key)| !self.running.contains_key(key))?.0;
        Some(*at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hooks::Subject;

    const CHANGED: (Recheck, Pushed) = (Recheck::Changed, Pushed::Untold);

    /// An event that concerns `question`, and the subjects of it without a digest.
    fn concern(queue: &mut Queue, (key, question): &(Key, Question), others: Others, now: Instant) {
        let mut pushes = Pushes::default();
        let digest = format!("sha256:{}", "a".repeat(64));
        if others == Others::None {
            pushes.add(&Subject::image(&format!("r.example/app:1@{digest}")).unwrap());
        }
        let concern = Concern { batch: &Arc::default(), pushes: Some(&Arc::new(pushes)), others };
        queue.concern(*key, question.clone(), &concern, now);
    }

    fn question(number: u8) -> (Key, Question) {
        let question = Question { route: "r".into(), application_set: None, parameters: Arc::default() };
        (Key::of_bytes([number; 32]), question)
    }

    #[test]
    fn events_about_one_question_are_at_most_two_looks() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let of = question(1);
        let key = of.0;
        (0..100).for_each(|_| concern(&mut queue, &of, Others::One(1), now));
        let (_, due) = queue.next(now).unwrap();
        assert!(queue.next(now).is_none());
        (0..100).for_each(|_| concern(&mut queue, &of, Others::One(1), now));
        assert!(queue.next(now).is_none(), "one recheck at a time");
        queue.ended(key, due, CHANGED, now);
        assert!(queue.next(now).is_none(), "one recheck in two seconds");
        assert_eq!(queue.next_at(), Some(now + SPACING));
        let (_, due) = queue.next(now + SPACING).unwrap();
        queue.ended(key, due, CHANGED, now + SPACING);
        assert!(queue.next(now + SPACING).is_none() && queue.next_at().is_none());
    }

    #[test]
    fn a_look_that_finds_nothing_new_is_repeated_three_times() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        let of = question(1);
        let key = of.0;
        concern(&mut queue, &of, Others::One(1), now);
        for (number, after) in AGAIN.iter().map(Some).chain([None]).enumerate() {
            let (_, due) = queue.next(now).unwrap();
            queue.ended(
                key,
                due,
                (if number == 0 { Recheck::Failed } else { Recheck::Unchanged }, Pushed::Untold),
                now,
            );
            assert_eq!(queue.next_at(), after.map(|after| now + *after));
            assert!(queue.next(now).is_none());
            now = queue.next_at().unwrap_or(now);
        }
    }

    #[test]
    fn a_look_is_repeated_unless_it_found_what_its_events_tell_of() {
        use {Pushed::*, Recheck::*};
        let (none, one, many) = (Others::None, Others::One(1), Others::Many);
        for (found, others, is_repeated) in [
            ((Changed, Known), none, false),
            ((Changed, Untold), none, false),
            ((Changed, Untold), one, false),
            // What changed may be what one of them is about, and the other is still to come.
            ((Changed, Known), one, true),
            ((Changed, Untold), many, true),
            ((Changed, Behind), none, true),
            ((Unchanged, Known), none, false),
            ((Unchanged, Known), one, true),
            ((Unchanged, Untold), none, true),
            ((Unchanged, Behind), none, true),
            ((Failed, Untold), none, true),
            ((Held, Untold), many, false),
        ] {
            let (mut queue, now) = (Queue::default(), Instant::now());
            let of = question(1);
            let key = of.0;
            concern(&mut queue, &of, others, now);
            let (_, due) = queue.next(now).unwrap();
            queue.ended(key, due, found, now);
            assert_eq!(queue.next_at().is_some(), is_repeated, "{found:?}, {others:?}");
        }
    }

    /// A second build may be pushed while a recheck finds the first one, and its registry may be behind.
    #[test]
    fn what_comes_during_a_look_that_finds_something_new_has_looks_of_its_own() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let of = question(1);
        let key = of.0;
        concern(&mut queue, &of, Others::One(1), now);
        let (_, due) = queue.next(now).unwrap();
        concern(&mut queue, &of, Others::One(1), now);
        queue.ended(key, due, CHANGED, now);
        let (_, due) = queue.next(now + SPACING).unwrap();
        queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now + SPACING);
        assert_eq!(queue.next_at(), Some(now + SPACING + AGAIN[0]));
    }

    #[test]
    fn what_a_look_did_not_find_is_left_to_the_next_one() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let of = question(1);
        let key = of.0;
        concern(&mut queue, &of, Others::One(1), now);
        let (_, due) = queue.next(now).unwrap();
        concern(&mut queue, &of, Others::None, now);
        queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now);
        let (_, due) = queue.next(now + SPACING).unwrap();
        queue.ended(key, due, (Recheck::Unchanged, Pushed::Known), now + SPACING);
        assert!(queue.next_at().is_some(), "the first event has not been found");
    }

    #[test]
    fn a_delivery_is_done_when_the_last_look_is() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        let of = question(1);
        let batch: Arc<Batch> = Arc::default();
        queue.concern(of.0, of.1, &Concern { batch: &batch, pushes: None, others: Others::None }, now);
        for number in 0..=AGAIN.len() {
            let (key, due) = queue.next(now).unwrap();
            let done = queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now);
            assert_eq!(done.len(), usize::from(number == AGAIN.len()), "{number}");
            now = queue.next_at().unwrap_or(now);
        }
        assert_eq!(Arc::strong_count(&batch), 1);
    }

    #[test]
    fn different_subjects_are_many_and_equal_ones_are_one() {
        let (one, other) = (Others::One(1), Others::One(2));
        assert_eq!((one.and(one), one.and(other)), (one, Others::Many));
        assert_eq!((one.and(Others::None), Others::None.and(one), Others::Many.and(one)), (one, one, Others::Many));
    }

    #[test]
    fn what_events_say_is_remembered_within_a_bound() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let of = question(1);
        let _key = of.0;
        (0..=MAX_BATCHES).for_each(|_| concern(&mut queue, &of, Others::None, now));
        let (_, due) = queue.next(now).unwrap();
        assert_eq!((due.pushes.len(), due.others), (MAX_BATCHES, Others::Many));
    }

    #[test]
    fn a_source_that_rests_is_looked_at_afterwards() {
        let (mut queue, now, pause) = (Queue::default(), Instant::now(), Duration::from_mins(5));
        let of = question(1);
        let key = of.0;
        concern(&mut queue, &of, Others::One(1), now);
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, (Recheck::Backoff(pause), Pushed::Untold), now);
        assert_eq!(queue.next_at(), Some(now + pause));
        let (_, due) = queue.next(now + pause).unwrap();
        queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now + pause);
        assert_eq!(queue.next_at(), Some(now + pause + AGAIN[0]), "it was not a recheck");
    }

    #[test]
    fn few_looks_are_under_way_at_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for number in 0..20 {
            let of = question(number);
            concern(&mut queue, &of, Others::One(1), now);
        }
        let first: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(first.len(), AT_ONCE);
        let (key, due) = first[0].clone();
        queue.ended(key, due, (Recheck::Held, Pushed::Untold), now);
        assert!(queue.next(now).is_some());
    }
}
