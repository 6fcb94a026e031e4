//! The store of the replicas, and the way of one process to it, which fails as a network does.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::history::{History, Invariant};
use domain::clock::Clock;
use store::{
    Commit, Committed, Field, Lease, MemoryStore, Offer, Page, RecordKey, Store, StoreError, SyncReply, SyncRequest,
};

/// How long a process waits for a reply: the default of `cache.shared.timeout`.
const TIMEOUT: Duration = Duration::from_millis(200);
/// How long a process waits for a change.
const WAIT: Duration = Duration::from_millis(250);
/// How long a request is on its way.
const ON_THE_WAY: Duration = Duration::from_millis(1);
/// So many requests of three replicas in a second are a loop without a pause. They sync four times each, and after each change. Up to 750
/// were seen, when all previews were renewed over a link that delivers twice, so that each commit conflicts with itself.
const MOST_IN_A_SECOND: u64 = 1000;

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LinkState {
    /// It passes everything on.
    Works,
    /// It refuses.
    Cut,
    /// It takes requests, and nothing comes of them.
    Silent,
    /// Requests arrive, and the replies are lost.
    OneWay,
    /// Each way takes this many milliseconds.
    Slow(u64),
    /// Each request arrives twice.
    Twice,
}

/// The store, and all that wait for its changes. Clones share it.
#[derive(Debug, Clone)]
pub struct SharedStore {
    /// The store itself.
    pub inner: MemoryStore,
    state: Arc<StoreState>,
}

#[derive(Debug, Default)]
struct StoreState {
    changed: Notify,
    acknowledged: AtomicU64,
    /// It refuses to write, as when it is full or a copy.
    is_read_only: AtomicBool,
    /// The requests of a second, by their kind.
    second: Mutex<(u64, BTreeMap<&'static str, u64>)>,
}

impl SharedStore {
    /// An empty store with the time of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { inner: MemoryStore::new(clock), state: Arc::default() }
    }

    /// Lets it refuse to write, or write again.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.state.is_read_only.store(is_read_only, Ordering::Relaxed);
    }

    /// Wakes all that wait for a change.
    pub fn wake(&self) {
        self.state.changed.notify_waiters();
    }

    /// Leaves out `time`, in which no replica synced.
    pub fn leave_out(&self, time: Duration) {
        self.inner.leave_out(time);
    }
}

/// The way of one process to the store.
#[derive(Debug, Clone)]
pub struct ProcessLink {
    store: SharedStore,
    /// The state of its machine's link, which outlives the process.
    machine: Arc<Mutex<LinkState>>,
    /// Whether the process has ended: nothing that it does counts any more.
    is_dead: Arc<AtomicBool>,
    history: Arc<History>,
}

impl ProcessLink {
    /// The way of a process on a machine with this link.
    pub fn new(store: &SharedStore, machine: &Arc<Mutex<LinkState>>, history: &Arc<History>) -> Self {
        let (store, machine, history) = (store.clone(), Arc::clone(machine), Arc::clone(history));
        Self { store, machine, is_dead: Arc::default(), history }
    }

    /// The events of the run.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Ends the process: nothing comes through any more.
    pub fn end(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    async fn dead(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            pending::<()>().await;
        }
    }

    /// Notes a request. Does not return if there are too many in a second, as in a loop without a pause.
    async fn begin_request(&self, name: &'static str) {
        self.dead().await;
        let too_many = {
            let (mut seconds, now) = (self.store.state.second.lock(), self.history.now().as_secs());
            if seconds.0 != now {
                *seconds = (now, BTreeMap::new());
            }
            *seconds.1.entry(name).or_default() += 1;
            let all: u64 = seconds.1.values().sum();
            (all > MOST_IN_A_SECOND).then(|| format!("{all} requests to the store in a second: {:?}", seconds.1))
        };
        if let Some(seen) = too_many {
            self.history.violate(Invariant::Rate, seen);
            pending::<()>().await;
        }
        sleep(ON_THE_WAY).await;
        self.dead().await;
    }

