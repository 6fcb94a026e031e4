//! The elements of a stored answer.

use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;
use serde::{Deserialize, Serialize};

/// The elements of an answer: how many there are in which state, and which they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elements {
    /// How many are in which state.
    pub counts: ElementCounts,
    /// The hashes of the ids of the elements with parameter sets, in ascending order.
    with_sets: Box<[u64]>,
    /// Those of the others. An element that is among neither was not in the list of the answer.
    without_sets: Box<[u64]>,
}

/// The state of an element, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ElementState {
    /// It is unknown, and the answer has nothing of it.
    Unknown,
    /// It is unknown, and the answer has what it had last.
    LastKnown,
    /// It provably has no parameter sets.
    Absent,
    /// It has parameter sets.
    Present,
}

impl ElementState {
    /// Its name for people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::LastKnown => "last known",
            Self::Absent => "absent",
            Self::Present => "present",
        }
    }
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
    /// Counts one more in `state`.
    pub const fn add(&mut self, state: ElementState) {
        *match state {
            ElementState::Present => &mut self.present,
            ElementState::Absent => &mut self.absent,
            ElementState::LastKnown => &mut self.last_known,
            ElementState::Unknown => &mut self.unknown,
        } += 1;
    }

    /// How many elements there are.
    #[must_use]
    pub const fn all(&self) -> usize {
        self.present + self.absent + self.last_known + self.unknown
    }

    /// These and `other` together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            present: self.present + other.present,
            absent: self.absent + other.absent,
            last_known: self.last_known + other.last_known,
            unknown: self.unknown + other.unknown,
        }
    }

    /// The counts by the names of the states.
    #[must_use]
    pub const fn by_name(&self) -> [(&'static str, usize); 4] {
        let Self { present, absent, last_known, unknown } = *self;
        [("present", present), ("absent", absent), ("last_known", last_known), ("unknown", unknown)]
    }
}

impl Elements {
    /// The elements with these ids, and whether the answer has parameter sets of each.
    pub(crate) fn of<'a>(elements: impl Iterator<Item = (&'a str, bool)>, counts: ElementCounts) -> Self {
        let (mut with_sets, mut without_sets) = (Vec::new(), Vec::new());
        for (id, has_sets) in elements {
            if has_sets { &mut with_sets } else { &mut without_sets }.push(hash(id));
        }
        with_sets.sort_unstable();
        without_sets.sort_unstable();
        Self { counts, with_sets: with_sets.into(), without_sets: without_sets.into() }
    }

    /// Whether the list of the answer had the element with this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.has_sets_of(id) || self.without_sets.binary_search(&hash(id)).is_ok()
    }

    /// Whether the answer has parameter sets of the element with this id.
    pub(crate) fn has_sets_of(&self, id: &str) -> bool {
        self.with_sets.binary_search(&hash(id)).is_ok()
    }

    /// About how much memory they take, in bytes.
    pub(crate) const fn weight(&self) -> usize {
        size_of::<Self>() + size_of_val::<[u64]>(&self.with_sets) + size_of_val::<[u64]>(&self.without_sets)
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
        let elements = Elements::of([("[3]", true), ("[1]", false), ("[2]", true)].into_iter(), counts);
        let text = serde_json::to_string(&elements).unwrap();
        let read: Elements = serde_json::from_str(&text).unwrap();
        assert_eq!(read, elements);
        assert_eq!(["[1]", "[2]", "[3]", "[4]"].map(|id| read.has(id)), [true, true, true, false]);
        assert_eq!(["[1]", "[2]", "[3]", "[4]"].map(|id| read.has_sets_of(id)), [false, true, true, false]);
        assert_eq!(read.counts.all(), 3);
        assert_eq!(read.counts.by_name().map(|(_, count)| count), [1, 0, 1, 1]);
    }
}
