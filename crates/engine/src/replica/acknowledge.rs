//! Answers never go back to an earlier one. A change is *acknowledged* when every replica that answers has it. Until then some replica may
//! still serve the earlier answer, so no replica serves the new one.
//!
//! A replica answers for [`CONTACT`](store::CONTACT) after its last sync began, and a sync brings all earlier changes. So a
//! change is also acknowledged [`ANSWERING`] after it was seen: this is longer, as clocks differ a little.
//!
//! An answer is chosen first. Then it must be acknowledged, and this replica in contact. So it makes no difference how long the process was
//! stopped in between: an answer that was the last one when it was chosen may have been overtaken since, but no other replica has served
//! another one while this replica was in contact.

use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout_at};

use crate::{cache::Key, replica::Replica};
use store::ANSWERING;

/// Whether a change is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    /// It was.
    Already,
    /// It is now. Something may have changed meanwhile.
    AfterWaiting,
    /// Not in time.
    TooLate,
}

impl Replica {
    /// Notes, before they are made here, that the records under `keys` change to `version`.
    pub(crate) fn note_unacknowledged(&self, keys: &[Key], version: u64) {
        let mut copy = self.copy();
        if version > copy.acknowledged {
            copy.unacknowledged.extend(keys.iter().map(|key| (*key, (version, Instant::now()))));
            self.has_unacknowledged.store(!copy.unacknowledged.is_empty(), Ordering::SeqCst);
        }
    }

    /// Learns that the changes up to `version` are acknowledged.
    pub(crate) fn acknowledge(&self, version: u64) {
        let mut copy = self.copy();
        copy.acknowledged = copy.acknowledged.max(version);
        let acknowledged = copy.acknowledged;
        copy.unacknowledged.retain(|_, (version, since)| *version > acknowledged && since.elapsed() < ANSWERING);
        self.has_unacknowledged.store(!copy.unacknowledged.is_empty(), Ordering::SeqCst);
    }

    /// Whether some change is not acknowledged.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        self.has_unacknowledged.load(Ordering::SeqCst)
    }

    /// Until when the records under `keys` may not be acknowledged.
    fn unacknowledged_until(&self, keys: &[Key]) -> Option<Instant> {
        if !self.has_unacknowledged() {
            return None;
        }
        let copy = self.copy();
        let ends = keys.iter().filter_map(|key| copy.unacknowledged.get(key)).map(|(_, since)| *since + ANSWERING);
        ends.max().filter(|end| *end > Instant::now())
    }

    /// Waits until the records under `keys` are acknowledged, at most until `until`, even if this replica loses contact: others may still
    /// have it.
    pub(crate) async fn acknowledged(&self, keys: &[Key], until: Instant) -> Acknowledged {
        let mut synced = self.synced.subscribe();
        let mut acknowledged = Acknowledged::Already;
        while let Some(end) = self.unacknowledged_until(keys) {
            if Instant::now() >= until {
                return Acknowledged::TooLate;
            }
            acknowledged = Acknowledged::AfterWaiting;
            let _ = timeout_at(end.min(until), synced.changed()).await;
        }
        acknowledged
    }
}
