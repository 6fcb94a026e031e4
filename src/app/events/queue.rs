//! The questions that events concern, until each was looked at. Pure: no time but what is given.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    app::deliveries::Origins,
    domain::generator::Question,
    engine::{answer::events::Look, cache::Key},
    hooks::{Pushed, Pushes},
};

/// How many looks are under way at once.
pub(super) const AT_ONCE: usize = 8;
/// When a look that found nothing new is repeated, after the look before.
pub(super) const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_mins(1)];
/// The time between two looks at one question. Events that come meanwhile are one look.
const SPACING: Duration = Duration::from_secs(2);
/// How many batches of pushes are remembered for a question that waits. Digests of older ones are not compared.
const MAX_NEWS: usize = 64;
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

/// Subjects that were compared together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The deliveries that they came with.
    pub(super) receipts: Vec<Arc<Receipt>>,
    /// What was pushed.
    pub(super) news: Arc<News>,
}

/// What events say is new.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) pushes: Pushes,
    /// The deliveries that say so.
    pub(super) origins: Origins,
    /// Whether an event says that something changed without a digest.
    pub(super) has_other: bool,
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
    /// What its events say.
    news: Vec<Arc<News>>,
    /// The deliveries that wait for the first look.
    pub(super) batches: Vec<Arc<Batch>>,
}

impl Due {
    /// The pushes that its events are about.
    pub(super) fn pushes(&self) -> impl Iterator<Item = &Pushes> {
        self.news.iter().map(|news| &news.pushes)
    }

    /// The deliveries that its events came with. `None` if no delivery led to it, as after 30 seconds.
    pub(super) fn origins(&self) -> Option<Origins> {
        let all = self.news.iter().map(|news| &news.origins).filter(|origins| !origins.numbers.is_empty());
        all.fold(None, |known, origins| {
            Some(known.map_or_else(|| origins.clone(), |known: Origins| known.with(origins)))
        })
    }

    fn has_pushes_only(&self) -> bool {
        self.news.iter().all(|news| !news.has_other)
    }

