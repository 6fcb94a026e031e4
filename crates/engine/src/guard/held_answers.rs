//! The list of held answers.

mod held;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::cache::{Key, KeyStart, NotOne, RouteId, Shares, Usage, round_robin};
pub use crate::guard::held_answers::held::{Decision, Held};
use domain::clock::Timestamp;

/// How many bytes of held answers are stored: some ten thousand.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The held answers, by lineage. An answer that no caller has queried for a day is forgotten.
///
/// Routes share the limit. When it is reached, further answers of a route that has used its share are held and not listed
/// ([`HeldAnswers::fits`]): those that are listed continue to be confirmed. A route below its share gets space from the
/// one that uses the most, which loses the answer seen longest ago: its next run holds that answer again and restarts the count of
/// agreeing runs. An answer with a decision of an operator is never evicted.
#[derive(Debug, Clone)]
pub struct HeldAnswers(Arc<Mutex<Book>>);

#[derive(Debug)]
struct Book {
    held: Shares<Key, Held>,
    /// The lineages forgotten since [`HeldAnswers::take_forgotten`] was last called.
    forgotten: Vec<Key>,
}

impl Default for HeldAnswers {
    fn default() -> Self {
        Self::with_limit(MAX_BYTES)
    }
}

impl HeldAnswers {
    /// At most so many bytes of held answers.
    fn with_limit(bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Book { held: Shares::new(bytes), forgotten: Vec::new() })))
    }

    /// Sets the limit of held answers to so many bytes: as many as the file may hold.
    pub fn limit(&self, bytes: u64) {
        self.lock().held.resize(bytes.min(MAX_BYTES));
    }

    /// Holds `held` in its lineage.
    pub fn hold(&self, held: Held) {
        self.lock().hold(held);
    }

    /// Whether `held` is listed: its lineage has a held answer already, or the limit is not reached, or its route uses less than its share.
    #[must_use]
    pub(crate) fn fits(&self, held: &Held) -> bool {
        let mut book = self.lock();
        let (route, weight) = (held.lineage.route(), held.weight() as u64);
        let used = book.held.usage(route).weight;
        let fits = book.held.peek(&held.lineage).is_some()
            || book.held.fits(book.held.weight() + weight)
            || used + weight <= book.held.share(route);
        if !fits {
            book.held.note_left(route);
        }
        fits
    }

    /// Removes the answer held in `lineage`. Returns whether there was one.
    pub fn remove(&self, lineage: &Key) -> bool {
        self.lock().held.remove(lineage).is_some()
    }

    /// The answer held in the lineage whose key begins with `id`.
    ///
    /// # Errors
    /// When there is none, or there are several.
    pub fn find(&self, id: &KeyStart, now: Timestamp) -> Result<Held, NotOne> {
        id.find(self.open(now).held.iter().map(|(lineage, held)| (*lineage, held))).cloned()
    }

    /// Records that a caller asks a question whose answer is held under `lineage`.
    pub(crate) fn note_queried(&self, lineage: &Key, now: Timestamp) {
        if let Some(held) = self.lock().held.peek_mut(lineage) {
            held.queried_at = now;
        }
    }

    /// The held answers that are due for another run at `now`: routes come round-robin, and of each the longest due comes first.
    #[must_use]
    pub fn due(&self, now: Timestamp) -> Vec<Held> {
        if self.lock().held.len() == 0 {
            return Vec::new();
        }
        let book = self.open(now);
        let mut due: Vec<(Timestamp, Held)> =
            book.held.iter().filter_map(|(_, held)| Some((held.due_at()?, held.clone()))).collect();
        due.retain(|(at, _)| *at <= now);
        due.sort_by_key(|(at, held)| (*at, *held.lineage.as_bytes()));
        round_robin(due.into_iter().map(|(_, held)| held).collect(), |held| held.lineage.route())
    }

    /// The answer held under `lineage`.
    #[must_use]
    pub fn get(&self, lineage: &Key, now: Timestamp) -> Option<Held> {
        // Each run comes here, so only this one is looked at, however many are held.
        let mut book = self.lock();
        if book.held.peek(lineage)?.is_forgotten(now) {
            book.forget(*lineage);
        }
        book.held.peek(lineage).cloned()
    }

    /// The route of each answer that is held.
    #[must_use]
    pub fn routes(&self, now: Timestamp) -> Vec<Arc<str>> {
        self.open(now).held.iter().map(|(_, held)| Arc::clone(&held.question.route)).collect()
    }

    /// How many answers are held.
    #[cfg(test)]
    pub fn count(&self, now: Timestamp) -> usize {
        self.open(now).held.len()
    }

    /// The held answers, by lineage.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> Vec<(Key, Held)> {
        self.open(now).held.iter().map(|(key, held)| (*key, held.clone())).collect()
    }

    /// The held answers, by lineage, with those that are due to be forgotten.
    #[must_use]
    pub fn all(&self) -> Vec<(Key, Held)> {
        self.lock().held.iter().map(|(key, held)| (*key, held.clone())).collect()
    }

    /// Restores an answer that was held before a restart.
    pub fn restore(&self, held: Held) {
        let mut book = self.lock();
        if book.held.peek(&held.lineage).is_none() {
            book.hold(held);
        }
    }

    /// How much the held answers of `route` use, and how much they may use before some of them are evicted.
    #[must_use]
    pub fn usage(&self, route: RouteId) -> (Usage, u64) {
        let book = self.lock();
        (book.held.usage(route), book.held.share(route))
    }

    /// The lineages forgotten since the last call.
    #[must_use]
    pub(crate) fn take_forgotten(&self) -> Vec<Key> {
        std::mem::take(&mut self.lock().forgotten)
    }

    /// The book, after dropping entries that are due to be forgotten at `now`.
    fn open(&self, now: Timestamp) -> MutexGuard<'_, Book> {
        let mut book = self.lock();
        let forgotten: Vec<Key> =
            book.held.iter().filter(|(_, held)| held.is_forgotten(now)).map(|(key, _)| *key).collect();
        for lineage in forgotten {
            book.forget(lineage);
        }
        book
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }
}

impl Book {
    fn forget(&mut self, lineage: Key) {
        self.held.remove(&lineage);
        self.forgotten.push(lineage);
    }

    /// Holds one more answer, and evicts others if the limit is reached.
    fn hold(&mut self, mut held: Held) {
        let (lineage, now) = (held.lineage, held.seen_at.max(held.decided_at));
        if let Some(before) = self.held.peek(&lineage) {
            // A caller may have come during the check.
            held.queried_at = held.queried_at.max(before.queried_at);
        }
        let weight = held.weight() as u64;
        self.held.put(lineage, held, weight);
        while let Some((left, _)) = self.held.next(|key, other| *key == lineage || !other.may_leave(now)) {
            self.forgotten.push(left);
        }
    }
}

#[cfg(test)]
mod tests;
