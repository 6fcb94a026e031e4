//! How the parameter sets of one answer are told apart. It is found out once for each answer.

use serde_json::Value;

use super::identity::{Identity, USUAL_KEYS, identities, is_name};
use crate::domain::generator::ParameterSet;

/// The number of parameter sets in one answer, and their identities by some keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToldApart {
    pub(super) count: usize,
    /// The keys; empty if sets are only counted.
    pub(super) keys: Vec<String>,
    /// The identities in ascending order; empty if sets are only counted.
    pub(super) identities: Vec<u64>,
}

impl ToldApart {
    /// `count` sets that are only counted.
    #[must_use]
    pub(super) const fn counted(count: usize) -> Self {
        Self { count, keys: Vec::new(), identities: Vec::new() }
    }

    /// `sets` by `keys`. `None` without keys, when a set lacks one, or when two sets have one identity.
    #[must_use]
    pub(super) fn by(sets: &[ParameterSet], keys: &[String]) -> Option<Self> {
        let mut identities = if keys.is_empty() { None } else { identities(sets, keys) }?;
        identities.sort_unstable();
        Some(Self { count: sets.len(), keys: keys.to_vec(), identities })
    }

    /// `sets` alone, as `identity` says. They are counted if its keys do not tell them apart.
    #[must_use]
    pub(super) fn of(identity: &Identity, sets: &[ParameterSet]) -> Self {
        let told_apart = match identity {
            Identity::Keys(keys) => Self::by(sets, keys),
            Identity::Auto => Self::by_usual_key(sets),
        };
        told_apart.unwrap_or_else(|| Self::counted(sets.len()))
    }

    /// `sets` by the key that [`usual_key`](super::identity::usual_key) finds for them.
    fn by_usual_key(sets: &[ParameterSet]) -> Option<Self> {
        if sets.len() < 2 {
            return None;
        }
        let by = |key: &&str| {
            let has_names = sets.iter().all(|set| is_name(set, key));
            if has_names { Self::by(sets, &[(*key).to_owned()]) } else { None }
        };
        USUAL_KEYS.iter().find_map(by)
    }

    /// The keys; empty if sets are only counted.
    #[must_use]
    pub(crate) fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Whether two of `sets`, which these are, may be equal as a whole. They cannot if all have another text under a key. Equal numbers
    /// may be written in two ways.
    #[must_use]
    pub(super) fn may_have_twins(&self, sets: &[ParameterSet]) -> bool {
        let differs = |key: &String| sets.iter().all(|set| set.0.get(key).is_some_and(Value::is_string));
        !matches!(&self.keys[..], [key] if differs(key))
    }
}
