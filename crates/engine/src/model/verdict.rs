//! What the guard must decide about an answer, compared with the accepted answers before it.

use crate::model::{
    rules::{RuleIdentity, Rules},
    source::{Ran, Says},
};
use domain::clock::Timestamp;

/// An answer that was accepted in a lineage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Accepted {
    pub names: Vec<u8>,
    /// When another answer replaced it; `None` for the last one.
    pub until: Option<Timestamp>,
}

impl Accepted {
    /// Whether it was the last one within the hour before `now`.
    pub(super) fn is_recent(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now.0 < until.0 + 3_600_000)
    }
}

/// The guard's decision about an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Good,
    /// Further runs must agree. `compares`: whether that is for what was there before.
    Loss {
        can_be_confirmed: bool,
        compares: bool,
    },
    /// The answer is invalid.
    Nonsense,
}

impl Rules {
    /// Whether the sets of an answer with `count` sets are identified by their names.
    const fn identifies_by_name(&self, count: usize) -> bool {
        match self.identity {
            RuleIdentity::Counted => false,
            RuleIdentity::Named => true,
            RuleIdentity::Auto => count >= 2,
        }
    }

    /// The decision about `new` at `now`. `before` are the accepted answers, the last one at the end; `None` if their record is lost.
    pub(super) fn evaluate(&self, before: Option<&[Accepted]>, new: &Ran, now: Timestamp) -> Verdict {
        let after = new.names().unwrap_or_default();
        if new.says == Says::Duplicates || (after.is_empty() && self.on_empty == "error") {
            return Verdict::Nonsense;
        }
        let is_few_or_many = after.len() < self.least || after.len() > self.max;
        let is_allowed = after.is_empty() && self.on_empty == "allow" && self.least == 0;
        let loss = |loses: bool| {
            let is_kept = if after.is_empty() { self.on_empty == "keep" } else { loses && self.on_shrink == "keep" };
            Verdict::Loss { can_be_confirmed: !is_kept, compares: true }
        };
        let Some(before) = before else { return if is_allowed { Verdict::Good } else { loss(true) } };
        let last = before.last().map_or(&[][..], |last| &last.names);
        if after.is_empty() && !last.is_empty() {
            return if is_allowed { Verdict::Good } else { loss(true) };
        }
        let (of_last, of_hour, peak) = self.losses(before, last, &after, now);
        let is_more = |gone: usize, of: usize| gone * 100 > of * usize::from(self.shrink);
        let is_loss = is_more(of_last, last.len()) || (!after.is_empty() && is_more(of_hour, peak));
        let Verdict::Loss { can_be_confirmed, .. } = loss(of_last > 0 || of_hour > 0) else { return Verdict::Good };
        if is_few_or_many {
            return Verdict::Loss { can_be_confirmed, compares: false };
        }
        if is_loss { Verdict::Loss { can_be_confirmed, compares: true } } else { Verdict::Good }
    }

    /// The decision about `new`, which would pass if it came for the first time, while the same answer is held: time alone ends no hold.
    pub(crate) fn evaluate_again(&self, is_rejected: bool, compares: bool, new: &Ran) -> Verdict {
        let after = new.names().unwrap_or_default();
        let passes_whatever_was_before =
            if after.is_empty() { self.on_empty == "allow" && self.least == 0 } else { self.shrink >= 100 };
        if !is_rejected && (!compares || passes_whatever_was_before) {
            return Verdict::Good;
        }
        let is_kept = if after.is_empty() { self.on_empty == "keep" } else { compares && self.on_shrink == "keep" };
        Verdict::Loss { can_be_confirmed: !is_kept, compares }
    }

    /// How many sets of the `last` answer are gone, how many of the last hour are gone, and the largest count of the last hour.
    fn losses(&self, before: &[Accepted], last: &[u8], after: &[u8], now: Timestamp) -> (usize, usize, usize) {
        let recent = || before.iter().filter(|accepted| accepted.is_recent(now));
        let peak = recent().map(|accepted| accepted.names.len()).max().unwrap_or_default();
        let fewer = peak.saturating_sub(after.len());
        if !self.identifies_by_name(last.len()) || !self.identifies_by_name(after.len()) {
            return (last.len().saturating_sub(after.len()), fewer, peak);
        }
        // Names from before an answer without names are not known.
        let named_from = before
            .iter()
            .rposition(|accepted| !self.identifies_by_name(accepted.names.len()))
            .map_or(0, |place| place + 1);
        let mut gone: Vec<u8> = before[named_from..]
            .iter()
            .filter(|accepted| accepted.is_recent(now))
            .flat_map(|each| each.names.clone())
            .collect();
        gone.sort_unstable();
        gone.dedup();
        gone.retain(|name| !after.contains(name));
        (last.iter().filter(|name| !after.contains(name)).count(), gone.len().max(fewer), peak)
    }

    /// Whether two answers have the same parameter sets.
    pub(super) fn agree(&self, one: &Ran, other: &Ran) -> bool {
        let names = one.names();
        let are_alike = (one.query, one.version) == (other.query, other.version) || names == Some(Vec::new());
        let by_name = names.as_ref().is_some_and(|names| self.identifies_by_name(names.len()));
        names == other.names() && (by_name || are_alike)
    }
}
