//! The memory that replicas share. The store is the truth; this process has a copy of it in memory and in its file. A sync
//! brings the store's changes here. A run's changes go to the store first, and are made here once the store accepts them. Without
//! contact with the store, a replica answers nothing.

pub(crate) mod acknowledge;
pub mod clock;
pub(crate) mod contact;
pub(crate) mod copy;
pub(crate) mod peers;
pub(crate) mod record;

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub use self::clock::SharedClock;
use crate::{
    cache::{Disk, Key},
    guard::Held,
    replica::copy::{Copy, WhenComplete},
};
use domain::{
    clock::{Clock, Timestamp},
    file::base_dir::BaseDir,
    generator::Selector,
};
use store::{CopyState, Lease, Store, StoreConfig, StoreError};
use telemetry::metrics::StoreMetrics;

/// For how long an absent record may be a lost one, after the store lost records for good. As long as a mark of loss on disk.
const LOST_FOR: Duration = Duration::from_hours(7 * 24);

/// This replica's view of the shared store.
pub struct Replica {
    pub(crate) store: Arc<dyn Store>,
    /// This replica's id.
    pub(crate) id: String,
    pub(crate) clock: Arc<SharedClock>,
    pub(crate) copy: Mutex<Copy>,
    /// When the last good sync began, in milliseconds after `started`, and one more. 0: there is no contact.
    pub(crate) contact: AtomicU64,
    pub(crate) started: Instant,
    /// Whether the store names another revision for some route.
    pub(crate) has_outdated: AtomicBool,
    /// Whether some change is not acknowledged.
    pub(crate) has_unacknowledged: AtomicBool,
    /// Whether requests get nowhere, so that the store must be in pieces.
    pub(crate) suspects: AtomicBool,
    pub(crate) metrics: Option<StoreMetrics>,
    /// Held during a sync.
    pub(crate) syncing: tokio::sync::Mutex<()>,
    /// Wakes the task that syncs.
    pub(crate) wanted: Notify,
    /// How many syncs have ended well.
    pub(crate) synced: watch::Sender<u64>,
}

/// The preconditions of a run's changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) epoch: String,
    pub(crate) invalidation: u64,
    pub(crate) expected: Vec<(Key, u64)>,
}