    /// Adds what earlier events say.
    fn note(&mut self, earlier: Vec<Arc<News>>) {
        self.news.extend(earlier);
        if self.news.len() > MAX_NEWS {
            self.news.truncate(MAX_NEWS - 1);
            self.news.push(Arc::new(News { has_other: true, ..News::default() }));
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
    /// An event of `batch` concerns `question`: it is looked at as soon as it may be, after a look that is under way.
    pub(super) fn concern(&mut self, key: Key, question: Question, batch: Option<&Arc<Batch>>, now: Instant) {
        let at = self.looked.get(&key).map_or(now, |looked| now.max(*looked + SPACING));
        // A first look that waits already is due before.
        let at = self.waiting.get(&key).filter(|due| due.looks == 0).map_or(at, |due| due.at);
        let unknown = || Arc::new(News { has_other: true, ..News::default() });
        let news = vec![batch.map_or_else(unknown, |batch| Arc::clone(&batch.news))];
        let batches = batch.into_iter().cloned().collect();
        self.put(key, Due { question, at, number: 0, looks: 0, news, batches });
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
                due.note(std::mem::take(&mut place.get_mut().news));
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

    /// A look has ended, and its answer knows of the pushes of its events what `pushed` says. If it found nothing new, and no event came
    /// meanwhile, it is repeated later, since the source may be behind. If the source asked not to be called, it is made when it may be
    /// called again.
    pub(super) fn ended(&mut self, key: Key, due: Due, (look, pushed): (Look, Pushed), now: Instant) {
        self.running.remove(&key);
        let is_done = match look {
            Look::Held => true,
            Look::Changed => pushed != Pushed::Behind,
            Look::Unchanged => pushed == Pushed::Known && due.has_pushes_only(),
            Look::Failed | Look::Resting(_) => false,
        };
        if is_done {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(&key) {
            // What this look did not find, the next one may.
            waiting.note(due.news);
            return;
        }
        let (after, looks) = match look {
            Look::Resting(left) => (Some(left.max(SPACING)), due.looks),
            _ => (AGAIN.get(due.looks).copied(), due.looks + 1),
        };
        if let Some(after) = after {
            self.put(key, Due { at: now + after, looks, batches: Vec::new(), ..due });
        }
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

    const CHANGED: (Look, Pushed) = (Look::Changed, Pushed::Untold);

    /// Events that are pushes with digests only, or others too.
    fn batch(has_other: bool) -> Arc<Batch> {
        Arc::new(Batch { news: Arc::new(News { has_other, ..News::default() }), ..Batch::default() })
    }

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
        let (key, of) = question(1);
        queue.concern(key, of, None, now);
        for (number, after) in AGAIN.iter().map(Some).chain([None]).enumerate() {
            let (_, due) = queue.next(now).unwrap();
            queue.ended(key, due, (if number == 0 { Look::Failed } else { Look::Unchanged }, Pushed::Untold), now);
            assert_eq!(queue.next_at(), after.map(|after| now + *after));
            assert!(queue.next(now).is_none());
            now = queue.next_at().unwrap_or(now);
        }
    }

    #[test]
    fn a_look_is_repeated_unless_it_found_what_its_events_tell_of() {
        use {Look::*, Pushed::*};
        for (found, has_other, is_repeated) in [
            ((Changed, Known), false, false),
            ((Changed, Untold), true, false),
            ((Changed, Behind), false, true),
            ((Unchanged, Known), false, false),
            ((Unchanged, Known), true, true),
            ((Unchanged, Untold), false, true),
            ((Unchanged, Behind), false, true),
            ((Failed, Untold), false, true),
            ((Held, Untold), true, false),
        ] {
            let (mut queue, now) = (Queue::default(), Instant::now());
            let (key, of) = question(1);
            queue.concern(key, of, Some(&batch(has_other)), now);
            let (_, due) = queue.next(now).unwrap();
            queue.ended(key, due, found, now);
            assert_eq!(queue.next_at().is_some(), is_repeated, "{found:?}, {has_other}");
        }
    }

    /// A second build may be pushed while a look finds the first one, and its registry may be behind.
    #[test]
    fn what_comes_during_a_look_that_finds_something_new_has_looks_of_its_own() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, of) = question(1);
        queue.concern(key, of.clone(), Some(&batch(true)), now);
        let (_, due) = queue.next(now).unwrap();
        queue.concern(key, of, Some(&batch(true)), now);
        queue.ended(key, due, CHANGED, now);
        let (_, due) = queue.next(now + SPACING).unwrap();
        queue.ended(key, due, (Look::Unchanged, Pushed::Untold), now + SPACING);
        assert_eq!(queue.next_at(), Some(now + SPACING + AGAIN[0]));
    }

    #[test]
    fn what_a_look_did_not_find_is_left_to_the_next_one() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, of) = question(1);
        queue.concern(key, of.clone(), Some(&batch(true)), now);
        let (_, due) = queue.next(now).unwrap();
        queue.concern(key, of, Some(&batch(false)), now);
        queue.ended(key, due, (Look::Unchanged, Pushed::Untold), now);
        let (_, due) = queue.next(now + SPACING).unwrap();
        queue.ended(key, due, (Look::Unchanged, Pushed::Known), now + SPACING);
        assert!(queue.next_at().is_some(), "the first event has not been found");
    }

    #[test]
    fn what_events_say_is_remembered_within_a_bound() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let (key, of) = question(1);
        (0..=MAX_NEWS).for_each(|_| queue.concern(key, of.clone(), Some(&batch(false)), now));
        let (_, due) = queue.next(now).unwrap();
        assert_eq!((due.news.len(), due.has_pushes_only()), (MAX_NEWS, false));
    }

    #[test]
    fn a_source_that_rests_is_looked_at_afterwards() {
        let (mut queue, now, rest) = (Queue::default(), Instant::now(), Duration::from_mins(5));
        let (key, of) = question(1);
        queue.concern(key, of, None, now);
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, (Look::Resting(rest), Pushed::Untold), now);
        assert_eq!(queue.next_at(), Some(now + rest));
        let (_, due) = queue.next(now + rest).unwrap();
        queue.ended(key, due, (Look::Unchanged, Pushed::Untold), now + rest);
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
        queue.ended(key, due, (Look::Held, Pushed::Untold), now);
        assert!(queue.next(now).is_some());
    }
}
