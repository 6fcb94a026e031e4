//! Decides whether an answer may replace the last accepted one. Pure: it reads no clock and keeps no state.
//!
//! A new rule goes into `Guard::reason`, and into the model's rules (`engine/model`); CONTRIBUTING.md lists the steps.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
};

use foldhash::quality::RandomState;
use sha2::{Digest as _, Sha256};

use crate::guard::{
    Baseline, Breach, Decision, Guard, Held, Identities, OnEmpty, OnShrink,
    baseline::Loss,
    identities::usual_key,
    identity::{Identity, canonical, label},
};
use domain::{
    clock::Timestamp,
    generator::{ParameterSet, Parameters},
    units::plural,
};

/// How many of the lost sets are named.
pub(super) const MAX_NAMED: usize = 100;

/// Why an answer cannot be intended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAnswer {
    /// It is empty, and the configuration calls that an error.
    #[error("an empty list, which the route's `guard.onEmpty` calls an error")]
    Empty,
    /// A set lacks a key that identifies it.
    #[error("parameter set {index}: it has no `{key}`, which `guard.identity` needs")]
    NoKey {
        /// The place of the set in the list, from 0.
        index: usize,
        /// The key.
        key: String,
    },
    /// Two sets have one identity.
    #[error("the parameter sets {first} and {second} are both {label}")]
    Duplicates {
        /// The place of one set in the list, from 0.
        first: usize,
        /// The place of the other one.
        second: usize,
        /// Their identity.
        label: String,
    },
}

/// The result of comparing an answer with the baseline.
#[derive(Debug)]
pub struct Evaluation {
    /// Why the answer is held; `None` when it may pass.
    pub breach: Option<Breach>,
    /// The identities of its sets.
    pub(crate) identities: Identities,
}

impl Guard {
    /// Compares `new` with the baseline at `now`. `baseline` is empty if nothing was ever accepted, and `None` if its record
    /// is lost. `last` reads the last accepted answer, if it is still stored.
    ///
    /// # Errors
    /// When the new answer is invalid: two sets have one identity, a set lacks a key, or an empty list is an error.
    pub fn evaluate(
        &self,
        baseline: Option<&Baseline>,
        last: impl Fn() -> Vec<ParameterSet>,
        new: &[ParameterSet],
        now: Timestamp,
    ) -> Result<Evaluation, InvalidAnswer> {
        let own = self.identify(new)?;
        let Some(baseline) = baseline else {
            let breach = self.unknown(new.len()).map(|reason| Breach {
                reason,
                gone: Vec::new(),
                identity: own.keys().to_vec(),
                can_be_confirmed: !self.is_kept(new.len(), true),
                is_loss: true,
            });
            return Ok(Evaluation { breach, identities: own });
        };
        let (identities, loss) = self.compare(baseline, &last, new, own, now);
        let reason = self.reason(baseline, &loss, new.len(), now);
        let breach = reason.map(|(reason, is_loss)| {
            let keys = identities.keys();
            // The lost sets can still be named by the former keys if the new answer has too few sets to compare.
            let named = if keys.is_empty() && new.len() < 2 { baseline.keys() } else { keys };
            Breach {
                reason,
                gone: gone(&last(), new, named),
                identity: keys.to_vec(),
                can_be_confirmed: !self.is_kept(new.len(), loss.of_last > 0 || loss.of_hour > 0),
                is_loss,
            }
        });
        Ok(Evaluation { breach, identities })
    }

    /// Identifies the sets of an answer by themselves. Refuses an invalid answer.
    fn identify(&self, new: &[ParameterSet]) -> Result<Identities, InvalidAnswer> {
        if new.is_empty() && self.0.on_empty == OnEmpty::Error {
            return Err(InvalidAnswer::Empty);
        }
        let identities = Identities::of(&self.0.identity, new);
        let keys = self.explicit_keys();
        let is_identified =
            if keys.is_empty() { !identities.may_have_duplicates(new) } else { !identities.keys().is_empty() };
        if is_identified || (keys.is_empty() && new.len() < 2) {
            return Ok(identities);
        }
        for (index, set) in new.iter().enumerate() {
            if let Some(key) = keys.iter().find(|key| !set.0.contains_key(*key)) {
                return Err(InvalidAnswer::NoKey { index, key: key.clone() });
            }
        }
        let duplicates = if keys.is_empty() { duplicates_as_a_whole(new) } else { duplicates_by(new, keys) };
        let Some((first, second)) = duplicates else { return Ok(identities) };
        let set = &new[second];
        let label = if set.0.is_empty() { "empty".to_owned() } else { format!("`{}`", label(set, keys)) };
        Err(InvalidAnswer::Duplicates { first, second, label })
    }