    /// Passes a request on; `request` makes it anew each time.
    async fn pass<T, F>(&self, name: &'static str, request: impl Fn() -> F + Send + Sync) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        self.begin_request(name).await;
        let state = *self.machine.lock();
        let result = match state {
            LinkState::Works => self.arrive(name, &request).await,
            LinkState::Cut => Err(unavailable("connection refused")),
            LinkState::Silent => silent(TIMEOUT).await,
            LinkState::OneWay => {
                let _ = self.arrive(name, &request).await;
                silent(TIMEOUT).await
            }
            LinkState::Slow(each) => {
                let each = Duration::from_millis(each);
                sleep(each).await;
                self.dead().await;
                let result = self.arrive(name, &request).await;
                if each * 2 < TIMEOUT {
                    sleep(each).await;
                    result
                } else {
                    silent(TIMEOUT.saturating_sub(each)).await
                }
            }
            LinkState::Twice => {
                let _ = self.arrive(name, &request).await;
                self.arrive(name, &request).await
            }
        };
        self.dead().await;
        result
    }

    /// A request comes to the store.
    async fn arrive<T, F>(&self, name: &'static str, request: &(impl Fn() -> F + Send + Sync)) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        // A sync writes too: who lives, and what it knows.
        if !["notes", "page"].contains(&name) && self.store.state.is_read_only.load(Ordering::Relaxed) {
            return Err(unavailable("READONLY: it does not write"));
        }
        let result = request().await;
        if ["commit", "invalidate", "register", "offer"].contains(&name) {
            self.store.wake();
        }
        result
    }
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable(why.to_owned())
}

/// No reply comes in time.
async fn silent<T>(left: Duration) -> Result<T, StoreError> {
    sleep(left).await;
    Err(unavailable("no reply in time"))
}

#[async_trait]
impl Store for ProcessLink {
    async fn sync(&self, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        let reply = self.pass("sync", || self.store.inner.sync(request)).await?;
        if self.store.state.acknowledged.swap(reply.acknowledged, Ordering::Relaxed) != reply.acknowledged {
            self.store.wake();
        }
        Ok(reply)
    }

    async fn wait(&self) -> Result<(), StoreError> {
        self.dead().await;
        let _ = timeout(WAIT, self.store.state.changed.notified()).await;
        self.dead().await;
        let works = !matches!(*self.machine.lock(), LinkState::Cut | LinkState::Silent | LinkState::OneWay);
        works.then_some(()).ok_or_else(|| unavailable("no reply in time"))
    }

    async fn begin(&self, epoch: &str, replica: &str, question: RecordKey, version: u64) -> Result<Lease, StoreError> {
        self.pass("begin", || self.store.inner.begin(epoch, replica, question, version)).await
    }

    async fn renew(&self, epoch: &str, replica: &str, question: RecordKey) -> Result<bool, StoreError> {
        self.pass("renew", || self.store.inner.renew(epoch, replica, question)).await
    }

    async fn commit(&self, epoch: &str, commit: &Commit) -> Result<Committed, StoreError> {
        self.pass("commit", || self.store.inner.commit(epoch, commit)).await
    }

    async fn invalidate(&self, epoch: &str, selector: Bytes) -> Result<(), StoreError> {
        self.pass("invalidate", || self.store.inner.invalidate(epoch, selector.clone())).await
    }

    async fn register(&self, epoch: &str, revisions: &[(String, Bytes)]) -> Result<(), StoreError> {
        self.pass("register", || self.store.inner.register(epoch, revisions)).await
    }

    async fn note(&self, list: &str, notes: &[(String, String)], kept: Duration) -> Result<(), StoreError> {
        self.pass("note", || self.store.inner.note(list, notes, kept)).await
    }

    async fn notes(&self, list: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.pass("notes", || self.store.inner.notes(list)).await
    }

    async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError> {
        self.pass("claim", || self.store.inner.claim(name, lasts)).await
    }

    async fn offer(&self, epoch: &str, offer: &Offer) -> Result<(), StoreError> {
        self.pass("offer", || self.store.inner.offer(epoch, offer)).await
    }

    async fn name_key(&self, ids: &[String]) -> Result<Option<String>, StoreError> {
        self.pass("name_key", || self.store.inner.name_key(ids)).await
    }

    async fn page(&self, epoch: &str, after: u64) -> Result<Page, StoreError> {
        self.pass("page", || self.store.inner.page(epoch, after)).await
    }

    async fn replace(
        &self,
        epoch: &str,
        key: RecordKey,
        version: u64,
        fields: &[(Field, Bytes)],
    ) -> Result<bool, StoreError> {
        self.pass("replace", || self.store.inner.replace(epoch, key, version, fields)).await
    }
}
