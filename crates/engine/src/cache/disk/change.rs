//! Changes of records: into the journal, and to the writer.

use std::io;

use crate::cache::{
    Disk, Key,
    disk::{
        kind::{Change, RecordKind},
        long::{Drafts, cut},
        writer::Order,
    },
};

impl Disk {
    /// Appends a change to the journal and wakes the writer. `draft` is a record to seal, `None` a removal.
    pub(super) fn change(&self, kind: RecordKind, key: Key, draft: Option<Vec<u8>>) {
        // Before the lock is taken, since it takes some time.
        let cut = draft.as_deref().and_then(cut);
        // The lock is held until the writer has the order, so that journal and database see changes in the same order.
        let mut journal = self.journal.lock();
        let drafts = self.chunks.drafts((kind, key), draft, cut);
        if !journal.admit(drafts.length()) {
            self.chunks.forget(&(kind, key));
            return self.lose(kind, &key);
        }
        let Drafts { chunks, record } = drafts;
        for (chunk, draft) in chunks {
            let change = Change::new(RecordKind::Chunk, chunk, Some(draft), self.marks.next());
            // If the process is killed before the database has it, the record cannot be read.
            let _ = journal.append(&change).inspect_err(|error| self.warn_of_journal(error));
            let _ = self.queue.send(Order::Change(change));
        }
        let mut change = Change::new(kind, key, record, self.marks.next());
        if let Err(error) = journal.append(&change) {
            self.warn_of_journal(&error);
            self.lose(kind, &key);
            // If the database stores it, it must be later than its mark.
            change.renew(self.marks.next());
        }
        if self.queue.send(Order::Change(change)).is_err() {
            self.lose(kind, &key);
        }
    }

    fn warn_of_journal(&self, error: &io::Error) {
        if self.throttle.is_due() {
            tracing::error!(%error, "the journal of last good answers cannot be written; until the database has them, they count as lost");
        }
    }

    /// Marks the record under `key` as lost.
    pub(super) fn lose(&self, kind: RecordKind, key: &Key) {
        self.metrics.errors.inc();
        self.metrics.lost.inc();
        if let Err(error) = self.marks.set(kind, key, true)
            && self.throttle.is_due()
        {
            tracing::error!(%error, "a lost answer cannot be marked; after a kill it would count as none");
        }
    }
}