    fn explicit_keys(&self) -> &[String] {
        if let Identity::Keys(keys) = &self.0.identity { keys } else { &[] }
    }

    /// The sets of `new`, identified as they are compared, and its loss. `own` is how they are identified without the baseline.
    fn compare(
        &self,
        baseline: &Baseline,
        last: impl Fn() -> Vec<ParameterSet>,
        new: &[ParameterSet],
        own: Identities,
        now: Timestamp,
    ) -> (Identities, Loss) {
        let counted = || Loss {
            of_last: baseline.count().saturating_sub(new.len()),
            of_hour: baseline.peak(now).saturating_sub(new.len()),
        };
        let by_identity = |baseline: &Baseline| {
            let is_same = own.keys() == baseline.keys();
            let known = if is_same { own.clone() } else { Identities::by(new, baseline.keys())? };
            let mut loss = baseline.losses(&known, now);
            loss.of_hour = loss.of_hour.max(counted().of_hour);
            Some((known, loss))
        };
        let is_compared = |keys: &[String]| match &self.0.identity {
            Identity::Keys(wanted) => keys == wanted.as_slice(),
            Identity::Auto => baseline.count() >= 2 && new.len() >= 2,
        };
        if !baseline.keys().is_empty()
            && is_compared(baseline.keys())
            && let Some(compared) = by_identity(baseline)
        {
            return compared;
        }
        // The keys changed, or no longer identify the sets: other keys may do so in both answers.
        let other = match &self.0.identity {
            Identity::Keys(keys) if keys.is_empty() => None,
            Identity::Keys(keys) => Some(keys.clone()),
            Identity::Auto if baseline.count() < 2 || new.len() < 2 => None,
            Identity::Auto => usual_key(&[&last(), new]),
        };
        let identities = other.and_then(|keys| {
            let last = last();
            // The sets of an answer that is no longer stored cannot be identified.
            if last.len() == baseline.count() { Identities::by(&last, &keys) } else { None }
        });
        let compared = identities.and_then(|last| by_identity(&baseline.identified_as(last)));
        compared.unwrap_or_else(|| (own, counted()))
    }

    /// Why an answer with `count` sets and this `loss` is held, and whether it is held for a loss; `None` if it passes.
    fn reason(&self, baseline: &Baseline, loss: &Loss, count: usize, now: Timestamp) -> Option<(String, bool)> {
        let (rules, before, peak) = (&self.0, baseline.count(), baseline.peak(now));
        if count == 0 && before > 0 {
            return (!self.allows_empty()).then(|| (format!("an empty list after one of {before}"), true));
        }
        if count < rules.min_items {
            let s = plural(count);
            let reason = format!("{count} parameter set{s}, fewer than `guard.minItems: {}`", rules.min_items);
            return Some((reason, false));
        }
        if let Some(max_items) = rules.max_items
            && count > max_items
        {
            return Some((format!("{count} parameter sets, more than `guard.maxItems: {max_items}`"), false));
        }
        let limit = format_args!("more than `guard.maxShrink: {}`", rules.max_shrink);
        if rules.max_shrink.is_exceeded(loss.of_last, before) {
            return Some((format!("{} of {before} parameter sets would be gone, {limit}", loss.of_last), true));
        }
        let is_loss_of_hour = count > 0 && rules.max_shrink.is_exceeded(loss.of_hour, peak);
        let of_hour =
            || format!("{} of the {peak} parameter sets of the last hour would be gone, {limit}", loss.of_hour);
        is_loss_of_hour.then(|| (of_hour(), true))
    }

