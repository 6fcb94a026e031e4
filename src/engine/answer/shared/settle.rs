//! Answers never go back to an earlier one. A change is *settled* when every replica that serves answers as fresh knows it. Until then
//! some replica may still serve the answer before, so nobody serves the new one.
//!
//! A replica serves answers as fresh for [`CONTACT`] after its last sync began, and a sync brings all earlier changes. So a change is also
//! settled after that time.

use std::sync::atomic::Ordering;

use tokio::time::{Instant, timeout_at};

use super::Shared;
use crate::{
    clients::store::CONTACT,
    engine::{
        answer::{Answer, Engine},
        cache::Key,
        route::ResolvedQuery,
    },
};

impl Shared {
    /// Notes, before they are made here, that the records under `keys` change to `version`.
    pub(super) fn unsettle(&self, keys: &[Key], version: u64) {
        let mut copy = self.copy();
        if version > copy.settled {
            copy.unsettled.extend(keys.iter().map(|key| (*key, (version, Instant::now()))));
            self.has_unsettled.store(!copy.unsettled.is_empty(), Ordering::SeqCst);
        }
    }

    /// Learns that the changes up to `version` are settled.
    pub(super) fn settle(&self, version: u64) {
        let mut copy = self.copy();
        copy.settled = copy.settled.max(version);
        let settled = copy.settled;
        copy.unsettled.retain(|_, (version, since)| *version > settled && since.elapsed() < CONTACT);
        self.has_unsettled.store(!copy.unsettled.is_empty(), Ordering::SeqCst);
    }

    /// Until when the records under `keys` may not be settled.
    fn unsettled_until(&self, keys: &[Key]) -> Option<Instant> {
        if !self.has_unsettled.load(Ordering::SeqCst) {
            return None;
        }
        let copy = self.copy();
        let ends = keys.iter().filter_map(|key| copy.unsettled.get(key)).map(|(_, since)| *since + CONTACT);
        ends.max().filter(|end| *end > Instant::now())
    }

    /// Waits until the records under `keys` are settled, also if this replica loses contact: others may still have it. Returns whether it had to wait.
    pub(super) async fn settled(&self, keys: &[Key]) -> bool {
        let mut synced = self.synced.subscribe();
        let mut has_waited = false;
        while let Some(until) = self.unsettled_until(keys) {
            has_waited = true;
            let _ = timeout_at(until, synced.changed()).await;
        }
        has_waited
    }
}

impl Engine {
    /// Waits until nobody serves what was known before `answer`. Returns whether a later answer came meanwhile.
    pub(in crate::engine::answer) async fn is_overtaken<E>(
        &self,
        asked: &ResolvedQuery,
        answer: &Result<Answer, E>,
    ) -> bool {
        let Some(shared) = &self.known.shared else { return false };
        if !shared.settled(&[asked.key, asked.lineage()]).await {
            return false;
        }
        let latest = self.known.answers.memory().get_rare(&asked.key);
        let known = answer.as_ref().ok().map(|answer| answer.entry.run_number);
        latest.is_some_and(|latest| known.is_none_or(|known| latest.run_number > known))
    }
}
