//! Answers never go back to an earlier one. A change is *settled* when every replica that answers knows it. Until then some replica may
//! still serve the answer before, so nobody serves the new one.
//!
//! A replica answers for [`CONTACT`](store::CONTACT) after its last sync began, and a sync brings all earlier changes. So a
//! change is also settled [`ANSWERING`] after it was seen: this is longer, as clocks differ a little.
//!
//! An answer is chosen first. Then it must be settled, and this replica in contact. So it makes no difference how long the process was
//! stopped in between: an answer that was the last one when it was chosen may have been overtaken since, but nobody else has served
//! another one while this replica was in contact.

use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout_at};

use crate::{cache::Key, replica::Replica};
use store::ANSWERING;

/// Whether a change is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    /// It was.
    Already,
    /// It is now. Something may have changed meanwhile.
    AfterWaiting,
    /// Not in time.
    TooLate,
}

impl Replica {
    /// Notes, before they are made here, that the records under `keys` change to `version`.
    pub(crate) fn unsettle(&self, keys: &[Key], version: u64) {
        let mut copy = self.copy();
        if version > copy.settled {
            copy.unsettled.extend(keys.iter().map(|key| (*key, (version, Instant::now()))));
            self.has_unsettled.store(!copy.unsettled.is_empty(), Ordering::SeqCst);
        }
    }

    /// Learns that the changes up to `version` are settled.
    pub(crate) fn settle(&self, version: u64) {
        let mut copy = self.copy();
        copy.settled = copy.settled.max(version);
        let settled = copy.settled;
        copy.unsettled.retain(|_, (version, since)| *version > settled && since.elapsed() < ANSWERING);
        self.has_unsettled.store(!copy.unsettled.is_empty(), Ordering::SeqCst);
    }

    /// Whether some change is not settled.
    pub(crate) fn has_unsettled(&self) -> bool {
        self.has_unsettled.load(Ordering::SeqCst)
    }

    /// Until when the records under `keys` may not be settled.
    fn unsettled_until(&self, keys: &[Key]) -> Option<Instant> {
        if !self.has_unsettled() {
            return None;
        }
        let copy = self.copy();
        let ends = keys.iter().filter_map(|key| copy.unsettled.get(key)).map(|(_, since)| *since + ANSWERING);
        ends.max().filter(|end| *end > Instant::now())
    }

    /// Waits until the records under `keys` are settled, at most until `until`, also if this replica loses contact: others may still have it.
    pub(crate) async fn settled(&self, keys: &[Key], until: Instant) -> Settled {
        let mut synced = self.synced.subscribe();
        let mut settled = Settled::Already;
        while let Some(end) = self.unsettled_until(keys) {
            if Instant::now() >= until {
                return Settled::TooLate;
            }
            settled = Settled::AfterWaiting;
            let _ = timeout_at(end.min(until), synced.changed()).await;
        }
        settled
    }
}
