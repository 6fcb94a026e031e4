//! The subjects that are compared with the known questions a second time.

use std::collections::HashSet;

use crate::{engine::cache::Key, hooks::Subjects};

/// How many subjects wait to be compared once more.
const MAX_LATE: usize = 20_000;

/// Subjects that are compared once more.
#[derive(Debug, Default)]
pub(super) struct Late {
    young: Subjects,
    old: Subjects,
    /// The questions that were found already.
    found: HashSet<Key>,
    found_before: HashSet<Key>,
}

impl Late {
    pub(super) fn add(&mut self, subjects: &Subjects, found: impl Iterator<Item = Key>) {
        if self.young.len() < MAX_LATE {
            self.young.extend(subjects);
            self.found.extend(found);
        }
    }

    /// All subjects that wait.
    pub(super) fn into_subjects(self) -> Subjects {
        let mut all = self.young;
        all.extend(&self.old);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.young.len() == 0 && self.old.len() == 0
    }

    /// The subjects that have waited for a whole turn, and the questions that need no look. To be called at equal intervals.
    pub(super) fn turn(&mut self) -> (Subjects, HashSet<Key>) {
        let due = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let found = self.found_before.union(&self.found).copied().collect();
        self.found_before = std::mem::take(&mut self.found);
        (due, found)
    }
}
