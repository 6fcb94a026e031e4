//! The book of what is held: who agreed so far, and what an operator decided.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Breach, Guard, short};
use crate::{
    cache::Key,
    clock::Timestamp,
    generator::{ParameterSet, Question},
};

/// How many held answers are remembered; those looked at least leave first, and begin anew.
const MOST_HELD: usize = 10_000;
/// How many names of what would be deleted are told in a message.
const MOST_NAMED: usize = 20;
/// For how long a release waits for a run that agrees.
const RELEASED_FOR: Duration = Duration::from_hours(1);
/// What nobody has asked about for so long is forgotten: its pull request is closed.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);

/// An answer that waits for agreement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Held {
    /// What was asked, and under which key.
    pub question: Question,
    /// The key of that question.
    pub key: Key,
    /// The key that it shares with those that it follows, by which it is called.
    pub lineage: Key,
    /// Why it is held.
    pub breach: Breach,
    /// How many parameter sets it has.
    pub sets: usize,
    /// How many runs have agreed since the first.
    pub agreed: u32,
    /// How many must.
    pub wanted: u32,
    /// How far apart.
    pub apart: Duration,
    /// When the first run brought it.
    pub since: Timestamp,
    /// When the last one did.
    pub seen_at: Timestamp,
    /// What an operator decided.
    pub decision: Option<Decision>,
    /// When.
    pub decided_at: Timestamp,
    /// Whether runs were counted that may take something away.
    counts: bool,
    fingerprint: [u8; 32],
    counted_at: Timestamp,
}

/// What an operator decides about a held answer. It goes for that answer only: another one is held anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// The next run that agrees is believed, within the hour.
    Released,
    /// No number of runs that agree is enough.
    Rejected,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "held: {}", self.breach.reason)?;
        if !self.breach.gone.is_empty() {
            let named: Vec<String> = self.breach.gone.iter().take(MOST_NAMED).map(|name| short(name)).collect();
            let rest = self.breach.gone.len() - named.len();
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            write!(f, "; Argo CD would delete what was made of {}{rest}", named.join(", "))?;
        }
        if self.decision == Some(Decision::Rejected) {
            f.write_str("; an operator rejected it")?;
        } else if self.breach.can_be_confirmed {
            let apart = humantime::format_duration(self.apart);
            write!(f, "; believed once {} further runs, {apart} apart, agree ({} so far)", self.wanted, self.agreed)?;
        } else {
            f.write_str("; it is not believed however often it is said")?;
        }
        write!(f, "; `appset-gateway held release {}` believes it", self.lineage)
    }
}

/// Who asks for a review: a question and what it follows.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// What was asked.
    pub question: &'a Question,
    /// The key of that question.
    pub key: Key,
    /// The key that it shares with those that it follows.
    pub lineage: Key,
    /// Whether it was never answered, and only follows others. That there is nothing for it yet, as while CI builds a
    /// commit, is no reason to take away what the others have, however often it is said.
    pub is_new: bool,
    /// Whether it is not outdated: what is said by a run that an invalidation cut off is no word in the matter.
    pub is_current: bool,
}

/// What a review came to.
#[derive(Debug)]
pub enum Review {
    /// The answer may pass, and nothing was held.
    Passed,
    /// The answer may pass; what was held is no more.
    Cleared(Box<Held>),
    /// The answer is a loss that is believed now.
    Believed(Box<Held>),
    /// The answer is held.
    Held(Box<Held>),
}

/// The answers that are held, by lineage. What nobody has asked about for a day is forgotten.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    held: HashMap<Key, Held>,
    /// What was forgotten since that was last asked.
    forgotten: Vec<Key>,
}

