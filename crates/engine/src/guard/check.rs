//! Decides whether an answer is accepted: compares it with the baseline, and counts the runs that agree with the held answer. It is pure:
//! `Run::changes` and `operators::explain` call it, and `Run::apply` applies the verdict.

use crate::{
    cache::Key,
    guard::{Baseline, Decision, Guard, Held, InvalidAnswer},
};
use domain::{
    clock::Timestamp,
    generator::{ParameterSet, Question},
};

/// The question whose answer is checked, and its lineage.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// The question.
    pub question: &'a Question,
    /// The question's key.
    pub key: Key,
    /// The key of its lineage.
    pub lineage: Key,
    /// The time of the last query. `None`: a caller is waiting now.
    pub queried_at: Option<Timestamp>,
    /// True if the lineage has an answer, and the question none. An empty answer to a new question, as while CI
    /// builds a commit, never replaces the lineage's sets, however often it is repeated.
    pub is_new: bool,
    /// Whether the run is current: a run that an invalidation cut off decides nothing.
    pub is_current: bool,
    /// When the run began.
    pub began: Timestamp,
    /// The time of the check.
    pub now: Timestamp,
}

/// The result of a check.
#[derive(Debug)]
pub enum GuardVerdict {
    /// The answer passes; nothing was held.
    Passed(Baseline),
    /// The answer passes, and the held one is dropped.
    Cleared(Box<Held>, Baseline),
    /// The answer is a loss that is accepted now.
    Accepted(Box<Held>, Baseline),
    /// The answer is held.
    Held(Box<Held>),
}

impl Guard {
    /// Checks `new`. `baseline` and `last` are of the last accepted answer, as for [`Guard::evaluate`]. `before` is the answer that is held
    /// now.
    ///
    /// # Errors
    /// As [`Guard::evaluate`].
    pub fn check(
        &self,
        of: Standing<'_>,
        baseline: Option<&Baseline>,
        last: impl Fn() -> Vec<ParameterSet>,
        before: Option<&Held>,
        new: &[ParameterSet],
    ) -> Result<GuardVerdict, InvalidAnswer> {
        let now = of.now;
        // Without a baseline, a loss is held because of a lost record, which is remembered for a week. It still counts as lost while that loss is held.
        let is_lost = |baseline: &&Baseline| baseline.is_of_nothing() && before.is_some_and(|held| held.breach.is_loss);
        let evaluation = self.evaluate(baseline.filter(|baseline| !is_lost(baseline)), last, new, now)?;
        // Only what is held has one: most answers pass, and it takes a hash of the whole list.
        let fingerprint = || Self::fingerprint(new, &evaluation.identities);
        let same = before.filter(|held| held.fingerprint == fingerprint());
        let breach = evaluation.breach.or_else(|| self.still_holds(same?, new.len()));
        let before = before.filter(|_| of.is_current);
        let Some(mut breach) = breach else {
            let next = match baseline {
                Some(baseline) => baseline.after(evaluation.identities, now),
                None => Baseline::anew(evaluation.identities),
            };
            return Ok(match before {
                None => GuardVerdict::Passed(next),
                Some(held) => GuardVerdict::Cleared(Box::new(held.clone()), next),
            });
        };
        let counts = !(of.is_new && new.is_empty());
        breach.can_be_confirmed &= counts;
        let rules = self.config();
        let mut held = Held {
            question: of.question.clone(),
            key: of.key,
            lineage: of.lineage,
            breach,
            sets: new.len(),
            agreed: 0,
            wanted: rules.confirm_after,
            interval: rules.confirm_for.0,
            since: now,
            seen_at: now,
            queried_at: of.queried_at.unwrap_or(now),
            evidence: Vec::new(),
            decision: None,
            decided_at: now,
            is_unlisted: false,
            counts,
            fingerprint: fingerprint(),
            counted_at: now,
            is_contradicted: false,
        };
        if let Some(before) = before.filter(|before| before.agrees_with(&held)) {
            held.follow(before, of.began, now);
        }
        if of.is_current && held.is_accepted() {
            return Ok(GuardVerdict::Accepted(Box::new(held), Baseline::anew(evaluation.identities)));
        }
        Ok(GuardVerdict::Held(Box::new(held)))
    }
}

impl Held {
    /// Counts a run that agrees with the held answer `before`. A run counts only if it began at least `interval` after the last counted
    /// one; an overlapping run may repeat the same reading.
    fn follow(&mut self, before: &Self, began: Timestamp, now: Timestamp) {
        // If the clock was put back, count from now.
        let is_due = began.min(now).since(before.counted_at).is_some_and(|passed| passed >= self.interval);
        let has_jumped = now < before.counted_at;
        if !self.counts {
            (self.agreed, self.counted_at, self.counts) = (before.agreed, before.counted_at, before.counts);
            self.is_contradicted = before.is_contradicted;
        } else if before.counts && !before.is_contradicted {
            self.agreed = before.agreed.saturating_add(u32::from(is_due));
            self.counted_at = if is_due || has_jumped { now } else { before.counted_at };
        }
        self.since = before.since.min(now);
        self.queried_at = self.queried_at.max(before.queried_at);
        self.decision = before.standing_decision(now);
        self.decided_at = before.decided_at;
    }

    /// Whether enough runs have agreed, or an operator has.
    fn is_accepted(&self) -> bool {
        match self.decision {
            Some(Decision::Released) => true,
            Some(Decision::Rejected) => false,
            None => self.breach.can_be_confirmed && self.agreed >= self.wanted,
        }
    }
}