/// The state of the shared store for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreState {
    /// Whether this replica is in contact with the store.
    pub is_in_contact: bool,
    /// How many replicas are live.
    pub replicas: usize,
    /// Whether replicas restore the records that the store lost.
    pub is_recovering: bool,
    /// Whether an absent record may be a lost one.
    pub has_lost_records: bool,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Replica {
    /// The view of a new replica of the store that `config` describes. `None` if the configuration has errors.
    pub fn build(
        config: &StoreConfig,
        base: &BaseDir,
        clock: &Arc<dyn Clock>,
        metrics: &StoreMetrics,
    ) -> Option<Arc<Self>> {
        let store = config.build_keyed(base, metrics)?;
        let id = format!("{:016x}", RandomState::new().build_hasher().finish());
        let shared = Self::new(Arc::new(store), id, Arc::new(SharedClock::new(Arc::clone(clock))));
        Some(Arc::new(Self { metrics: Some(metrics.clone()), ..shared }))
    }

    /// The store itself.
    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The clock that shows the store's time.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    /// The view of the replica with this id. `clock` is corrected by the store's time.
    pub fn new(store: Arc<dyn Store>, id: String, clock: Arc<SharedClock>) -> Self {
        Self {
            store,
            id,
            clock,
            copy: Mutex::new(Copy::new()),
            contact: AtomicU64::new(0),
            started: Instant::now(),
            has_outdated: AtomicBool::new(false),
            has_unacknowledged: AtomicBool::new(false),
            suspects: AtomicBool::new(false),
            metrics: None,
            syncing: tokio::sync::Mutex::default(),
            wanted: Notify::new(),
            synced: watch::Sender::new(0),
        }
    }

    /// The state for metrics.
    pub fn contact(&self) -> StoreState {
        let copy = self.copy();
        StoreState {
            is_in_contact: self.is_in_contact(),
            replicas: copy.replicas,
            is_recovering: copy.is_recovering,
            has_lost_records: self.has_lost_records(&copy),
        }
    }

    /// Learns from the file how much of the store this replica held before its start.
    pub(crate) fn found_on(&self, disk: &Disk) {
        let is_empty = disk.list().is_empty() && disk.held::<Held>().is_empty();
        let mut copy = self.copy();
        if copy.epoch.is_some() {
            // The file was opened late. The copy in memory counts.
            return;
        }
        (copy.state, copy.complete) = match disk.copy::<Option<WhenComplete>>() {
            Ok(Some(Some(complete))) => (CopyState::Filed, Some(complete)),
            Ok(Some(None)) | Err(_) => (CopyState::Partial, None),
            Ok(None) if !is_empty => (CopyState::Alone, None),
            Ok(None) => (CopyState::Empty, None),
        };
        copy.filed_version = copy.complete.map_or(0, |complete| complete.version);
        copy.highest = copy.highest.max(copy.filed_version);
    }

    /// Whether the answer under `key` may be served: the store has it, and a run stored it there after the store last lost writes.
    pub(crate) fn may_serve(&self, key: &Key) -> bool {
        self.copy().versions.get(key).is_some_and(|known| known.is_served)
    }

    /// Whether the record of `lineage` or of `key` is lost or cannot be read. `has_baseline`: whether an answer of the lineage was
    /// accepted: a held answer or a failure also makes a record, and proves nothing about earlier answers.
    pub(crate) fn is_lost(&self, lineage: &Key, key: &Key, has_baseline: impl FnOnce() -> bool) -> bool {
        let copy = self.copy();
        copy.unreadable.contains(lineage)
            || copy.unreadable.contains(key)
            || (self.has_lost_records(&copy) && !has_baseline())
    }

    /// Whether the store never had a record of `lineage` or of `key`: it has none, and never lost any.
    pub(crate) fn never_had(&self, lineage: &Key, key: &Key) -> bool {
        let copy = self.copy();
        copy.state == CopyState::Complete
            && copy.lost_at.is_none()
            && [lineage, key].into_iter().all(|key| copy.version_of(key) == 0)
    }

    /// Whether an absent record may be a lost one.
    fn has_lost_records(&self, copy: &Copy) -> bool {
        let is_of_late = |at: Timestamp| self.clock.now().since(at).is_none_or(|passed| passed < LOST_FOR);
        copy.lost_at.is_some_and(is_of_late)
    }

    /// Whether no later run than `number` has stored its answer to `key`.
    pub(crate) fn is_latest_run(&self, key: &Key, number: u64) -> bool {
        self.copy().versions.get(key).is_none_or(|known| known.run <= number)
    }

    /// Notifies all other replicas of an invalidation.
    async fn publish_invalidation(&self, selector: &Selector) -> Result<(), StoreError> {
        let epoch = self.copy().epoch.clone().ok_or(StoreError::OtherEpoch)?;
        self.noted(self.store.invalidate(&epoch, record::selector(selector)).await)
    }

    /// Takes the lease for running `key` in `epoch`.
    pub(crate) async fn begin(&self, epoch: &str, key: &Key) -> Result<Lease, StoreError> {
        let version = self.copy().version_of(key);
        let lease = self.noted(self.store.begin(epoch, &self.id, *key.as_bytes(), version).await)?;
        if let Lease::Ours(number) = lease {
            let mut copy = self.copy();
            copy.highest = copy.highest.max(number);
        }
        Ok(lease)
    }

    /// The present preconditions of changes of the records under `keys`.
    pub(crate) fn basis(&self, keys: &[Key]) -> Basis {
        let copy = self.copy();
        let version = |key: &Key| (*key, copy.version_of(key));
        Basis {
            epoch: copy.epoch.clone().unwrap_or_default(),
            invalidation: copy.invalidation,
            expected: keys.iter().map(version).collect(),
        }
    }

    pub(crate) fn copy(&self) -> MutexGuard<'_, Copy> {
        self.copy.lock()
    }
}
