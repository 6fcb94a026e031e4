//! The list of held answers.

mod held;

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

pub(crate) use self::held::{Decision, Held};
use crate::{domain::clock::Timestamp, engine::cache::Key};

/// How many held answers are stored. If there are more, the answer that was seen longest ago is dropped; its count of agreeing
/// runs begins again.
const MAX_HELD: usize = 10_000;

/// The held answers, by lineage. An answer that no caller has asked about for a day is forgotten.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    held: HashMap<Key, Held>,
    /// The lineages forgotten since [`Ledger::take_forgotten`] was last called.
    forgotten: Vec<Key>,
}

impl Ledger {
    /// Holds `held` in its lineage.
    pub(crate) fn hold(&self, held: Held) {
        self.lock().hold(held);
    }

    /// Removes the answer held in `lineage`. Returns whether there was one.
    pub(crate) fn remove(&self, lineage: &Key) -> bool {
        self.lock().held.remove(lineage).is_some()
    }

    /// The answer held under `id`: the lineage's key as printed, or an unambiguous prefix of it.
    #[must_use]
    pub(crate) fn find(&self, id: &str, now: Timestamp) -> Option<Held> {
        let book = self.open(now);
        let mut meant = book.held.iter().filter(|(lineage, _)| lineage.to_string().starts_with(id));
        let (Some((_, held)), None) = (meant.next(), meant.next()) else { return None };
        Some(held.clone())
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
    fn hold(&mut self, mut held: Held) {
        if let Some(before) = self.held.get(&held.lineage) {
            // A caller may have asked during the review.
            held.asked_at = held.asked_at.max(before.asked_at);
        }
        if self.held.len() >= MAX_HELD && !self.held.contains_key(&held.lineage) {
            let oldest = self.held.iter().min_by_key(|(_, held)| held.seen_at).map(|(key, _)| *key);
            self.held.retain(|key, _| Some(*key) != oldest);
            self.forgotten.extend(oldest);
        }
        self.held.insert(held.lineage, held);
    }
}

#[cfg(test)]
mod tests;
