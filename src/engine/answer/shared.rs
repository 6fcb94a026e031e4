//! The memory that replicas share. The store is the truth; what this process has in memory and in its file is a copy of it. A sync
//! brings the store's changes here. A run's changes go to the store first, and are made here once the store accepts them.

mod alone;
mod copy;
mod decide;
mod offer;
mod record;
mod replica;
mod run;
mod settle;
mod sync;

use std::{
    fmt,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout_at},
};

use self::copy::Copy;
pub(crate) use self::replica::SharedClock;
use crate::{
    clients::store::{CONTACT, CopyState, Lease, Store, StoreConfig, StoreError},
    domain::{
        clock::{Clock, Timestamp},
        problem::{Path, Problems},
    },
    engine::{
        cache::{Disk, Key},
        guard::Held,
        route::Route,
    },
    file::base_dir::BaseDir,
    telemetry::metrics::StoreMetrics,
};

/// The time between two syncs if nothing changes.
const SYNC_EVERY: Duration = Duration::from_millis(250);
/// For how long an absent record may be a lost one, after the store lost records for good. As long as a mark of loss on disk.
const LOST_FOR: Duration = Duration::from_hours(7 * 24);

/// This replica's view of the shared store.
pub(crate) struct Shared {
    store: Arc<dyn Store>,
    /// This replica's id.
    replica: String,
    clock: Arc<SharedClock>,
    copy: Mutex<Copy>,
    /// When the last good sync began, in milliseconds after `started`, and one more. 0: there is no contact.
    contact: AtomicU64,
    started: Instant,
    /// Whether the store names another revision for some route.
    has_outdated: AtomicBool,
    /// Whether some change is not settled.
    has_unsettled: AtomicBool,
    /// Held during a sync.
    turn: tokio::sync::Mutex<()>,
    /// Wakes the task that syncs.
    wanted: Notify,
    /// How many syncs have ended well.
    synced: watch::Sender<u64>,
}

/// What a run's changes depend on.
#[derive(Debug, Clone)]
pub(super) struct Basis {
    epoch: String,
    invalidation: u64,
    expected: Vec<(Key, u64)>,
}

/// The state of the shared store for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreState {
    /// Whether this replica is in contact with the store.
    pub(crate) is_in_contact: bool,
    /// How many replicas are live.
    pub(crate) replicas: usize,
    /// Whether replicas restore what the store lost.
    pub(crate) is_recovering: bool,
    /// Whether an absent record may be a lost one.
    pub(crate) has_lost_records: bool,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("replica", &self.replica).finish_non_exhaustive()
    }
}

impl Shared {
    /// The view of a new replica of the store that `config` describes. `None` if the configuration has errors.
    pub(crate) fn build(
        config: &StoreConfig,
        base: &BaseDir,
        clock: &Arc<dyn Clock>,
        metrics: &StoreMetrics,
    ) -> Option<Arc<Self>> {
        let store = config.build(base, &Path::root(), &mut Problems::default())?.counted(metrics.clone());
        let replica = format!("{:016x}", RandomState::new().build_hasher().finish());
        Some(Arc::new(Self::new(Arc::new(store), replica, Arc::new(SharedClock::new(Arc::clone(clock))))))
    }