    /// Why `held` stays held although its answer, which has `count` sets, would pass if it came for the first time: the hour in which a
    /// loss counts is over, or the week in which a lost record is known. Time alone takes away neither a decision nor the confirmations.
    /// `None` if it was not held for a loss, or the rules of today would let this loss pass whatever was there before.
    pub(super) fn still_holds(&self, held: &Held, count: usize) -> Option<Breach> {
        let is_rejected = held.decision == Some(Decision::Rejected);
        let is_open = held.breach.is_loss && self.unknown(count).is_some();
        let can_be_confirmed = !self.is_kept(count, held.breach.is_loss);
        (is_rejected || is_open).then(|| Breach { can_be_confirmed, ..held.breach.clone() })
    }

    /// Why an answer with `count` sets is held if the baseline's record is lost.
    fn unknown(&self, count: usize) -> Option<String> {
        const LOST: &str = "and the record of the previous answer is lost";
        if count == 0 {
            return (!self.allows_empty()).then(|| format!("an empty list, {LOST}"));
        }
        (!self.0.max_shrink.is_unlimited()).then(|| format!("{count} parameter sets, {LOST}"))
    }

    fn allows_empty(&self) -> bool {
        self.0.on_empty == OnEmpty::Allow && self.0.min_items == 0
    }

    /// Whether only an operator can release an answer with `count` sets; `loses`: whether sets are gone.
    fn is_kept(&self, count: usize, loses: bool) -> bool {
        if count == 0 { self.0.on_empty == OnEmpty::Keep } else { loses && self.0.on_shrink == OnShrink::Keep }
    }

    /// A hash of `sets`, which are identified as `identities`. Two answers agree if it is the same.
    pub(super) fn fingerprint(sets: &[ParameterSet], identities: &Identities) -> [u8; 32] {
        let mut all: Vec<Vec<u8>> = if identities.keys().is_empty() {
            sets.iter().map(|set| whole(&set.0).into_bytes()).collect()
        } else {
            identities.sorted.iter().map(|identity| identity.to_le_bytes().to_vec()).collect()
        };
        all.sort_unstable();
        let mut hasher = Sha256::new();
        for each in all {
            hasher.update((each.len() as u64).to_le_bytes());
            hasher.update(each);
        }
        hasher.finalize().into()
    }
}

/// Names the sets of `last` that are not in `new`, at most [`MAX_NAMED`]. Sets are identified by `keys`, else as a whole.
fn gone(last: &[ParameterSet], new: &[ParameterSet], keys: &[String]) -> Vec<String> {
    let identity = |set: &ParameterSet| match keys {
        [] => Some(whole(&set.0)),
        keys => {
            keys.iter().map(|key| set.0.get(key).map(canonical)).collect::<Option<Vec<_>>>().map(|all| all.join("\n"))
        }
    };
    let known: HashSet<String> = new.iter().filter_map(identity).collect();
    let is_gone = |set: &&ParameterSet| identity(set).is_none_or(|identity| !known.contains(&identity));
    last.iter().filter(is_gone).take(MAX_NAMED).map(|set| label(set, keys)).collect()
}

fn whole(set: &Parameters) -> String {
    canonical(&serde_json::Value::Object(set.clone()))
}

/// The first two indices with equal sets.
fn duplicates_as_a_whole(sets: &[ParameterSet]) -> Option<(usize, usize)> {
    duplicates(sets.iter().map(|set| &set.0))
}

fn duplicates_by(sets: &[ParameterSet], keys: &[String]) -> Option<(usize, usize)> {
    let identity = |set: &ParameterSet| keys.iter().filter_map(|key| set.0.get(key)).map(canonical).collect::<Vec<_>>();
    duplicates(sets.iter().map(identity))
}

/// The first two indices with equal values.
fn duplicates<T: Hash + Eq>(all: impl Iterator<Item = T>) -> Option<(usize, usize)> {
    // The standard library's hash is slow for the many parts of a set.
    let mut places = HashMap::with_hasher(RandomState::default());
    for (place, each) in all.enumerate() {
        if let Some(first) = places.insert(each, place) {
            return Some((first, place));
        }
    }
    None
}

#[cfg(test)]
pub(super) mod tests;
