//! What the store in memory holds.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::{
    clients::store::{CONTACT, CopyState, MAX_RECOVERY, MIN_RECOVERY, Record, RecordKey},
    domain::clock::Timestamp,
};

/// All that FLUSHALL removes.
#[derive(Debug, Clone, Default)]
pub(super) struct Epoch {
    pub(super) id: String,
    pub(super) recovering_since: Option<Timestamp>,
    pub(super) lost_at: Option<Timestamp>,
    pub(super) highest: u64,
    pub(super) records: BTreeMap<RecordKey, Record>,
    /// The versions of records that replicas offered, until a commit changes them.
    pub(super) offered: BTreeMap<RecordKey, u64>,
    pub(super) leases: BTreeMap<RecordKey, (String, Timestamp)>,
    pub(super) replicas: BTreeMap<String, Member>,
    pub(super) settled: u64,
    pub(super) invalidation: u64,
    pub(super) invalidations: VecDeque<(u64, Bytes)>,
    pub(super) revisions: BTreeMap<String, Bytes>,
    /// Notes by their list.
    pub(super) notes: BTreeMap<String, BTreeMap<String, String>>,
    /// Claims, and when they end.
    pub(super) claims: BTreeMap<String, Timestamp>,
}

/// A replica that has synced of late.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) copy: CopyState,
    pub(super) has_offered: bool,
    pub(super) at: Timestamp,
    pub(super) is_serving: bool,
    pub(super) is_current: bool,
    pub(super) version: u64,
}

impl Epoch {
    pub(super) fn version(&self, key: &RecordKey) -> u64 {
        self.records.get(key).map_or(0, |record| record.version)
    }

    /// Notes which version all serving replicas know. Returns whether it is another one.
    pub(super) fn settle(&mut self, now: Timestamp) -> bool {
        let serving = self
            .replicas
            .values()
            .filter(|member| member.is_serving && now.since(member.at).is_none_or(|passed| passed < CONTACT));
        let known = serving.map(|member| member.version).min().filter(|known| *known > self.settled);
        self.settled = known.unwrap_or(self.settled);
        known.is_some()
    }

    /// Ends the recovery once every live replica has offered its copy, and one copy was complete or none ever held anything.
    pub(super) fn recover(&mut self, now: Timestamp) {
        let Some(since) = self.recovering_since else { return };
        let passed = now.since(since).unwrap_or_default();
        let have_all_offered = self.replicas.values().all(|member| member.has_offered);
        let is_complete = self.replicas.values().any(|member| member.copy == CopyState::Complete);
        let is_empty = self.replicas.values().all(|member| member.copy == CopyState::Empty);
        if passed >= MIN_RECOVERY && have_all_offered && (is_complete || is_empty) {
            self.recovering_since = None;
        } else if passed >= MAX_RECOVERY {
            (self.recovering_since, self.lost_at) = (None, Some(now));
        }
    }
}
