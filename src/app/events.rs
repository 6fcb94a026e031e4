//! Deliveries of hooks until their questions have been looked at again: events about one question are one look, few looks are under way
//! at once, and one that finds nothing new is repeated, since registries and CI may be behind their events.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use moka::sync::Cache;
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::App;
use crate::{
    bounded_cache::{self, Bounded},
    domain::{generator::Question, lifecycle::Phase},
    engine::{answer::events::Look, cache::Key},
    hooks::{Delivery, Subject, Subjects},
};

/// How many looks are under way at once.
const AT_ONCE: usize = 8;
/// How many subjects may wait to be compared with the known questions.
const MAX_WAITING: usize = 10_000;
/// Subjects that come within this time are compared together.
const GATHER: Duration = Duration::from_millis(50);
/// When a look that found nothing new is repeated, after the look before.
const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_mins(1)];
/// How many delivery ids are remembered, and for how long.
const MAX_SEEN: u64 = 20_000;
const SEEN_FOR: Duration = Duration::from_hours(24);

/// The way of events from the listener to the task that follows them.
pub(crate) struct Events {
    sender: Sender<Subject>,
    receiver: parking_lot::Mutex<Option<Receiver<Subject>>>,
    seen: Bounded<(Arc<str>, String), ()>,
}

impl Default for Events {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let seen = bounded_cache::build_recent(Cache::builder().max_capacity(MAX_SEEN).time_to_live(SEEN_FOR));
        Self { sender, receiver: parking_lot::Mutex::new(Some(receiver)), seen }
    }
}

/// A question that is looked at when it is due.
#[derive(Debug, Clone)]
struct Due {
    question: Question,
    at: Instant,
    /// Tells questions apart that are due at the same time.
    number: u64,
    /// How many looks have found nothing new.
    looks: usize,
}

/// The questions to look at. Pure: it knows no time but what it is given.
#[derive(Debug, Default)]
struct Queue {
    waiting: HashMap<Key, Due>,
    order: BTreeMap<(Instant, u64), Key>,
    running: HashSet<Key>,
    numbers: u64,
}

impl Queue {
    /// An event concerns `question`: it is looked at as soon as possible, after a look that is under way.
    fn concern(&mut self, key: Key, question: Question, now: Instant) {
        self.put(key, question, now, 0);
    }

    fn put(&mut self, key: Key, question: Question, at: Instant, looks: usize) {
        self.numbers += 1;
        let due = Due { question, at, number: self.numbers, looks };
        if let Some(before) = self.waiting.insert(key, due) {
            self.order.remove(&(before.at, before.number));
        }
        self.order.insert((at, self.numbers), key);
    }

    /// The next question that is due and not under way.
    fn next(&mut self, now: Instant) -> Option<(Key, Due)> {
        if self.running.len() >= AT_ONCE {
            return None;
        }
        let (place, key) = self.order.range(..=(now, u64::MAX)).find(|(_, key)| !self.running.contains(key))?;
        let (place, key) = (*place, *key);
        self.order.remove(&place);
        self.running.insert(key);
        self.waiting.remove(&key).map(|due| (key, due))
    }

    /// A look has ended. If it found nothing new, and no event came meanwhile, it is repeated later.
    fn ended(&mut self, key: Key, due: Due, look: Look, now: Instant) {
        self.running.remove(&key);
        let is_over = matches!(look, Look::Changed | Look::Held) || self.waiting.contains_key(&key);
        if let Some(after) = AGAIN.get(due.looks).filter(|_| !is_over) {
            self.put(key, due.question, now + *after, due.looks + 1);
        }
    }

    /// When the next question is due.
    fn next_at(&self) -> Option<Instant> {
        let (at, _) = self.order.iter().find(|(_, key)| !self.running.contains(key))?.0;
        Some(*at)
    }
}

