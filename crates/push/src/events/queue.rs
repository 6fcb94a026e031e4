//! The questions that events concern, until each was looked at. Pure: no time but what is given.

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

/// How many looks are under way at once.
pub(super) const AT_ONCE: usize = 8;
/// When a look that found nothing new is repeated, after the look before.
pub(super) const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_mins(1)];
/// The time between two looks at one question. Events that come meanwhile are one look.
const SPACING: Duration = Duration::from_secs(2);
/// How many batches of pushes are remembered for a question that waits. Digests of older ones are not compared.
const MAX_BATCHES: usize = 64;
/// How many batches of deliveries wait for the last look at a question.
const MAX_DELIVERIES: usize = 1000;
/// How many times of looks are remembered before old ones are removed.
const MAX_LOOKED: usize = 10_000;

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
pub(super) struct Told<'a> {
    /// The deliveries of the event, and of those that were compared with it.
    pub(super) batch: &'a Arc<Batch>,
    /// What was pushed. `None` if that is not remembered.
    pub(super) pushes: Option<&'a Arc<Pushes>>,
    /// The subjects without a digest that concern the question.
    pub(super) others: Others,
}

/// A question that is looked at when it is due.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) question: Question,
    at: Instant,
    /// Tells questions apart that are due at the same time.
    number: u64,
    /// How many looks have found nothing new.
    looks: usize,
    /// What its events say was pushed.
    pushes: Vec<Arc<Pushes>>,
    /// The subjects of its events without a digest.
    others: Others,
    /// The deliveries that wait for the last look.
    pub(super) batches: Vec<Arc<Batch>>,
}

impl Due {
    /// The pushes that its events are about.
    pub(super) fn pushes(&self) -> impl Iterator<Item = &Pushes> {
        self.pushes.iter().map(|pushes| &**pushes)
    }

    /// Whether a look that found this is the last one. A change may be the news of one event only, so all events that have no digest must
    /// tell of the same.
    fn is_done(&self, (look, pushed): (Recheck, Pushed)) -> bool {
        match (look, pushed, self.others) {
            (Recheck::Held, ..)
            | (Recheck::Changed, Pushed::Known | Pushed::Untold, Others::None)
            | (Recheck::Changed, Pushed::Untold, Others::One(_))
            | (Recheck::Unchanged, Pushed::Known, Others::None) => true,
            (Recheck::Changed | Recheck::Unchanged | Recheck::Failed | Recheck::Resting(_), ..) => false,
        }
    }

    /// Adds what `other` events say.
    fn note(&mut self, other: Self) {
        self.batches.extend(other.batches);
        // A delivery that is left out here does not count as seen: if it is repeated, it leads to one more look.
        self.batches.truncate(MAX_DELIVERIES);
        self.others = self.others.and(other.others);
        self.pushes.extend(other.pushes);
        if self.pushes.len() > MAX_BATCHES {
            self.pushes.truncate(MAX_BATCHES);
            self.others = Others::Many;
        }
    }
}

/// The questions to look at.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: HashMap<Key, Due>,
    order: BTreeMap<(Instant, u64), Key>,
    running: HashMap<Key, Question>,
    /// When each question was last looked at, if that is not long ago.
    looked: HashMap<Key, Instant>,
    numbers: u64,
}

impl Queue {
    /// What was `told` concerns `question`: it is looked at as soon as it may be, after a look that is under way.
    pub(super) fn concern(&mut self, key: Key, question: Question, told: &Told<'_>, now: Instant) {
        let at = self.looked.get(&key).map_or(now, |looked| now.max(*looked + SPACING));
        // A first look that waits already is due before.
        let at = self.waiting.get(&key).filter(|due| due.looks == 0).map_or(at, |due| due.at);
        let (pushes, others) = match told.pushes {
            Some(pushes) => {
                (Some(pushes).filter(|pushes| !pushes.is_empty()).cloned().into_iter().collect(), told.others)
            }
            None => (Vec::new(), told.others.and(Others::UNKNOWN)),
        };
        let batches = vec![Arc::clone(told.batch)];
        self.put(key, Due { question, at, number: 0, looks: 0, pushes, others, batches });
    }

    fn put(&mut self, key: Key, mut due: Due) {
        self.numbers += 1;
        due.number = self.numbers;
        self.order.insert((due.at, due.number), key);
        match self.waiting.entry(key) {
            Entry::Vacant(place) => _ = place.insert(due),
            Entry::Occupied(mut place) => {
                self.order.remove(&(place.get().at, place.get().number));
                let (at, number, looks) = (due.at, due.number, due.looks);
                let before = place.get_mut();
                before.note(due);
                (before.at, before.number, before.looks) = (at, number, looks);
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

    /// A look has ended, and its answer knows of the pushes of its events what `pushed` says. Unless it found what all of them tell of, and
    /// if no event came meanwhile, it is repeated later, since the source may be behind. If the source asked not to be called, it is made
    /// when it may be called again. Returns the deliveries for which all looks are over.
    pub(super) fn ended(
        &mut self,
        key: Key,
        due: Due,
        (look, pushed): (Recheck, Pushed),
        now: Instant,
    ) -> Vec<Arc<Batch>> {
        self.running.remove(&key);
        if due.is_done((look, pushed)) {
            return due.batches;
        }
        if let Some(waiting) = self.waiting.get_mut(&key) {
            // What this look did not find, the next one may.
            waiting.note(due);
            return Vec::new();
        }
        let (after, looks) = match look {
            Recheck::Resting(left) => (Some(left.max(SPACING)), due.looks),
            _ => (AGAIN.get(due.looks).copied(), due.looks + 1),
        };
        let Some(after) = after else { return due.batches };
        self.put(key, Due { at: now + after, looks, ..due });
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
        let told = Told { batch: &Arc::default(), pushes: Some(&Arc::new(pushes)), others };
        queue.concern(*key, question.clone(), &told, now);
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
        assert!(queue.next(now).is_none(), "one look at a time");
        queue.ended(key, due, CHANGED, now);
        assert!(queue.next(now).is_none(), "one look in two seconds");
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
            // What changed may be what one of them tells of, and the other is still to come.
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

    /// A second build may be pushed while a look finds the first one, and its registry may be behind.
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
        queue.concern(of.0, of.1, &Told { batch: &batch, pushes: None, others: Others::None }, now);
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
        let (mut queue, now, rest) = (Queue::default(), Instant::now(), Duration::from_mins(5));
        let of = question(1);
        let key = of.0;
        concern(&mut queue, &of, Others::One(1), now);
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, (Recheck::Resting(rest), Pushed::Untold), now);
        assert_eq!(queue.next_at(), Some(now + rest));
        let (_, due) = queue.next(now + rest).unwrap();
        queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now + rest);
        assert_eq!(queue.next_at(), Some(now + rest + AGAIN[0]), "it was no look");
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
