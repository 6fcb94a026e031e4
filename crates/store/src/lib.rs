//! The store that replicas share: one record per cache key, run numbers, leases, invalidations. It stores bytes and versions; the engine gives
//! them a meaning.
//!
//! Start at the trait [`Store`]: Valkey or Redis in production (`redis`), `MemoryStore` in tests (feature `testing`). Each call is one Lua script,
//! `redis/<call>.lua`. Recovery is in `sync.lua` and `offer.lua`; `memory` is the reference for both. [`KeyedStore`] adds a code to each record, so
//! that only replicas with the key can write one: `keyed/ring` has the keys, `keyed/history` detects records that were put back, and
//! `keyed/rotation` changes the key.

mod config;
mod keyed;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod redis;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

#[cfg(any(test, feature = "testing"))]
pub use self::memory::{Link, LinkState, MemoryStore};
pub use self::{config::StoreConfig, keyed::KeyedStore};
use domain::clock::Timestamp;

/// How long a lease lasts unless it is renewed.
pub const LEASE: Duration = Duration::from_secs(3);
/// A replica counts as live for this long after its last sync.
pub(crate) const LIVE: Duration = Duration::from_secs(3);
/// A replica answers for this long after its last sync began.
pub const CONTACT: Duration = Duration::from_secs(1);
/// Others count a replica as answering for this long after its last sync: longer than it does itself, as no two clocks run alike.
pub const ANSWERING: Duration = Duration::from_millis(1250);
/// The shortest recovery. Every live replica notices the new epoch within this time.
pub const MIN_RECOVERY: Duration = Duration::from_secs(6);
/// During a recovery, a replica with something to offer is waited for this long after its last sync.
pub(crate) const OFFERING: Duration = Duration::from_mins(1);
/// The longest recovery. Copies that were not offered by then are lost.
pub(crate) const MAX_RECOVERY: Duration = Duration::from_mins(10);
/// How many invalidations the store keeps.
pub const MAX_INVALIDATIONS: usize = 1000;

/// The bytes of a cache key.
pub type RecordKey = [u8; 32];

/// The fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The last good answer.
    Answer,
    /// The guard's baseline.
    Baseline,
    /// The answer that is held.
    Held,
    /// Why the last run brought no answer.
    Failure,
}

impl Field {
    /// All fields.
    pub const ALL: [Self; 4] = [Self::Answer, Self::Baseline, Self::Held, Self::Failure];
}

/// All that the store holds under one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The number of the commit that changed it last. 0: no commit did.
    pub version: u64,
    fields: [Option<Bytes>; 4],
}

impl Record {
    /// A record without fields.
    pub fn new(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// The content of `field`.
    #[must_use]
    pub const fn get(&self, field: Field) -> Option<&Bytes> {
        self.fields[field as usize].as_ref()
    }

    /// Replaces the content of `field`, or removes it.
    pub fn set(&mut self, field: Field, content: Option<Bytes>) {
        self.fields[field as usize] = content;
    }
}

/// A replica's report and request in one sync.
#[allow(clippy::struct_excessive_bools, reason = "each is a report of its own")]
#[derive(Debug, Clone)]
pub struct SyncRequest {
    /// The replica's id.
    pub replica: String,
    /// The epoch that the replica has.
    pub epoch: Option<String>,
    /// Changes after this version are wanted.
    pub version: u64,
    /// Invalidations after this number are wanted.
    pub invalidation: u64,
    /// The highest run number or version that the replica has seen, in any epoch.
    pub highest: u64,
    /// How much of the store the replica's copy held when it was last in contact.
    pub copy: CopyState,
    /// How many replicas were live when the copy last held all of the store, this one included. They may have kept running without this replica.
    pub live_then: usize,
    /// Whether the replica has offered its copy in the epoch that it has.
    pub has_offered: bool,
    /// Whether the replica answers now.
    pub is_serving: bool,
    /// Whether the replica has all the revisions that the store names.
    pub is_current: bool,
    /// Whether the replica's requests get nowhere, so that the store must be in pieces: it begins another epoch.
    pub suspects: bool,
}

/// How much of the store a replica's copy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyState {
    /// All of it.
    Complete,
    /// All of it, when the process that wrote the file was last in contact.
    Filed,
    /// All that a gateway without a store has answered. The store's own answers may be older or newer.
    Alone,
    /// Some of it.
    Partial,
    /// Nothing, and the replica never knew a store: it started with an empty file.
    Empty,
}

/// The store's reply to a sync.
#[derive(Debug, Clone)]
pub struct SyncReply {
    /// The store's time.
    pub now: Timestamp,
    /// The id of all that the store holds. Another epoch: the store has lost writes.
    pub epoch: String,
    /// Whether replicas still offer lost records. Nothing can be committed meanwhile, and nothing is read.
    pub is_recovering: bool,
    /// When records were lost for good, so that an absent record may be a lost one.
    pub lost_at: Option<Timestamp>,
    /// The highest number that the store gave to a run or a commit.
    pub highest: u64,
    /// Records that changed after the version in the request, in the order of their versions.
    pub changed: Vec<(RecordKey, Record)>,
    /// Whether `changed` has all of them. If not, ask again from the version of the last one.
    pub is_all: bool,
    /// The number of the last invalidation.
    pub invalidation: u64,
    /// Invalidations after the number in the request that the store still keeps.
    pub invalidations: Vec<(u64, Bytes)>,
    /// The current revision of each route.
    pub revisions: Vec<(String, Bytes)>,
    /// How many replicas are live.
    pub replicas: usize,
    /// All replicas that answer know the changes up to this version.
    pub acknowledged: u64,
    /// How many live replicas have all the revisions that the store names.
    pub current: usize,
}

