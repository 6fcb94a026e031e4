//! The content of the store in memory.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use crate::{CopyState, Field, MAX_RECOVERY, MIN_RECOVERY, OFFERING, Record, RecordKey, SyncRequest};
use domain::clock::Timestamp;

/// All that FLUSHALL removes.
#[derive(Debug, Clone, Default)]
pub(super) struct Epoch {
    pub(super) id: String,
    pub(super) recovering_since: Option<Timestamp>,
    pub(super) lost_at: Option<Timestamp>,
    pub(super) highest: u64,
    /// Numbers up to this one are from before the epoch.
    pub(super) since: u64,
    pub(super) records: BTreeMap<RecordKey, Record>,
    /// The versions of records that replicas offered, until a commit changes them.
    pub(super) offered: BTreeMap<RecordKey, Offered>,
    pub(super) leases: BTreeMap<RecordKey, (String, Timestamp)>,
    pub(super) replicas: BTreeMap<String, Member>,
    pub(super) acknowledged: u64,
    pub(super) invalidation: u64,
    pub(super) invalidations: VecDeque<(u64, Bytes)>,
    pub(super) revisions: BTreeMap<String, Bytes>,
    /// Notes by their list.
    pub(super) notes: BTreeMap<String, BTreeMap<String, String>>,
    /// Claims, and when they end.
    pub(super) claims: BTreeMap<String, Timestamp>,
}

/// The version that a replica offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offered {
    Version(u64),
    /// It comes from a gateway without a store.
    Alone,
}

/// A replica that has synced of late.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) copy: CopyState,
    /// How many replicas were live when its copy last held all of the store.
    pub(super) live_then: usize,
    pub(super) has_offered: bool,
    /// Since when it syncs without having offered its copy, or when it synced last.
    pub(super) since: Timestamp,
    pub(super) at: Timestamp,
    /// Until when it answers.
    pub(super) answers_until: Option<Timestamp>,
    pub(super) is_current: bool,
    pub(super) version: u64,
}

impl Member {
    /// Whether it should have offered its copy by now, during a recovery.
    fn is_mute(&self, now: Timestamp) -> bool {
        !self.has_offered && now.since(self.since).is_some_and(|passed| passed >= OFFERING)
    }
}

impl Epoch {
    pub(super) fn version(&self, key: &RecordKey) -> u64 {
        self.records.get(key).map_or(0, |record| record.version)
    }

    /// Whether it holds all that was written, as far as the replica of `request` shows.
    pub(super) fn is_whole(&self, request: &SyncRequest) -> bool {
        let is_known = request.epoch.as_ref() == Some(&self.id);
        let has_gone_back = self.highest < request.highest || self.invalidation < request.invalidation;
        let is_after_time_alone =
            request.epoch.is_none() && request.copy == CopyState::Alone && !self.records.is_empty();
        !self.id.is_empty() && !is_after_time_alone && !(is_known && (has_gone_back || request.suspects))
    }

    /// Takes `record`, which a replica offers for `key`.
    pub(super) fn take(&mut self, key: &RecordKey, record: &Record, is_alone: bool) {
        let offered = self.offered.get(key).copied();
        let Some(current) = self.records.get(key) else { return self.restore(key, record, is_alone) };
        let is_before = offered.is_some() || current.version <= self.since;
        let known = match offered {
            Some(Offered::Version(version)) => Some(version),
            Some(Offered::Alone) => None,
            None => Some(current.version),
        };
        let is_unknown = is_alone || known.is_none() || (record.version == 0 && known == Some(0));
        if !is_before {
            return;
        }
        if is_unknown && current.get(Field::Baseline) != record.get(Field::Baseline) {
            self.restore(key, &unreadable(), false);
            if is_alone || known.is_none() {
                self.offered.remove(key);
            }
        } else if known.is_some_and(|known| known < record.version) {
            self.restore(key, record, is_alone);
        }
    }

    fn restore(&mut self, key: &RecordKey, record: &Record, is_alone: bool) {
        self.highest = self.highest.max(record.version) + 1;
        let offered = if is_alone { Offered::Alone } else { Offered::Version(record.version) };
        self.offered.insert(*key, offered);
        self.records.insert(*key, Record { version: self.highest, ..record.clone() });
    }

    /// Notes which version all answering replicas know. Returns whether it is another one.
    pub(super) fn acknowledge(&mut self, now: Timestamp) -> bool {
        let serving = self.replicas.values().filter(|member| member.answers_until.is_some_and(|until| now < until));
        let known = serving.map(|member| member.version).min().filter(|known| *known > self.acknowledged);
        self.acknowledged = known.unwrap_or(self.acknowledged);
        known.is_some()
    }

    /// Ends the recovery once every live replica has offered its copy, and the latest copy is among them or none ever held anything. A replica
    /// that syncs for a minute and offers nothing gets no replies: it counts as gone. After the longest time, a present record may be
    /// outdated, and counts as lost like an absent one.
    pub(super) fn recover(&mut self, now: Timestamp) {
        let Some(since) = self.recovering_since else { return };
        // The store's clock was put back: the recovery begins anew, and does not wait until the clock is where it was.
        let passed = now.since(since).unwrap_or_else(|| {
            self.recovering_since = Some(now);
            Duration::ZERO
        });
        let have_all_offered = self.replicas.values().all(|member| member.has_offered || member.is_mute(now));
        let is_empty = self.replicas.values().all(|member| member.copy == CopyState::Empty);
        if passed >= MIN_RECOVERY && have_all_offered && (self.has_latest_copy(passed, now) || is_empty) {
            self.recovering_since = None;
        } else if passed >= MAX_RECOVERY {
            (self.recovering_since, self.lost_at) = (None, Some(now));
            self.offered.clear();
            for record in self.records.values_mut() {
                self.highest += 1;
                *record = Record { version: self.highest, ..unreadable() };
            }
        }
    }

    /// Whether the latest copy is among those of the live replicas. A complete copy is outdated if the replicas that were live beside it
    /// went on: so as many must be there as one of them names. Those that ran when the store failed are waited for for a minute only.
    fn has_latest_copy(&self, passed: Duration, now: Timestamp) -> bool {
        let of = |states: &[CopyState]| -> Vec<&Member> {
            let of = self.replicas.values().filter(|member| states.contains(&member.copy) && !member.is_mute(now));
            of.collect()
        };
        let complete = of(&[CopyState::Complete, CopyState::Filed]);
        let named = complete.iter().map(|member| member.live_then).max();
        !of(&[CopyState::Alone]).is_empty()
            || named.is_some_and(|named| named <= complete.len())
            || (passed >= OFFERING && !of(&[CopyState::Complete]).is_empty())
    }
}

/// An unreadable record: its content is unknown.
fn unreadable() -> Record {
    let mut record = Record::default();
    for field in [Field::Answer, Field::Baseline, Field::Held] {
        record.set(field, Some(Bytes::new()));
    }
    record
}
