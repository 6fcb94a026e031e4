//! The questions that events concern, until each was rechecked. Pure: each call is given the time.

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

/// How many rechecks are in flight at the same time.
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
    /// The pushed digests. `None` if they are not remembered.
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
    /// The digests that its events pushed.
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

    /// Whether a recheck with this result is the last one. A change may come from one event only, so a recheck is final only if all events
    /// without a digest have the same subject.
    fn is_done(&self, (recheck, pushed): (Recheck, Pushed)) -> bool {
        match (recheck, pushed, self.others) {
            (Recheck::Held, ..)
            | (Recheck::Changed, Pushed::Known | Pushed::Untold, Others::None)
            | (Recheck::Changed, Pushed::Untold, Others::One(_))
            | (Recheck::Unchanged, Pushed::Known, Others::None) => true,
            (Recheck::Changed | Recheck::Unchanged | Recheck::Failed | Recheck::Backoff(_), ..) => false,
        }
    }

    /// Adds `other` events.
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

    /// The questions whose rechecks have not found a new answer yet.
    pub(super) fn into_unfinished(self) -> Vec<Question> {
        let waiting = self.waiting.into_values().map(|due| due.question);
        self.running.into_values().chain(waiting).collect()
    }

    /// Records the end of a recheck; `pushed` is whether its answer contains the digests that its events pushed. If the answer does not yet
    /// contain all of them, and no new event came, the recheck is repeated later, since the source may be behind. If the source demanded a
    /// pause, it is repeated after the pause. Returns the deliveries for which all rechecks are over.
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
            // The next recheck may find what this one did not.
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
mod tests;
