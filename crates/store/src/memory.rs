//! A store in memory, for tests: it follows the same rules as the scripts of the real one, and fails on demand.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

mod epoch;
mod link;

use self::epoch::{Epoch, Member};
pub use self::link::{Link, LinkState};
use super::{
    ANSWERING, Commit, Committed, CopyState, Field, LEASE, LIVE, Lease, MAX_INVALIDATIONS, OFFERING, Offer, Page,
    Record, RecordKey, Store, StoreError, SyncReply, SyncRequest,
};
use domain::clock::{Clock, Timestamp};

/// A store in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    data: Arc<Mutex<Data>>,
    changed: Arc<watch::Sender<u64>>,
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MemoryStore")
    }
}

#[derive(Debug, Default)]
struct Data {
    is_away: bool,
    failing_offers: usize,
    epochs: u64,
    /// The name of the key with which records are made.
    key: Option<String>,
    epoch: Option<Epoch>,
    /// The standby's copy.
    replicated: Option<Epoch>,
}

impl MemoryStore {
    /// An empty store with the time of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, data: Arc::default(), changed: Arc::new(watch::Sender::new(0)) }
    }

    /// Makes all calls fail, or succeed again.
    pub fn set_away(&self, is_away: bool) {
        self.data.lock().is_away = is_away;
        self.notify();
    }

    /// Loses everything, as FLUSHALL does.
    pub fn flush_all(&self) {
        let mut data = self.data.lock();
        (data.epoch, data.key) = (None, None);
        drop(data);
        self.notify();
    }

    /// Copies everything to the standby that takes over at the next [`Self::fail_over`].
    pub fn replicate(&self) {
        let data = &mut *self.data.lock();
        data.replicated.clone_from(&data.epoch);
    }

    /// Lets the standby take over: later writes are lost, and the primary is another process.
    pub fn fail_over(&self) {
        let mut data = self.data.lock();
        data.epoch = data.replicated.clone().map(|epoch| Epoch { id: String::new(), ..epoch });
        drop(data);
        self.notify();
    }

    /// Goes back to the standby's copy, without an error.
    pub fn roll_back(&self) {
        let data = &mut *self.data.lock();
        data.epoch.clone_from(&data.replicated);
    }

    /// Makes so many offers fail.
    pub fn fail_offers(&self, count: usize) {
        self.data.lock().failing_offers = count;
    }

    /// The epoch that it holds.
    pub fn epoch(&self) -> String {
        self.data.lock().epoch.as_ref().map(|epoch| epoch.id.clone()).unwrap_or_default()
    }

    /// Leaves out `time`, in which nothing happened but syncs that brought nothing: replicas count as live as if they had synced.
    pub fn leave_out(&self, time: Duration) {
        if let Some(epoch) = &mut self.data.lock().epoch {
            for member in epoch.replicas.values_mut() {
                member.at = member.at.plus(time);
            }
        }
    }

    /// How many records it has.
    pub fn records(&self) -> usize {
        self.data.lock().epoch.as_ref().map_or(0, |epoch| epoch.records.len())
    }

    /// Ends all leases, as when their replicas hang.
    pub fn end_leases(&self) {
        if let Some(epoch) = &mut self.data.lock().epoch {
            epoch.leases.clear();
        }
    }

    /// Overwrites `field` of every record, as another program might.
    pub fn spoil(&self, field: Field, content: &'static [u8]) {
        if let Some(epoch) = &mut self.data.lock().epoch {
            for record in epoch.records.values_mut() {
                epoch.highest += 1;
                record.version = epoch.highest;
                record.set(field, Some(Bytes::from_static(content)));
            }
        }
    }

    fn notify(&self) {
        self.changed.send_modify(|number| *number += 1);
    }

    /// Runs `work` on the epoch `id` at the store's time.
    fn with<T>(&self, id: &str, work: impl FnOnce(&mut Epoch, Timestamp) -> T) -> Result<T, StoreError> {
        let mut data = self.data.lock();
        if data.is_away {
            return Err(StoreError::Unavailable("connection refused".to_owned()));
        }
        match &mut data.epoch {
            Some(epoch) if epoch.id == id => Ok(work(epoch, self.clock.now())),
            _ => Err(StoreError::OtherEpoch),
        }
    }

    /// As [`Self::with`], unless the store recovers.
    fn change<T>(&self, id: &str, work: impl FnOnce(&mut Epoch, Timestamp) -> T) -> Result<T, StoreError> {
        self.with(id, |epoch, now| {
            if epoch.recovering_since.is_some() { Err(StoreError::OtherEpoch) } else { Ok(work(epoch, now)) }
        })?
    }

    /// As [`Self::change`], and wakes the replicas.
    fn publish<T>(&self, id: &str, work: impl FnOnce(&mut Epoch) -> T) -> Result<T, StoreError> {
        let published = self.change(id, |epoch, _| work(epoch));
        self.notify();
        published
    }
}

