//! Entries that hold the same token. Where both may ask the same that is a step of a rotation, as when `next` becomes `current`; else
//! one of them would silently count for less than it says.

use std::fmt;

use super::entry::Token;
use crate::auth::TokenHash;

/// An entry that holds the token of an earlier one, and is not like it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Twin {
    /// Its place among all entries.
    pub(crate) index: usize,
    /// Whether the two have different roles: a token has one.
    pub(crate) is_serious: bool,
    earlier: String,
    later: String,
}

/// The entries whose token is that of an earlier one, with which they differ in what it opens.
pub(crate) fn twins(entries: &[Token], hashes: &[TokenHash]) -> Vec<Twin> {
    let all = || entries.iter().zip(hashes).enumerate();
    let pairs = all().flat_map(|later| all().take(later.0).map(move |earlier| (earlier, later)));
    let equal = pairs.filter(|((_, (_, one)), (_, (_, two)))| one == two);
    let unlike = equal.filter(|((_, (earlier, _)), (_, (later, _)))| !earlier.is_like(later));
    unlike
        .map(|((_, (earlier, _)), (index, (later, _)))| Twin {
            index,
            is_serious: earlier.caller.role != later.caller.role,
            earlier: earlier.caller.name.clone(),
            later: later.caller.name.clone(),
        })
        .collect()
}

impl fmt::Display for Twin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differ = if self.is_serious {
            "have different roles, and a token has one"
        } else {
            "do not let it ask the same, and only the first that is valid counts"
        };
        write!(f, "`{}` and `{}` hold the same token, but {differ}", self.earlier, self.later)
    }
}