/// The replica that may run a question now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// The caller, with this run number.
    Ours(u64),
    /// Another replica, for this long unless it renews its lease.
    Theirs(Duration),
    /// No replica yet: the record has changed since the version that the caller has.
    Behind,
}

/// A change that the store makes only if nothing that it depends on has changed.
#[derive(Debug, Clone)]
pub struct Commit {
    /// The replica, and the question whose lease it gives back. Without a lease, there is nothing to give back.
    pub lease: Option<(String, RecordKey)>,
    /// The records that the change depends on, and their versions.
    pub expected: Vec<(RecordKey, u64)>,
    /// The number of the last invalidation that the change takes into account.
    pub invalidation: u64,
    /// The fields to write, or to remove.
    pub writes: Vec<Write>,
}

/// A field to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The record.
    pub key: RecordKey,
    /// The field.
    pub field: Field,
    /// Its content; `None` removes it.
    pub content: Option<Bytes>,
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It is stored. The written records have this version now.
    Stored(u64),
    /// Something changed before. Sync, and decide again.
    Conflict,
}

/// Some records of the store, in the order of their versions.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The records.
    pub records: Vec<(RecordKey, Record)>,
    /// The version of the last one. The next page begins after it.
    pub end: u64,
    /// Whether there is no next page.
    pub is_last: bool,
}

/// Why the store refused a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, refuses, or does not answer in time.
    #[error("{0}")]
    Unavailable(String),
    /// It holds another epoch than the replica, or recovers.
    #[error("it was emptied, replaced or failed over, and the replicas restore its content")]
    OtherEpoch,
}

/// A replica's offer to a store that has lost writes.
#[derive(Debug, Clone)]
pub struct Offer {
    /// Whether the copy is that of a gateway without a store ([`CopyState::Alone`]).
    pub is_alone: bool,
    /// The records. Version 0: it is not known.
    pub records: Vec<(RecordKey, Record)>,
}

/// A store. Each call is atomic. All calls but [`Store::sync`] name the replica's epoch, and fail if the store has
/// another one.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reports that the replica lives, and returns the changes. Begins an epoch if there is none, if the store has lost
    /// writes, or if it is in pieces. Ends a recovery once all replicas have offered their copies.
    async fn sync(&self, request: &SyncRequest) -> Result<SyncReply, StoreError>;

    /// Waits until something changes, for at most 250 ms.
    async fn wait(&self) -> Result<(), StoreError>;

    /// Takes the lease for running `question`, whose record the replica has in `version`. The run number is higher than any
    /// number before.
    async fn begin(&self, epoch: &str, replica: &str, question: RecordKey, version: u64) -> Result<Lease, StoreError>;

    /// Renews the lease of `replica` for `question`. Returns false if it is lost.
    async fn renew(&self, epoch: &str, replica: &str, question: RecordKey) -> Result<bool, StoreError>;

    /// Writes fields if nothing has changed.
    async fn commit(&self, epoch: &str, commit: &Commit) -> Result<Committed, StoreError>;

    /// Appends an invalidation.
    async fn invalidate(&self, epoch: &str, selector: Bytes) -> Result<(), StoreError>;

    /// Names the current revisions of routes.
    async fn register(&self, epoch: &str, revisions: &[(String, Bytes)]) -> Result<(), StoreError>;

    /// Adds `notes`, names with values, to a list of that name, or replaces them. The list goes when nothing was added to it for `kept`.
    /// Notes may be lost.
    async fn note(&self, list: &str, notes: &[(String, String)], kept: Duration) -> Result<(), StoreError>;

    /// The notes in a list.
    async fn notes(&self, list: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// Claims `name` for so long. Returns false if it is claimed already.
    async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError>;

    /// Restores records that the store has lost: absent ones, and earlier versions that no commit of this epoch has changed. Where two
    /// baselines differ and it is not known which one is later, the previous state is unknown, and the record cannot be read.
    async fn offer(&self, epoch: &str, offer: &Offer) -> Result<(), StoreError>;

    /// Makes the first of `ids` the current key id, if `ids` contains the current one. Otherwise returns the current one. Without `ids`, only
    /// compares.
    async fn name_key(&self, ids: &[String]) -> Result<Option<String>, StoreError>;

    /// Records with a later version than `after`, as they are in the store.
    async fn page(&self, epoch: &str, after: u64) -> Result<Page, StoreError>;

    /// Replaces the bytes of `fields` by others with the same meaning, if the record has this version. The version stays. Returns
    /// whether it had it.
    async fn replace(
        &self,
        epoch: &str,
        key: RecordKey,
        version: u64,
        fields: &[(Field, Bytes)],
    ) -> Result<bool, StoreError>;
}
