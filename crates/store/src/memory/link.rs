//! The way from one replica to the store in memory, which fails as a network does.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::MemoryStore;
use crate::{Commit, Committed, Field, Lease, Offer, Page, RecordKey, Store, StoreError, SyncReply, SyncRequest};

/// How long a replica waits for a reply.
const TIMEOUT: Duration = Duration::from_millis(200);

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    /// It passes everything on.
    Works,
    /// It refuses.
    Cut,
    /// It takes requests, and nothing comes of them.
    Silent,
    /// Requests arrive, and the replies are lost.
    SilentBack,
}

/// The link of one replica.
#[derive(Debug, Clone)]
pub struct Link {
    store: MemoryStore,
    state: Arc<Mutex<LinkState>>,
}

impl Link {
    /// A link to `store` that works.
    pub fn to(store: &MemoryStore) -> Self {
        Self { store: store.clone(), state: Arc::new(Mutex::new(LinkState::Works)) }
    }

    /// Makes the link do this from now on.
    pub fn set(&self, state: LinkState) {
        *self.state.lock() = state;
    }

    async fn pass<T>(&self, request: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        let silent = || StoreError::Unavailable("no reply in time".to_owned());
        let state = *self.state.lock();
        match state {
            LinkState::Works => request.await,
            LinkState::Cut => Err(StoreError::Unavailable("connection refused".to_owned())),
            LinkState::Silent => {
                sleep(TIMEOUT).await;
                Err(silent())
            }
            LinkState::SilentBack => {
                let _ = request.await;
                sleep(TIMEOUT).await;
                Err(silent())
            }
        }
    }
}

#[async_trait]
impl Store for Link {
    async fn sync(&self, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        self.pass(self.store.sync(request)).await
    }

    async fn wait(&self) -> Result<(), StoreError> {
        self.store.wait().await?;
        let works = *self.state.lock() == LinkState::Works;
        works.then_some(()).ok_or_else(|| StoreError::Unavailable("no reply in time".to_owned()))
    }

    async fn begin(&self, epoch: &str, replica: &str, question: RecordKey, version: u64) -> Result<Lease, StoreError> {
        self.pass(self.store.begin(epoch, replica, question, version)).await
    }

    async fn renew(&self, epoch: &str, replica: &str, question: RecordKey) -> Result<bool, StoreError> {
        self.pass(self.store.renew(epoch, replica, question)).await
    }

    async fn commit(&self, epoch: &str, commit: &Commit) -> Result<Committed, StoreError> {
        self.pass(self.store.commit(epoch, commit)).await
    }

    async fn invalidate(&self, epoch: &str, selector: Bytes) -> Result<(), StoreError> {
        self.pass(self.store.invalidate(epoch, selector)).await
    }

    async fn register(&self, epoch: &str, revisions: &[(String, Bytes)]) -> Result<(), StoreError> {
        self.pass(self.store.register(epoch, revisions)).await
    }

    async fn note(&self, list: &str, notes: &[(String, String)], kept: Duration) -> Result<(), StoreError> {
        self.pass(self.store.note(list, notes, kept)).await
    }

    async fn notes(&self, list: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.pass(self.store.notes(list)).await
    }

    async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError> {
        self.pass(self.store.claim(name, lasts)).await
    }

    async fn offer(&self, epoch: &str, offer: &Offer) -> Result<(), StoreError> {
        self.pass(self.store.offer(epoch, offer)).await
    }

    async fn name_key(&self, ids: &[String]) -> Result<Option<String>, StoreError> {
        self.pass(self.store.name_key(ids)).await
    }

    async fn page(&self, epoch: &str, after: u64) -> Result<Page, StoreError> {
        self.pass(self.store.page(epoch, after)).await
    }

    async fn replace(
        &self,
        epoch: &str,
        key: RecordKey,
        version: u64,
        fields: &[(Field, Bytes)],
    ) -> Result<bool, StoreError> {
        self.pass(self.store.replace(epoch, key, version, fields)).await
    }
}
