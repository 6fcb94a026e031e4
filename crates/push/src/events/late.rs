//! The subjects that are compared with the known questions a second time.

use std::{collections::HashSet, sync::Arc};

use super::queue::Batch;
use engine::cache::Key;
use hooks::Subjects;

/// How many subjects wait to be compared once more, and their size in bytes.
const MAX_LATE: usize = 20_000;
const MAX_LATE_BYTES: usize = 4 * 1024 * 1024;

/// Subjects that are compared once more.
#[derive(Debug, Default)]
pub(super) struct Late {
    young: Gathered,
    old: Gathered,
}

/// The subjects that are compared together.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) subjects: Subjects,
    /// Their size, in bytes.
    size: usize,
    /// The deliveries that they came with.
    pub(super) batches: Vec<Arc<Batch>>,
    /// The questions that were found already.
    pub(super) found: HashSet<Key>,
}

impl Late {
    /// Remembers `subjects` of `batch`, which concern the questions `found`.
    pub(super) fn add(&mut self, subjects: &Subjects, batch: &Arc<Batch>, found: impl Iterator<Item = Key>) {
        let young = &mut self.young;
        let size = subjects.size();
        if young.subjects.len() < MAX_LATE && young.size + size <= MAX_LATE_BYTES {
            young.subjects.extend(subjects);
            young.size += size;
            young.found.extend(found);
            young.batches.push(Arc::clone(batch));
        }
    }

    /// All subjects that wait.
    pub(super) fn into_subjects(self) -> Subjects {
        let mut all = self.young.subjects;
        all.extend(&self.old.subjects);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.young.subjects.len() == 0 && self.old.subjects.len() == 0
    }

    /// The subjects that have waited for a whole interval, and the questions that need no recheck. To be called at equal intervals.
    pub(super) fn take_due(&mut self) -> Gathered {
        let mut due = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        due.found.extend(&self.old.found);
        due
    }
}