impl Ledger {
    /// Decides on `new` after `last` at `now`.
    ///
    /// # Errors
    /// As [`Guard::judge`].
    pub fn review(
        &self,
        of: Standing<'_>,
        guard: &Guard,
        last: Option<&[ParameterSet]>,
        peak: usize,
        new: &[ParameterSet],
        now: Timestamp,
    ) -> Result<Review, String> {
        drop(self.open(now));
        let Some(breach) = guard.judge(last, peak, new)? else {
            let before = if of.is_current { self.open(now).held.remove(&of.lineage) } else { None };
            return Ok(before.map_or(Review::Passed, |held| Review::Cleared(Box::new(held))));
        };
        let counts = !(of.is_new && new.is_empty());
        let breach = Breach { can_be_confirmed: breach.can_be_confirmed && counts, ..breach };
        let fingerprint = guard.fingerprint(new)?;
        let mut book = self.open(now);
        let (wanted, apart) = (guard.0.confirm_after, guard.0.confirm_for.0);
        let mut held = Held {
            question: of.question.clone(),
            key: of.key,
            lineage: of.lineage,
            breach,
            sets: new.len(),
            agreed: 0,
            wanted,
            apart,
            since: now,
            seen_at: now,
            decision: None,
            decided_at: now,
            counts,
            fingerprint,
            counted_at: now,
        };
        if !of.is_current {
            return Ok(Review::Held(Box::new(held)));
        }
        if let Some(before) = book.held.get(&of.lineage).filter(|before| before.fingerprint == fingerprint) {
            // A clock that went back counts from here.
            let is_apart = now.since(before.counted_at).is_some_and(|passed| passed >= apart);
            let has_jumped = now < before.counted_at;
            if !counts {
                (held.agreed, held.counted_at, held.counts) = (before.agreed, before.counted_at, before.counts);
            } else if before.counts {
                held.agreed = before.agreed.saturating_add(u32::from(is_apart));
                held.counted_at = if is_apart || has_jumped { now } else { before.counted_at };
            }
            held.since = before.since.min(now);
            held.decision = before.decision.filter(|decision| {
                let passed = now.since(before.decided_at);
                *decision == Decision::Rejected || passed.is_some_and(|passed| passed < RELEASED_FOR)
            });
            held.decided_at = before.decided_at;
        }
        let is_believed = match held.decision {
            Some(Decision::Released) => true,
            Some(Decision::Rejected) => false,
            None => held.breach.can_be_confirmed && held.agreed >= wanted,
        };
        if is_believed {
            book.held.remove(&of.lineage);
            return Ok(Review::Believed(Box::new(held)));
        }
        if book.held.len() >= MOST_HELD && !book.held.contains_key(&of.lineage) {
            let oldest = book.held.iter().min_by_key(|(_, held)| held.seen_at).map(|(key, _)| *key);
            book.held.retain(|key, _| Some(*key) != oldest);
            book.forgotten.extend(oldest);
        }
        book.held.insert(of.lineage, held.clone());
        Ok(Review::Held(Box::new(held)))
    }

    /// Writes `decision` on what is held under `id`: the lineage's key as it is printed, or a beginning of it that only
    /// one has.
    #[must_use]
    pub fn decide(&self, id: &str, decision: Decision, now: Timestamp) -> Option<(Key, Held)> {
        let mut book = self.open(now);
        let mut meant = book.held.iter_mut().filter(|(lineage, _)| lineage.to_string().starts_with(id));
        let (Some((lineage, held)), None) = (meant.next(), meant.next()) else { return None };
        (held.decision, held.decided_at) = (Some(decision), now);
        Some((*lineage, held.clone()))
    }

    /// What is held under `lineage`.
    #[must_use]
    pub fn get(&self, lineage: &Key, now: Timestamp) -> Option<Held> {
        self.open(now).held.get(lineage).cloned()
    }