impl MemoryStore {
    fn sync_now(&self, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        let now = self.clock.now();
        let mut data = self.data.lock();
        if data.is_away {
            return Err(StoreError::Unavailable("connection refused".to_owned()));
        }
        if data.epoch.as_ref().is_none_or(|epoch| !epoch.is_whole(request)) {
            data.epochs += 1;
            let id = format!("epoch-{}", data.epochs);
            let epoch = data.epoch.take().unwrap_or_default();
            let highest = epoch.highest.max(request.highest);
            let replicas = BTreeMap::new();
            data.epoch = Some(Epoch { id, recovering_since: Some(now), since: highest, highest, replicas, ..epoch });
        }
        let Some(epoch) = &mut data.epoch else { return Err(StoreError::OtherEpoch) };
        let is_known = request.epoch.as_ref() == Some(&epoch.id);
        epoch.highest = epoch.highest.max(request.highest);
        let is_recovering = epoch.recovering_since.is_some();
        epoch.replicas.retain(|_, member| {
            let may_offer = is_recovering && member.copy != CopyState::Empty && !member.has_offered;
            now.since(member.at).is_none_or(|passed| passed < if may_offer { OFFERING } else { LIVE })
        });
        let earlier = epoch.replicas.get(&request.replica);
        let before = earlier.and_then(|member| member.answers_until);
        let has_offered = is_known && request.has_offered;
        let since = earlier.filter(|member| !member.has_offered && !has_offered).map_or(now, |member| member.since);
        let answers = |is_answering: bool| before.max(is_answering.then(|| now.plus(ANSWERING)));
        let member = Member {
            copy: request.copy,
            live_then: request.live_then,
            has_offered,
            since,
            at: now,
            answers_until: answers(is_known && request.is_serving),
            is_current: request.is_current,
            version: request.version,
        };
        epoch.replicas.insert(request.replica.clone(), member);
        epoch.recover(now);
        let is_read = is_known && epoch.recovering_since.is_none();
        if let Some(member) = epoch.replicas.get_mut(&request.replica) {
            member.answers_until = answers(is_read).max(member.answers_until);
        }
        let has_acknowledged = epoch.acknowledge(now);
        let mut changed: Vec<(RecordKey, Record)> = Vec::new();
        if is_read {
            let later = epoch.records.iter().filter(|(_, record)| record.version > request.version);
            changed.extend(later.map(|(key, record)| (*key, record.clone())));
            changed.sort_by_key(|(key, record)| (record.version, *key));
        }
        let later = |(number, _): &&(u64, Bytes)| *number > request.invalidation;
        let reply = SyncReply {
            now,
            epoch: epoch.id.clone(),
            is_recovering: epoch.recovering_since.is_some(),
            lost_at: epoch.lost_at,
            highest: epoch.highest,
            changed,
            is_all: is_read,
            invalidation: epoch.invalidation,
            invalidations: if is_read {
                epoch.invalidations.iter().filter(later).cloned().collect()
            } else {
                Vec::new()
            },
            revisions: epoch.revisions.clone().into_iter().collect(),
            replicas: epoch.replicas.len(),
            acknowledged: epoch.acknowledged,
            current: epoch.replicas.values().filter(|member| member.is_current).count(),
        };
        drop(data);
        if has_acknowledged {
            self.notify();
        }
        Ok(reply)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn sync(&self, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        self.sync_now(request)
    }

    async fn wait(&self) -> Result<(), StoreError> {
        // Without a time limit, so that virtual time can pass quickly.
        let _ = self.changed.subscribe().changed().await;
        Ok(())
    }

    async fn begin(&self, epoch: &str, replica: &str, question: RecordKey, version: u64) -> Result<Lease, StoreError> {
        self.change(epoch, |epoch, now| {
            if epoch.version(&question) > version {
                return Lease::Behind;
            }
            let left = |until: Timestamp| until.since(now).filter(|left| !left.is_zero());
            let theirs = epoch.leases.get(&question).filter(|(owner, _)| owner != replica);
            if let Some(left) = theirs.and_then(|(_, until)| left(*until)) {
                return Lease::Theirs(left);
            }
            epoch.highest += 1;
            epoch.leases.insert(question, (replica.to_owned(), now.plus(LEASE)));
            Lease::Ours(epoch.highest)
        })
    }

    async fn renew(&self, epoch: &str, replica: &str, question: RecordKey) -> Result<bool, StoreError> {
        self.with(epoch, |epoch, now| match epoch.leases.get_mut(&question) {
            Some((owner, until)) if owner == replica && *until > now => {
                *until = now.plus(LEASE);
                true
            }
            _ => false,
        })
    }

    async fn commit(&self, epoch: &str, commit: &Commit) -> Result<Committed, StoreError> {
        self.publish(epoch, |epoch| {
            let is_same = |(key, version): &(RecordKey, u64)| [0, *version].contains(&epoch.version(key));
            if commit.invalidation != epoch.invalidation || !commit.expected.iter().all(is_same) {
                return Committed::Conflict;
            }
            epoch.highest += 1;
            for write in &commit.writes {
                epoch.offered.remove(&write.key);
                let record = epoch.records.entry(write.key).or_default();
                record.version = epoch.highest;
                record.set(write.field, write.content.clone());
            }
            if let Some((replica, question)) = &commit.lease
                && epoch.leases.get(question).is_some_and(|(owner, _)| owner == replica)
            {
                epoch.leases.remove(question);
            }
            Committed::Stored(epoch.highest)
        })
    }

    async fn invalidate(&self, epoch: &str, selector: Bytes) -> Result<(), StoreError> {
        self.publish(epoch, |epoch| {
            epoch.invalidation += 1;
            epoch.invalidations.push_back((epoch.invalidation, selector));
            if epoch.invalidations.len() > MAX_INVALIDATIONS {
                epoch.invalidations.pop_front();
            }
        })
    }

    async fn register(&self, epoch: &str, revisions: &[(String, Bytes)]) -> Result<(), StoreError> {
        self.publish(epoch, |epoch| epoch.revisions.extend(revisions.iter().cloned()))
    }

    async fn offer(&self, epoch: &str, offer: &Offer) -> Result<(), StoreError> {
        let left = self.data.lock().failing_offers.checked_sub(1);
        if let Some(left) = left {
            self.data.lock().failing_offers = left;
            return Err(StoreError::Unavailable("no reply in time".to_owned()));
        }
        let result = self.with(epoch, |epoch, _| {
            offer.records.iter().for_each(|(key, record)| epoch.take(key, record, offer.is_alone));
        });
        self.notify();
        result
    }

    async fn note(&self, list: &str, notes: &[(String, String)], _: Duration) -> Result<(), StoreError> {
        let epoch = self.epoch();
        self.with(&epoch, |epoch, _| {
            epoch.notes.entry(list.to_owned()).or_default().extend(notes.iter().cloned());
        })
    }

    async fn notes(&self, list: &str) -> Result<Vec<(String, String)>, StoreError> {
        let epoch = self.epoch();
        let result = self.with(&epoch, |epoch, _| epoch.notes.get(list).cloned().unwrap_or_default());
        result.map(|notes| notes.into_iter().collect())
    }

    async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError> {
        let epoch = self.epoch();
        self.with(&epoch, |epoch, now| {
            let is_free = epoch.claims.get(name).is_none_or(|until| *until <= now);
            if is_free {
                epoch.claims.insert(name.to_owned(), now.plus(lasts));
            }
            is_free
        })
    }

    async fn name_key(&self, ids: &[String]) -> Result<Option<String>, StoreError> {
        let mut data = self.data.lock();
        match data.key.clone().filter(|key| !ids.contains(key)) {
            _ if data.is_away => Err(StoreError::Unavailable("connection refused".to_owned())),
            Some(other) => Ok(Some(other)),
            None => {
                data.key = ids.first().cloned();
                Ok(None)
            }
        }
    }

    async fn page(&self, epoch: &str, after: u64) -> Result<Page, StoreError> {
        self.with(epoch, |epoch, _| {
            let later = epoch.records.iter().filter(|(_, record)| record.version > after);
            let mut records: Vec<(RecordKey, Record)> = later.map(|(key, record)| (*key, record.clone())).collect();
            records.sort_by_key(|(key, record)| (record.version, *key));
            let end = records.last().map_or(after, |(_, record)| record.version);
            Page { records, end, is_last: true }
        })
    }

    async fn replace(
        &self,
        epoch: &str,
        key: RecordKey,
        version: u64,
        fields: &[(Field, Bytes)],
    ) -> Result<bool, StoreError> {
        self.with(epoch, |epoch, _| {
            let Some(record) = epoch.records.get_mut(&key).filter(|record| record.version == version) else {
                return false;
            };
            for (field, content) in fields {
                record.set(*field, Some(content.clone()));
            }
            true
        })
    }
}
