//! The held answers: how many runs agreed so far, and what an operator decided.

mod held;

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

pub(crate) use self::held::{Decision, Held};
use super::{Baseline, Guard};
use crate::{
    domain::{
        clock::Timestamp,
        generator::{ParameterSet, Question},
    },
    engine::cache::Key,
};

/// How many held answers are stored; the one seen longest ago is dropped first, and starts afresh.
const MAX_HELD: usize = 10_000;

/// The question under review, and its lineage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing<'a> {
    /// The question.
    pub(crate) question: &'a Question,
    /// The question's key.
    pub(crate) key: Key,
    /// The key of its lineage.
    pub(crate) lineage: Key,
    /// When a caller last asked; `None` when one asks now.
    pub(crate) asked_at: Option<Timestamp>,
    /// Whether the question was never answered itself, and its lineage was. An empty answer to a new question, as while CI
    /// builds a commit, never takes away the lineage's sets, however often it is repeated.
    pub(crate) is_new: bool,
    /// Whether the run is current: a run that an invalidation cut off decides nothing.
    pub(crate) is_current: bool,
}

/// The result of a review.
#[derive(Debug)]
pub(crate) enum Review {
    /// The answer passes; nothing was held.
    Passed(Baseline),
    /// The answer passes, and the held one is dropped.
    Cleared(Box<Held>, Baseline),
    /// The answer is a loss that is believed now.
    Believed(Box<Held>, Baseline),
    /// The answer is held.
    Held(Box<Held>),
}

/// The held answers, by lineage. One that no caller has asked about for a day is forgotten.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    held: HashMap<Key, Held>,
    /// The lineages forgotten since [`Ledger::take_forgotten`] was last called.
    forgotten: Vec<Key>,
}

impl Ledger {
    /// Decides on `new` at `now`, after what was believed before: `baseline` and `last` as for [`Guard::judge`].
    ///
    /// # Errors
    /// As [`Guard::judge`].
    pub(crate) fn review(
        &self,
        of: Standing<'_>,
        guard: &Guard,
        baseline: Option<&Baseline>,
        last: impl Fn() -> Vec<ParameterSet>,
        new: &[ParameterSet],
        now: Timestamp,
    ) -> Result<Review, String> {
        drop(self.open(now));
        let judged = guard.judge(baseline, last, new, now)?;
        let Some(mut breach) = judged.breach else {
            let before = if of.is_current { self.open(now).held.remove(&of.lineage) } else { None };
            let next = match baseline {
                Some(baseline) => baseline.after(new, judged.keys, now),
                None => Baseline::anew(new, judged.keys),
            };
            return Ok(match before {
                None => Review::Passed(next),
                Some(held) => Review::Cleared(Box::new(held), next),
            });
        };
        let counts = !(of.is_new && new.is_empty());
        breach.can_be_confirmed &= counts;
        let rules = guard.config();
        let mut held = Held {
            question: of.question.clone(),
            key: of.key,
            lineage: of.lineage,
            breach,
            sets: new.len(),
            agreed: 0,
            wanted: rules.confirm_after,
            apart: rules.confirm_for.0,
            since: now,
            seen_at: now,
            asked_at: of.asked_at.unwrap_or(now),
            decision: None,
            decided_at: now,
            counts,
            fingerprint: Guard::fingerprint(new, &judged.keys),
            counted_at: now,
        };
        if !of.is_current {
            return Ok(Review::Held(Box::new(held)));
        }
        let mut book = self.open(now);
        if let Some(before) = book.held.get(&of.lineage).filter(|before| before.fingerprint == held.fingerprint) {
            held.follow(before, now);
        }
        if held.is_believed() {
            book.held.remove(&of.lineage);
            return Ok(Review::Believed(Box::new(held), Baseline::anew(new, judged.keys)));
        }
        book.hold(held.clone());
        Ok(Review::Held(Box::new(held)))
    }

    /// Records `decision` for the answer held under `id`: the lineage's key as printed, or an unambiguous prefix of it.
    #[must_use]
    pub(crate) fn decide(&self, id: &str, decision: Decision, now: Timestamp) -> Option<(Key, Held)> {
        let mut book = self.open(now);
        let mut meant = book.held.iter_mut().filter(|(lineage, _)| lineage.to_string().starts_with(id));
        let (Some((lineage, held)), None) = (meant.next(), meant.next()) else { return None };
        (held.decision, held.decided_at) = (Some(decision), now);
        Some((*lineage, held.clone()))
    }

