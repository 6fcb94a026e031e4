//! The store that replicas share: one record per cache key, run numbers, leases, invalidations. It knows bytes and versions; the
//! engine knows what they mean. [`Store`] is the seam: Valkey or Redis in production, a twin in memory in tests.

mod config;
#[cfg(test)]
mod memory;
mod redis;
#[cfg(test)]
mod tests;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;

pub(crate) use self::config::StoreConfig;
#[cfg(test)]
pub(crate) use self::memory::MemoryStore;
use crate::domain::clock::Timestamp;

/// How long a lease lasts unless it is renewed.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// A replica counts as live for this long after its last sync.
pub(crate) const LIVE: Duration = Duration::from_secs(3);
/// A replica serves answers as fresh for this long after its last sync began.
pub(crate) const CONTACT: Duration = Duration::from_secs(1);
/// The shortest recovery. Every live replica notices the new epoch within this time.
pub(crate) const MIN_RECOVERY: Duration = Duration::from_secs(6);
/// During a recovery, a replica with something to offer is waited for this long after its last sync.
pub(crate) const OFFERING: Duration = Duration::from_mins(1);
/// The longest recovery. Copies that were not offered by then are lost.
pub(crate) const MAX_RECOVERY: Duration = Duration::from_mins(10);
/// How many invalidations the store keeps.
pub(crate) const MAX_INVALIDATIONS: usize = 1000;

/// The bytes of a cache key.
pub(crate) type RecordKey = [u8; 32];

/// The fields of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Field {
    /// The last good answer.
    Answer,
    /// What the guard compares the next answer with.
    Baseline,
    /// The answer that is held.
    Held,
    /// Why the last run brought no answer.
    Failure,
}

impl Field {
    /// All fields.
    pub(crate) const ALL: [Self; 4] = [Self::Answer, Self::Baseline, Self::Held, Self::Failure];
}

/// All that the store holds under one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The number of the commit that changed it last. 0: no commit did.
    pub(crate) version: u64,
    fields: [Option<Bytes>; 4],
}

impl Record {
    /// A record without fields.
    pub(crate) fn new(version: u64) -> Self {
        Self { version, ..Self::default() }
    }

    /// The content of `field`.
    #[must_use]
    pub(crate) const fn get(&self, field: Field) -> Option<&Bytes> {
        self.fields[field as usize].as_ref()
    }

    /// Replaces the content of `field`, or removes it.
    pub(crate) fn set(&mut self, field: Field, content: Option<Bytes>) {
        self.fields[field as usize] = content;
    }
}

/// What a replica reports and asks in one sync.
#[derive(Debug, Clone)]
pub(crate) struct SyncRequest {
    /// The replica's id.
    pub(crate) replica: String,
    /// The epoch that the replica knows.
    pub(crate) epoch: Option<String>,
    /// Changes after this version are wanted.
    pub(crate) version: u64,
    /// Invalidations after this number are wanted.
    pub(crate) invalidation: u64,
    /// The highest run number or version that the replica has seen, in any epoch.
    pub(crate) highest: u64,
    /// How much of the store the replica's copy held when it was last in contact.
    pub(crate) copy: CopyState,
    /// Whether the replica has offered its copy in the epoch that it knows.
    pub(crate) has_offered: bool,
    /// Whether the replica serves answers as fresh now.
    pub(crate) is_serving: bool,
    /// Whether the replica has all the revisions that the store names.
    pub(crate) is_current: bool,
}

/// How much of the store a replica's copy holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyState {
    /// All of it.
    Complete,
    /// Some of it.
    Partial,
    /// Nothing, and the replica never knew a store: it started with an empty file.
    Empty,
}

/// What the store answers to a sync.
#[derive(Debug, Clone)]
pub(crate) struct SyncReply {
    /// The store's time.
    pub(crate) now: Timestamp,
    /// The id of all that the store holds. Another epoch: the store has lost writes.
    pub(crate) epoch: String,
    /// Whether replicas still offer what was lost. Nothing can be committed meanwhile, and nothing is read.
    pub(crate) is_recovering: bool,
    /// When records were lost for good, so that an absent record may be a lost one.
    pub(crate) lost_at: Option<Timestamp>,
    /// The highest number that the store gave to a run or a commit.
    pub(crate) highest: u64,
    /// Records that changed after the version in the request, in the order of their versions.
    pub(crate) changed: Vec<(RecordKey, Record)>,
    /// Whether `changed` has all of them. If not, ask again from the version of the last one.
    pub(crate) is_all: bool,
    /// The number of the last invalidation.
    pub(crate) invalidation: u64,
    /// Invalidations after the number in the request that the store still keeps.
    pub(crate) invalidations: Vec<(u64, Bytes)>,
    /// The current revision of each route.
    pub(crate) revisions: Vec<(String, Bytes)>,
    /// How many replicas are live.
    pub(crate) replicas: usize,
    /// All replicas that serve answers as fresh know the changes up to this version.
    pub(crate) settled: u64,
    /// How many live replicas have all the revisions that the store names.
    pub(crate) current: usize,
}

/// Who may run a question now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lease {
    /// The caller, with this run number.
    Ours(u64),
    /// Another replica, for this long unless it renews its lease.
    Theirs(Duration),
    /// Nobody yet: the record has changed since the version that the caller knows.
    Behind,
}

/// A change that the store makes only if nothing that it depends on has changed.
#[derive(Debug, Clone)]
pub(crate) struct Commit {
    /// The replica, and the question whose lease it gives back. Without a lease, there is nothing to give back.
    pub(crate) lease: Option<(String, RecordKey)>,
    /// The records that the change depends on, and their versions.
    pub(crate) expected: Vec<(RecordKey, u64)>,
    /// The number of the last invalidation that the change takes into account.
    pub(crate) invalidation: u64,
    /// The fields to write, or to remove.
    pub(crate) writes: Vec<Write>,
}

/// A field to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Write {
    /// The record.
    pub(crate) key: RecordKey,
    /// The field.
    pub(crate) field: Field,
    /// Its content; `None` removes it.
    pub(crate) content: Option<Bytes>,
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It is stored. The written records have this version now.
    Stored(u64),
    /// Something changed before. Sync, and decide again.
    Conflict,
}

/// Why the store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreError {
    /// It cannot be reached, refuses, or does not answer in time.
    Unavailable(String),
    /// It holds another epoch than the replica knows, or recovers.
    OtherEpoch,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => f.write_str(why),
            Self::OtherEpoch => {
                f.write_str("it was emptied, replaced or failed over, and the replicas restore its content")
            }
        }
    }
}

/// A store. Each call is atomic. All calls but [`Store::sync`] name the epoch that the replica knows, and fail if the store has
/// another one.
#[async_trait]
pub(crate) trait Store: fmt::Debug + Send + Sync + 'static {
    /// Reports that the replica lives, and returns what has changed. Begins an epoch if there is none, or if the store has lost
    /// writes. Ends a recovery once all replicas have offered their copies.
    async fn sync(&self, request: &SyncRequest) -> Result<SyncReply, StoreError>;

    /// Waits until something changes, for at most 250 ms.
    async fn wait(&self) -> Result<(), StoreError>;

    /// Takes the lease for running `question`, whose record the replica knows in `version`. The run number is higher than any
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

    /// Claims `name` for so long. Returns false if somebody has claimed it before.
    async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError>;

    /// Restores records that the store has lost: absent ones, and during a recovery also earlier versions.
    async fn offer(&self, epoch: &str, records: &[(RecordKey, Record)]) -> Result<(), StoreError>;
}