    /// The store itself.
    pub(super) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The clock that shows the store's time.
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as Arc<dyn Clock>
    }

    /// The view of the replica with this id. `clock` is corrected by the store's time.
    pub(crate) fn new(store: Arc<dyn Store>, replica: String, clock: Arc<SharedClock>) -> Self {
        Self {
            store,
            replica,
            clock,
            copy: Mutex::new(Copy::new()),
            contact: AtomicU64::new(0),
            started: Instant::now(),
            has_outdated: AtomicBool::new(false),
            has_unsettled: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            wanted: Notify::new(),
            synced: watch::Sender::new(0),
        }
    }

    /// Whether this replica knows all that the store held a moment ago.
    pub(crate) fn is_in_contact(&self) -> bool {
        let contact = self.contact.load(Ordering::Relaxed);
        contact > 0 && self.started.elapsed() < Duration::from_millis(contact - 1) + CONTACT
    }

    /// Why this replica may not run `route` and record the answer; `None` if it may.
    pub(super) fn why_alone(&self, route: &Route) -> Option<String> {
        if !self.is_in_contact() {
            return Some(self.copy().why.clone());
        }
        let is_outdated = self.has_outdated.load(Ordering::Relaxed) && self.copy().outdated.contains(&route.name);
        is_outdated.then(|| "another replica has a newer configuration of this route".to_owned())
    }

    /// Why this replica is not in contact with the store; `None` if it is.
    pub(crate) fn why_out_of_contact(&self) -> Option<String> {
        (!self.is_in_contact()).then(|| self.copy().why.clone())
    }

    /// The state for metrics.
    pub(crate) fn contact(&self) -> StoreState {
        let copy = self.copy();
        StoreState {
            is_in_contact: self.is_in_contact(),
            replicas: copy.replicas,
            is_recovering: copy.is_recovering,
            has_lost_records: self.has_lost_records(&copy),
        }
    }

    /// Learns from the file how much of the store this replica held before its start.
    pub(super) fn found_on(&self, disk: &Disk) {
        let is_empty = disk.list().is_empty() && disk.held::<Held>().is_empty();
        let mut copy = self.copy();
        if copy.epoch.is_some() {
            // The file was opened late. The copy in memory counts.
            return;
        }
        copy.state = match disk.is_complete() {
            Ok(Some(true)) => CopyState::Complete,
            Ok(Some(false)) | Err(_) => CopyState::Partial,
            // The file of a single replica is all that there is.
            Ok(None) if !is_empty => CopyState::Complete,
            Ok(None) => CopyState::Empty,
        };
    }

    /// Whether this replica has known all that the store holds, now or before its start.
    pub(crate) fn is_informed(&self) -> bool {
        *self.synced.borrow() > 0 || self.copy().state == CopyState::Complete
    }

    /// Whether an absent answer to a question was never there, as far as this replica's copy tells.
    pub(super) fn knows_all(&self) -> bool {
        self.copy().state == CopyState::Complete
    }

    /// Whether the record of `lineage` or of `key` is lost or cannot be read. `has_baseline` says whether an answer of the lineage was
    /// accepted: a held answer or a failure also makes a record, and says nothing about what was there before.
    pub(super) fn is_lost(&self, lineage: &Key, key: &Key, has_baseline: impl FnOnce() -> bool) -> bool {
        let copy = self.copy();
        copy.unreadable.contains(lineage)
            || copy.unreadable.contains(key)
            || (self.has_lost_records(&copy) && !has_baseline())
    }

    /// Whether an absent record may be a lost one.
    fn has_lost_records(&self, copy: &Copy) -> bool {
        let is_of_late = |at: Timestamp| self.clock.now().since(at).is_none_or(|passed| passed < LOST_FOR);
        copy.lost_at.is_some_and(is_of_late)
    }

    /// Whether no later run than `number` has stored its answer to `key`.
    pub(super) fn is_latest_run(&self, key: &Key, number: u64) -> bool {
        self.copy().versions.get(key).is_none_or(|known| known.run <= number)
    }

    /// Asks for a sync, because the configuration has changed.
    pub(crate) fn want_sync(&self) {
        self.wanted.notify_one();
    }

    /// Waits until the next sync is due.
    pub(crate) async fn due(&self) {
        let _ = tokio::time::timeout(SYNC_EVERY, self.wanted.notified()).await;
    }

    /// Waits until a sync is wanted.
    #[cfg(test)]
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Waits until this replica has been in contact once.
    pub(crate) async fn first_contact(&self) {
        let mut synced = self.synced.subscribe();
        let _ = synced.wait_for(|syncs| *syncs > 0).await;
    }

    /// Logs when the contact is lost, and when it is back.
    pub(crate) fn note_result(&self, result: &Result<(), StoreError>) {
        let mut copy = self.copy();
        match result {
            Ok(()) if !copy.is_logged_in_contact => {
                tracing::info!(replicas = copy.replicas, "in contact with the shared store");
            }
            Err(error) if copy.is_logged_in_contact || copy.logged.as_ref() != Some(error) => {
                tracing::warn!(%error, "no contact with the shared store; known answers are served, and none are recorded");
                copy.logged = Some(error.clone());
            }
            _ => {}
        }
        copy.is_logged_in_contact = result.is_ok();
    }

    /// Wakes [`Self::due`] whenever the store changes. Never returns.
    pub(crate) async fn watch(&self) {
        loop {
            match self.store.wait().await {
                Ok(()) => self.wanted.notify_one(),
                Err(_) => sleep(SYNC_EVERY).await,
            }
        }
    }

    /// Waits for the end of a sync that begins from now on, at most until `until`.
    pub(super) async fn next_sync(&self, until: Instant) -> Result<(), StoreError> {
        let mut synced = self.synced.subscribe();
        // A sync that is under way may have read too early.
        let turns = if self.turn.try_lock().is_ok() { 1 } else { 2 };
        for _ in 0..turns {
            self.wanted.notify_one();
            self.change(&mut synced, until).await?;
        }
        Ok(())
    }

    async fn change(&self, synced: &mut watch::Receiver<u64>, until: Instant) -> Result<(), StoreError> {
        let until = until.min(Instant::now() + CONTACT);
        match timeout_at(until, synced.changed()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(StoreError::Unavailable("no sync in time".to_owned())),
        }
    }

    /// Takes the lease for running `key`.
    async fn begin(&self, key: &Key) -> Result<Lease, StoreError> {
        let (epoch, version) = {
            let copy = self.copy();
            (copy.epoch.clone(), copy.version_of(key))
        };
        let epoch = epoch.ok_or(StoreError::OtherEpoch)?;
        let lease = self.noted(self.store.begin(&epoch, &self.replica, *key.as_bytes(), version).await)?;
        if let Lease::Ours(number) = lease {
            let mut copy = self.copy();
            copy.highest = copy.highest.max(number);
        }
        Ok(lease)
    }

    /// What changes of the records under `keys` depend on now.
    fn basis(&self, keys: &[Key]) -> Basis {
        let copy = self.copy();
        let version = |key: &Key| (*key, copy.version_of(key));
        Basis {
            epoch: copy.epoch.clone().unwrap_or_default(),
            invalidation: copy.invalidation,
            expected: keys.iter().map(version).collect(),
        }
    }

    /// Ends the contact if the store holds another epoch.
    fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            if *error == StoreError::OtherEpoch {
                self.contact.store(0, Ordering::Relaxed);
            }
            self.copy().why = error.to_string();
        }
        result
    }

    fn copy(&self) -> MutexGuard<'_, Copy> {
        self.copy.lock()
    }
}
