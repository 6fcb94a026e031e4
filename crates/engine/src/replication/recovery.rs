//! Offers this replica's copy to a store that has lost writes, or that never had any. No replica serves an answer that was offered: another
//! replica may have served a later one. It is only the baseline of the guard and of backends.

use std::collections::BTreeMap;

use crate::{
    answer::Engine,
    cache::{Entry, Key, Life},
    replica::{
        Replica,
        record::{answer, baseline, other},
    },
};
use store::{CopyState, Field, Offer, Record, RecordKey, StoreError};

/// How many records one request offers.
const BATCH: usize = 64;
/// The epoch of an answer that no replica serves.
const OF_NO_EPOCH: &str = "";

impl Engine {
    /// Offers every record of this replica's copy in `epoch`.
    pub(crate) async fn offer(&self, shared: &Replica, epoch: &str) -> Result<(), StoreError> {
        let records = self.copied(shared);
        if !records.is_empty() {
            tracing::info!(records = records.len(), "records are offered to the shared store");
        }
        let is_alone = shared.copy().state == CopyState::Alone;
        for batch in records.chunks(BATCH) {
            shared.store.offer(epoch, &Offer { is_alone, records: batch.to_vec() }).await?;
        }
        let mut copy = shared.copy();
        copy.has_offered = true;
        // What the store has is read from the beginning.
        let versions = std::mem::take(&mut copy.versions);
        copy.before.extend(versions.into_iter().map(|(key, known)| (key, known.version)));
        copy.unreadable.clear();
        Ok(())
    }

    /// Every record that can be read here.
    fn copied(&self, shared: &Replica) -> Vec<(RecordKey, Record)> {
        let known = &self.known;
        let (versions, filed) = {
            let copy = shared.copy();
            let mut versions = copy.before.clone();
            versions.extend(copy.versions.iter().map(|(key, known)| (*key, known.version)));
            (versions, copy.filed_version)
        };
        // The file does not have the version of each record. It had all changes up to `filed`, so its record is later than each one up to
        // it.
        let version = |key: &Key| versions.get(key).copied().unwrap_or(filed);
        let mut records: BTreeMap<RecordKey, Record> = BTreeMap::new();
        let mut set = |key: &Key, field, content| {
            let record = records.entry(*key.as_bytes()).or_insert_with(|| Record::new(version(key)));
            record.set(field, content);
        };
        let mut is_complete = !known.answers.misses_disk();
        let listed = known.answers.list().into_keys();
        let keys: std::collections::HashSet<Key> = listed.chain(versions.keys().copied()).collect();
        for key in keys {
            match known.answers.try_get(&key) {
                Ok(Some(entry)) => {
                    let old = Entry { life: Life::Restored, ..(*entry).clone() };
                    set(&key, Field::Answer, answer(&old, OF_NO_EPOCH, 0));
                }
                Ok(None) => {}
                Err(_) => is_complete = false,
            }
        }
        for (key, of) in known.baselines.list(&known.answers) {
            set(&key, Field::Baseline, baseline(&of));
        }
        for (key, held) in known.held.list(self.clock.now()) {
            set(&key, Field::Held, other(&held));
        }
        if !is_complete {
            self.completed(shared, None);
        }
        records.into_iter().collect()
    }
}