impl App {
    /// Takes a delivery of `hook`. Returns what became of it.
    pub(crate) async fn take_delivery(&self, hook: &Arc<str>, delivery: Delivery) -> &'static str {
        let Delivery { id, subjects } = delivery;
        let key = id.map(|id| (Arc::clone(hook), id));
        if key.as_ref().is_some_and(|key| self.events.seen.contains_key(key)) {
            return "duplicate";
        }
        // All of its subjects are taken, or none.
        let Ok(permits) = self.events.sender.try_reserve_many(subjects.len()) else { return "refused" };
        if let Some((hook, id)) = &key
            && !self.engine.is_first(&format!("delivery:{hook}:{id}"), SEEN_FOR).await
        {
            return "duplicate";
        }
        if let Some(key) = key {
            self.events.seen.insert(key, ());
        }
        let outcome = if subjects.is_empty() { "ignored" } else { "taken" };
        permits.zip(subjects).for_each(|(permit, subject)| permit.send(subject));
        outcome
    }

    /// Looks again at the questions that events concern. Returns when the gateway drains.
    pub async fn follow_events(self: &Arc<Self>) {
        let Some(mut events) = self.events.receiver.lock().take() else { return };
        let (mut queue, mut looks) = (Queue::default(), JoinSet::new());
        let mut draining = std::pin::pin!(self.lifecycle.reached(Phase::Draining));
        loop {
            while let Some((key, due)) = queue.next(Instant::now()) {
                let app = Arc::clone(self);
                looks.spawn(async move { (key, app.look(&due.question).await, due) });
            }
            let next = queue.next_at().unwrap_or_else(|| Instant::now() + AGAIN[2]);
            tokio::select! {
                () = &mut draining => return,
                Some(subject) = events.recv() => {
                    for (key, question) in self.concerned(subject, &mut events).await {
                        queue.concern(key, question, Instant::now());
                    }
                }
                Some(Ok((key, look, due))) = looks.join_next() => queue.ended(key, due, look, Instant::now()),
                () = sleep_until(next), if looks.len() < AT_ONCE => {}
            }
        }
    }

    /// The questions that `first` and all subjects that come shortly after it concern.
    async fn concerned(self: &Arc<Self>, first: Subject, events: &mut Receiver<Subject>) -> HashMap<Key, Question> {
        tokio::time::sleep(GATHER).await;
        let mut subjects = Subjects::default();
        subjects.add(first);
        while let Ok(subject) = events.try_recv() {
            subjects.add(subject);
        }
        let app = Arc::clone(self);
        let found = tokio::task::spawn_blocking(move || app.engine.concerned(&app.setup().routes, &subjects)).await;
        let found = found.unwrap_or_default();
        self.metrics.hooks.concerned(found.len());
        found
    }

    async fn look(&self, question: &Question) -> Look {
        let setup = self.setup();
        let look = self.engine.look_again(&setup.routes, question).await.unwrap_or_else(|error| {
            tracing::warn!(%error, route = &*question.route, "an event is looked at later: the shared store does not answer");
            Look::Failed
        });
        self.metrics.hooks.looked(look.as_str());
        tracing::info!(route = &*question.route, result = look.as_str(), "looked again after an event");
        look
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
        (0..100).for_each(|_| queue.concern(key, of.clone(), now));
        let (_, due) = queue.next(now).unwrap();
        assert!(queue.next(now).is_none());
        (0..100).for_each(|_| queue.concern(key, of.clone(), now));
        assert!(queue.next(now).is_none(), "one look at a time");
        queue.ended(key, due, Look::Changed, now);
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, Look::Changed, now);
        assert!(queue.next(now).is_none() && queue.next_at().is_none());
    }

    #[test]
    fn a_look_that_finds_nothing_new_is_repeated_three_times() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        let (key, of) = question(1);
        queue.concern(key, of, now);
        for (number, after) in AGAIN.iter().map(Some).chain([None]).enumerate() {
            let (_, due) = queue.next(now).unwrap();
            queue.ended(key, due, if number == 0 { Look::Failed } else { Look::Unchanged }, now);
            assert_eq!(queue.next_at(), after.map(|after| now + *after));
            assert!(queue.next(now).is_none());
            now = queue.next_at().unwrap_or(now);
        }
    }

    #[test]
    fn few_looks_are_under_way_at_once() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        for number in 0..20 {
            let (key, of) = question(number);
            queue.concern(key, of, now);
        }
        let first: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert_eq!(first.len(), AT_ONCE);
        let (key, due) = first[0].clone();
        queue.ended(key, due, Look::Held, now);
        assert!(queue.next(now).is_some());
    }
}