    /// How many answers are held.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.open(now).held.len()
    }

    /// What is held, by lineage.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> Vec<(Key, Held)> {
        self.open(now).held.iter().map(|(key, held)| (*key, held.clone())).collect()
    }

    /// Takes over what was held before a restart.
    pub fn restore(&self, lineage: Key, held: Held) {
        self.lock().held.entry(lineage).or_insert(held);
    }

    /// What was forgotten since this was last asked.
    #[must_use]
    pub fn take_forgotten(&self) -> Vec<Key> {
        std::mem::take(&mut self.lock().forgotten)
    }

    /// The book without what is forgotten at `now`.
    fn open(&self, now: Timestamp) -> MutexGuard<'_, Book> {
        let mut book = self.lock();
        let is_old = |held: &Held| now.since(held.seen_at).is_some_and(|idle| idle > FORGOTTEN_AFTER);
        let Book { held, forgotten } = &mut *book;
        held.retain(|key, held| {
            let is_old = is_old(held);
            if is_old {
                forgotten.push(*key);
            }
            !is_old
        });
        book
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::tests::{guard, sets},
        *,
    };

    const LINEAGE: Key = Key::of_bytes([1; 32]);

    /// Reviews one lineage, and lets time pass in between.
    struct Reviewer {
        guard: Guard,
        last: Vec<ParameterSet>,
        ledger: Ledger,
        seconds: std::cell::Cell<u64>,
    }

    impl Reviewer {
        fn new(guard: Guard, last: Vec<ParameterSet>) -> Self {
            Self { guard, last, ledger: Ledger::default(), seconds: std::cell::Cell::new(1000) }
        }

        /// How many runs agree with `new` by now, or `None` when it passes.
        fn review(&self, after: u64, new: &[ParameterSet]) -> Option<u32> {
            self.seconds.set(self.seconds.get() + after);
            let question = Question { route: "r".into(), application_set: None, parameters: Arc::default() };
            let of = Standing { question: &question, key: LINEAGE, lineage: LINEAGE, is_new: false, is_current: true };
            match self.ledger.review(of, &self.guard, Some(&self.last), 0, new, self.now()).unwrap() {
                Review::Held(held) => Some(held.agreed),
                Review::Passed | Review::Cleared(_) | Review::Believed(_) => None,
            }
        }

        fn now(&self) -> Timestamp {
            Timestamp(self.seconds.get() * 1000)
        }

        fn len(&self) -> usize {
            self.ledger.count(self.now())
        }
    }

    #[test]
    fn agreement_releases_and_anything_else_begins_anew() {
        let (all, half, none) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"), Vec::new());
        let reviewer = Reviewer::new(guard(&json!({})), all.clone());
        let review = |after: u64, new: &[ParameterSet]| reviewer.review(after, new);
        assert_eq!(
            [review(0, &half), review(59, &half), review(1, &half), review(59, &half)],
            [Some(0), Some(0), Some(1), Some(1)]
        );
        assert_eq!(reviewer.len(), 1);
        assert_eq!((review(1, &half), reviewer.len()), (None, 0));
        // Another loss, a recovery and a clock that went back all begin anew.
        assert_eq!([review(60, &half), review(60, &half), review(60, &none)], [Some(0), Some(1), Some(0)]);
        assert_eq!([review(60, &half), review(60, &half), review(60, &all)], [Some(0), Some(1), None]);
        for _ in 0..100 {
            assert_eq!([review(60, &half), review(60, &all)], [Some(0), None], "an oscillating source");
        }
        assert_eq!(review(60, &half), Some(0));
        reviewer.seconds.set(10);
        assert_eq!([review(0, &half), review(60, &half), review(60, &half)], [Some(0), Some(1), None]);
    }

    #[test]
    fn what_is_kept_is_never_believed_unless_an_operator_says_so() {
        let reviewer = Reviewer::new(guard(&json!({"onEmpty": "keep"})), sets(&["a"], "1"));
        for _ in 0..100 {
            assert!(reviewer.review(600, &[]).is_some());
        }
        let id = LINEAGE.to_string();
        assert!(reviewer.ledger.decide(&id, Decision::Released, reviewer.now()).is_some());
        assert_eq!((reviewer.review(1, &[]), reviewer.len()), (None, 0));
        assert!(reviewer.ledger.decide(&id, Decision::Released, reviewer.now()).is_none());
    }

    #[test]
    fn a_decision_goes_for_one_answer() {
        let (all, half) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"));
        let reviewer = Reviewer::new(guard(&json!({})), all);
        let id = LINEAGE.to_string();
        reviewer.review(0, &half);
        reviewer.ledger.decide(&id, Decision::Rejected, reviewer.now()).unwrap();
        for _ in 0..100 {
            assert!(reviewer.review(60, &half).is_some(), "rejected");
        }
        reviewer.ledger.decide(&id, Decision::Released, reviewer.now()).unwrap();
        assert_eq!(reviewer.review(1, &[]), Some(0), "another answer than the one that was released");
        assert_eq!(reviewer.review(1, &half), Some(0), "and that is forgotten with it");
    }

    #[test]
    fn what_nobody_asks_about_is_forgotten() {
        let reviewer = Reviewer::new(guard(&json!({})), sets(&["a"], "1"));
        reviewer.review(0, &[]);
        reviewer.seconds.set(reviewer.seconds.get() + 24 * 3600);
        assert_eq!(reviewer.len(), 1);
        reviewer.seconds.set(reviewer.seconds.get() + 1);
        assert_eq!(reviewer.len(), 0);
        assert_eq!((reviewer.ledger.take_forgotten(), reviewer.ledger.take_forgotten()), (vec![LINEAGE], vec![]));
    }
}
