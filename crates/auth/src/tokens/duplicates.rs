//! Finds entries with the same token. If both grant the same, that is a step of a rotation, as when `next` becomes `current`. If they differ,
//! one of them would silently have no effect.

use std::fmt;

use super::entry::StaticToken;
use crate::TokenHash;

/// An entry that has the token of an earlier entry, but different grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Duplicate {
    /// Its index among all entries.
    pub index: usize,
    /// Whether the two have different roles. A token can have only one.
    pub(crate) is_serious: bool,
    earlier: String,
    later: String,
}

/// The entries that have the token of an earlier entry, but different grants.
pub(super) fn duplicates(entries: &[StaticToken], hashes: &[TokenHash]) -> Vec<Duplicate> {
    let all = || entries.iter().zip(hashes).enumerate();
    let pairs = all().flat_map(|later| all().take(later.0).map(move |earlier| (earlier, later)));
    let equal = pairs.filter(|((_, (_, one)), (_, (_, two)))| one == two);
    let unlike = equal.filter(|((_, (earlier, _)), (_, (later, _)))| !earlier.is_like(later));
    unlike
        .map(|((_, (earlier, _)), (index, (later, _)))| Duplicate {
            index,
            is_serious: earlier.caller.role != later.caller.role,
            earlier: earlier.caller.name.clone(),
            later: later.caller.name.clone(),
        })
        .collect()
}

impl fmt::Display for Duplicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differ = if self.is_serious {
            "have different roles, and a token has one"
        } else {
            "do not let it ask the same, and only the first that is valid counts"
        };
        write!(f, "`{}` and `{}` hold the same token, but {differ}", self.earlier, self.later)
    }
}
