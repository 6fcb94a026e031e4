//! The elements of a stored answer.

use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;
use serde::{Deserialize, Serialize};

/// The elements of an answer: how many there are in which state, and which they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elements {
    /// How many are in which state.
    pub counts: ElementCounts,
    /// The hashes of the ids of all elements, in ascending order. An element that is not among them was in no list of the answer.
    ids: Box<[u64]>,
}

/// How many elements of an answer are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElementCounts {
    /// They have parameter sets.
    pub present: usize,
    /// They provably have none.
    pub absent: usize,
    /// They are unknown, and the answer has what they had last.
    pub last_known: usize,
    /// They are unknown and were never known, so the answer has nothing of them.
    pub unknown: usize,
}

impl ElementCounts {
    /// How many elements there are.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.present + self.absent + self.last_known + self.unknown
    }

    /// The counts by the names of the states.
    #[must_use]
    pub const fn by_name(&self) -> [(&'static str, usize); 4] {
        let Self { present, absent, last_known, unknown } = *self;
        [("present", present), ("absent", absent), ("last_known", last_known), ("unknown", unknown)]
    }
}

impl Elements {
    /// The elements with these ids.
    pub(crate) fn of<'a>(ids: impl Iterator<Item = &'a str>, counts: ElementCounts) -> Self {
        let mut ids: Vec<u64> = ids.map(hash).collect();
        ids.sort_unstable();
        Self { counts, ids: ids.into() }
    }

    /// Whether the list of the answer had the element with this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.ids.binary_search(&hash(id)).is_ok()
    }

    /// About how much memory they take, in bytes.
    pub(crate) const fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val::<[u64]>(&self.ids)
    }
}

/// The same in all replicas and versions.
fn hash(id: &str) -> u64 {
    FixedState::default().hash_one(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_keeps_which_elements_it_had() {
        let counts = ElementCounts { present: 1, absent: 0, last_known: 1, unknown: 1 };
        let elements = Elements::of(["[3]", "[1]", "[2]"].into_iter(), counts);
        let text = serde_json::to_string(&elements).unwrap();
        let read: Elements = serde_json::from_str(&text).unwrap();
        assert_eq!(read, elements);
        assert_eq!(["[1]", "[2]", "[3]", "[4]"].map(|id| read.has(id)), [true, true, true, false]);
        assert_eq!(read.counts.all(), 3);
        assert_eq!(read.counts.by_name().map(|(_, count)| count), [1, 0, 1, 1]);
    }
}
