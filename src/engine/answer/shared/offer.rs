//! Offers this replica's copy to a store that has lost writes, or that never had any.

use std::collections::BTreeMap;

use super::{
    Shared,
    record::{answer, baseline, other},
};
use crate::{
    clients::store::{Field, Record, RecordKey, StoreError},
    engine::{
        answer::Engine,
        cache::{Entry, Key, Life},
    },
};

/// How many records one request offers.
const BATCH: usize = 64;

impl Engine {
    /// Offers every record of this replica's copy in `epoch`.
    pub(super) async fn offer(&self, shared: &Shared, epoch: &str) -> Result<(), StoreError> {
        let records = self.copied(shared);
        if !records.is_empty() {
            tracing::info!(records = records.len(), "records are offered to the shared store");
        }
        for batch in records.chunks(BATCH) {
            shared.store.offer(epoch, batch).await?;
        }
        let mut copy = shared.copy();
        copy.has_offered = true;
        // What the store has is read from the beginning.
        let versions = std::mem::take(&mut copy.versions);
        copy.before.extend(versions.into_iter().map(|(key, known)| (key, known.version)));
        copy.unreadable.clear();
        Ok(())
    }

    /// Every record that can be read here. Answers in it are not fresh.
    fn copied(&self, shared: &Shared) -> Vec<(RecordKey, Record)> {
        let known = &self.known;
        let versions = {
            let copy = shared.copy();
            let mut versions = copy.before.clone();
            versions.extend(copy.versions.iter().map(|(key, known)| (*key, known.version)));
            versions
        };
        let version = |key: &Key| versions.get(key).copied().unwrap_or_default();
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
                    let stale = Entry { life: Life::Restored, ..(*entry).clone() };
                    set(&key, Field::Answer, answer(&stale, "", 0));
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
            self.completed(shared, false);
        }
        records.into_iter().collect()
    }
}