    /// Records that a caller asks a question whose answer is held under `lineage`.
    pub(crate) fn note_asked(&self, lineage: &Key, now: Timestamp) {
        if let Some(held) = self.lock().held.get_mut(lineage) {
            held.asked_at = now;
        }
    }

    /// The held answers that are due for another run at `now`, the longest due first.
    #[must_use]
    pub(crate) fn due(&self, now: Timestamp) -> Vec<Held> {
        if self.lock().held.is_empty() {
            return Vec::new();
        }
        let book = self.open(now);
        let mut due: Vec<(Timestamp, Held)> =
            book.held.values().filter_map(|held| Some((held.due_at()?, held.clone()))).collect();
        due.retain(|(at, _)| *at <= now);
        due.sort_by_key(|(at, held)| (*at, *held.lineage.as_bytes()));
        due.into_iter().map(|(_, held)| held).collect()
    }

    /// The answer held under `lineage`.
    #[must_use]
    pub(crate) fn get(&self, lineage: &Key, now: Timestamp) -> Option<Held> {
        self.open(now).held.get(lineage).cloned()
    }

    /// The route of each answer that is held.
    #[must_use]
    pub(crate) fn routes(&self, now: Timestamp) -> Vec<Arc<str>> {
        self.open(now).held.values().map(|held| Arc::clone(&held.question.route)).collect()
    }

    /// How many answers are held.
    #[cfg(test)]
    pub(crate) fn count(&self, now: Timestamp) -> usize {
        self.open(now).held.len()
    }

    /// The held answers, by lineage.
    #[must_use]
    pub(crate) fn list(&self, now: Timestamp) -> Vec<(Key, Held)> {
        self.open(now).held.iter().map(|(key, held)| (*key, held.clone())).collect()
    }

    /// Restores an answer that was held before a restart.
    pub(crate) fn restore(&self, lineage: Key, held: Held) {
        self.lock().held.entry(lineage).or_insert(held);
    }

    /// The lineages forgotten since the last call.
    #[must_use]
    pub(crate) fn take_forgotten(&self) -> Vec<Key> {
        std::mem::take(&mut self.lock().forgotten)
    }

    /// The book, after dropping entries that are due to be forgotten at `now`.
    fn open(&self, now: Timestamp) -> MutexGuard<'_, Book> {
        let mut book = self.lock();
        let Book { held, forgotten } = &mut *book;
        held.retain(|key, held| {
            let is_forgotten = held.is_forgotten(now);
            if is_forgotten {
                forgotten.push(*key);
            }
            !is_forgotten
        });
        book
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }
}

impl Book {
    /// Holds one more answer; if there are too many, drops the one seen longest ago.
    fn hold(&mut self, held: Held) {
        if self.held.len() >= MAX_HELD && !self.held.contains_key(&held.lineage) {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.seen_at).map(|(key, _)| *key);
            self.held.retain(|key, _| Some(*key) != oldest);
            self.forgotten.extend(oldest);
        }
        self.held.insert(held.lineage, held);
    }
}

impl Held {
    /// Counts a run that agrees with the held answer `before`.
    fn follow(&mut self, before: &Self, now: Timestamp) {
        // If the clock was put back, count from now.
        let is_apart = now.since(before.counted_at).is_some_and(|passed| passed >= self.apart);
        let has_jumped = now < before.counted_at;
        if !self.counts {
            (self.agreed, self.counted_at, self.counts) = (before.agreed, before.counted_at, before.counts);
        } else if before.counts {
            self.agreed = before.agreed.saturating_add(u32::from(is_apart));
            self.counted_at = if is_apart || has_jumped { now } else { before.counted_at };
        }
        self.since = before.since.min(now);
        self.asked_at = self.asked_at.max(before.asked_at);
        self.decision = before.standing_decision(now);
        self.decided_at = before.decided_at;
    }

    /// Whether enough runs have agreed, or an operator has.
    fn is_believed(&self) -> bool {
        match self.decision {
            Some(Decision::Released) => true,
            Some(Decision::Rejected) => false,
            None => self.breach.can_be_confirmed && self.agreed >= self.wanted,
        }
    }
}

#[cfg(test)]
mod tests;
