//! A store whose records are authenticated. Anyone with write access could otherwise deploy and delete, because replicas trust the content of
//! the store. With `cache.shared.key`, each record has a code (HMAC-SHA256) by a key that the replicas share, over its place
//! and its order. A record without a valid code counts as lost: the guard holds the next answer, and nothing is served from it.
//!
//! Numbers and times of the store have no code. A client that changes them can end the contact of all replicas, which then answer nothing.

mod history;
mod ring;
mod rotation;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use self::{
    history::{History, Written},
    ring::{KeyRing, KeyRingError, Place},
    rotation::Rotation,
};
use super::{
    Commit, Committed, Field, Lease, Offer, Page, Record, RecordKey, Store, StoreError, SyncReply, SyncRequest, Write,
};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems},
    secret::{SecretError, SecretRef},
};
use telemetry::metrics::StoreMetrics;

/// How often the keys are read again, and compared with the key that the store names.
const COMPARE_EVERY: Duration = Duration::from_secs(5);

/// Where the keys are, such as in a file with one on each line.
#[derive(Debug, Clone)]
pub struct KeySource {
    prefix: String,
    secret: SecretRef,
    base: BaseDir,
}

/// Why there are no keys, or not those of the other replicas.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeySourceError {
    /// The secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The secret has no keys.
    #[error("{secret}: {cause}")]
    Keys {
        /// The reference to the secret.
        secret: SecretRef,
        /// Why it has none.
        #[source]
        cause: KeyRingError,
    },
    /// Other replicas use another key.
    #[error(
        "its records are made with the key {other}, which is not in `cache.shared.key` ({own}). \
         Give every replica the same keys: docs/replicas.md, \"Change the key\""
    )]
    OtherKey {
        /// The id of their key.
        other: String,
        /// The ids of the own keys.
        own: String,
    },
}

impl From<KeySourceError> for StoreError {
    fn from(error: KeySourceError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl KeySource {
    /// The keys of `secret` for the gateways with this prefix.
    pub fn new(prefix: &str, secret: SecretRef, base: &BaseDir) -> Self {
        Self { prefix: prefix.to_owned(), secret, base: base.clone() }
    }

    /// Notes a problem at `path` if the keys cannot be used.
    pub fn check(&self, path: &Path, problems: &mut Problems) {
        let text = problems.note_secret(path, self.secret.read(&self.base));
        if let Some(text) = text.filter(|_| !self.base.is_offline()) {
            problems.note(path, self.parse(text.expose()));
        }
    }

    fn parse(&self, text: &str) -> Result<KeyRing, KeySourceError> {
        KeyRing::parse(&self.prefix, text).map_err(|cause| KeySourceError::Keys { secret: self.secret.clone(), cause })
    }

    /// Checks that one of these keys has the id `other`, which other replicas use. Returns the reason otherwise.
    pub(super) fn compare(source: Option<&Self>, other: &str) -> Result<(), KeySourceError> {
        let ids = source.map(Self::read).transpose()?.map(|ring| ring.ids()).unwrap_or_default();
        if ids.iter().any(|id| id == other) { Ok(()) } else { Err(wrong_key(other, &ids)) }
    }

    fn read(&self) -> Result<KeyRing, KeySourceError> {
        self.parse(self.secret.read(&self.base)?.expose())
    }
}

/// A store, and the keys that authenticate its records. Without keys it trusts all records.
pub struct KeyedStore<S> {
    inner: S,
    source: Option<KeySource>,
    metrics: Option<StoreMetrics>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ring: Option<Arc<KeyRing>>,
    compared: Option<Instant>,
    epoch: String,
    history: History,
    rotation: Rotation,
}

impl<S> fmt::Debug for KeyedStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedStore").field("ring", &self.ring()).finish_non_exhaustive()
    }
}

impl<S> KeyedStore<S> {
    fn ring(&self) -> Option<Arc<KeyRing>> {
        self.state.lock().ring.clone()
    }
}

impl<S: Store> KeyedStore<S> {
    /// `inner` with the keys of `source`, which are read when they are first needed.
    pub fn new(inner: S, source: Option<KeySource>, metrics: Option<StoreMetrics>) -> Self {
        Self { inner, source, metrics, state: Mutex::default() }
    }

    /// Reads the keys again from time to time, and makes sure that the replicas have the same.
    async fn compare(&self) -> Result<(), StoreError> {
        if self.state.lock().compared.is_some_and(|at| at.elapsed() < COMPARE_EVERY) {
            return Ok(());
        }
        let ids = self.read_again()?;
        if let Some(other) = self.inner.name_key(&ids).await? {
            return Err(wrong_key(&other, &ids).into());
        }
        self.state.lock().compared = Some(Instant::now());
        Ok(())
    }

    /// The ids of the keys now. If they cannot be read now, the earlier ones.
    fn read_again(&self) -> Result<Vec<String>, KeySourceError> {
        let Some(source) = &self.source else { return Ok(Vec::new()) };
        let read = source.read();
        let mut state = self.state.lock();
        match (read, &state.ring) {
            (Ok(ring), Some(known)) if ring.ids() == known.ids() => {}
            (Ok(ring), known) => {
                if known.is_some() {
                    tracing::info!(keys = ?ring.ids(), "the keys of the shared store have changed");
                }
                state.ring = Some(Arc::new(ring));
                state.rotation.begin();
            }
            (Err(error), None) => return Err(error),
            (Err(error), Some(_)) => {
                tracing::warn!(%error, "cannot read the keys of the shared store; the earlier ones are used");
            }
        }
        Ok(state.ring.as_ref().map(|ring| ring.ids()).unwrap_or_default())
    }

    /// Removes from `reply` everything that no replica wrote.
    fn open_reply(&self, reply: &mut SyncReply) {
        let mut state = self.state.lock();
        if state.epoch != reply.epoch {
            state.epoch.clone_from(&reply.epoch);
            state.history.clear();
            state.rotation.begin();
        }
        let Some(ring) = state.ring.clone() else { return };
        for (key, record) in &mut reply.changed {
            *record = open_record(&ring, &mut state.history, key, record);
        }
        for (_, selector) in &mut reply.invalidations {
            // One that cannot be read selects everything.
            *selector = ring.open(Place::Invalidation, selector).map(|opened| opened.content).unwrap_or_default();
        }
        reply.revisions.retain_mut(|(route, revision)| {
            let opened = ring.open(Place::Revision(route), revision);
            opened.map(|opened| *revision = opened.content).is_some()
        });
    }

    /// Brings some records of earlier keys under the first one.
    async fn rotate(&self, epoch: &str) {
        let Some(ring) = self.ring().filter(|ring| ring.has_others()) else {
            if let Some(metrics) = &self.metrics {
                metrics.old_keys.set(0);
            }
            return;
        };
        let Some(after) = self.state.lock().rotation.due() else { return };
        let Ok(page) = self.inner.page(epoch, after).await else { return };
        let resealed = rotation::reseal(&ring, &self.inner, epoch, &page).await;
        let done = self.state.lock().rotation.note(&page, resealed);
        if let (Some(left), Some(metrics)) = (done, &self.metrics) {
            metrics.old_keys.set(i64::try_from(left).unwrap_or(i64::MAX));
        }
    }
}

fn wrong_key(other: &str, ids: &[String]) -> KeySourceError {
    let own = if ids.is_empty() { "this replica has none".to_owned() } else { format!("here: {}", ids.join(", ")) };
    KeySourceError::OtherKey { other: other.to_owned(), own }
}

/// The content of `record`, if a replica wrote all of its fields. Otherwise none of them can be read.
fn open_record(ring: &KeyRing, history: &mut History, key: &RecordKey, record: &Record) -> Record {
    let mut opened = Record::new(record.version);
    for field in Field::ALL {
        let sealed = record.get(field);
        let written = sealed.and_then(|sealed| ring.open(Place::Field(key, field as u8), sealed));
        let written = written.and_then(|opened| Written::decode(&opened.content));
        let problem = match (&written, sealed) {
            (None, Some(_)) => Some("no key of `cache.shared.key` made it"),
            (written, _) => history.note(key, field, written.as_ref()).err(),
        };
        if let Some(problem) = problem
            && field != Field::Failure
        {
            let shown = base16ct::lower::encode_string(key);
            tracing::warn!(key = shown, ?field, problem, "a record in the shared store was not made by a replica");
            opened.set(Field::Answer, Some(Bytes::new()));
            return opened;
        }
        let content = written.and_then(|written| written.content);
        opened.set(field, content.filter(|_| problem.is_none()));
    }
    opened
}

fn seal(ring: &KeyRing, key: &RecordKey, field: Field, written: &Written) -> Bytes {
    ring.seal(Place::Field(key, field as u8), &written.encode())
}

#[async_trait]
impl<S: Store> Store for KeyedStore<S> {
    async fn sync(&self, request: &SyncRequest) -> Result<SyncReply, StoreError> {
        self.compare().await?;
        let mut reply = self.inner.sync(request).await?;
        self.open_reply(&mut reply);
        if reply.is_all {
            self.rotate(&reply.epoch).await;
        }
        Ok(reply)
    }

    async fn wait(&self) -> Result<(), StoreError> {
        self.inner.wait().await
    }

    async fn begin(&self, epoch: &str, replica: &str, question: RecordKey, version: u64) -> Result<Lease, StoreError> {
        self.inner.begin(epoch, replica, question, version).await
    }

    async fn renew(&self, epoch: &str, replica: &str, question: RecordKey) -> Result<bool, StoreError> {
        self.inner.renew(epoch, replica, question).await
    }

    async fn commit(&self, epoch: &str, commit: &Commit) -> Result<Committed, StoreError> {
        let Some(ring) = self.ring() else { return self.inner.commit(epoch, commit).await };
        let seal = |write: &Write| {
            let after = commit.expected.iter().find(|(key, _)| *key == write.key).map_or(0, |(_, version)| *version);
            let written = Written { after, content: write.content.clone() };
            Write { content: Some(seal(&ring, &write.key, write.field, &written)), ..*write }
        };
        let commit = Commit { writes: commit.writes.iter().map(seal).collect(), ..commit.clone() };
        self.inner.commit(epoch, &commit).await
    }

    async fn invalidate(&self, epoch: &str, selector: Bytes) -> Result<(), StoreError> {
        let sealed = self.ring().map(|ring| ring.seal(Place::Invalidation, &selector));
        self.inner.invalidate(epoch, sealed.unwrap_or(selector)).await
    }

    async fn register(&self, epoch: &str, revisions: &[(String, Bytes)]) -> Result<(), StoreError> {
        let Some(ring) = self.ring() else { return self.inner.register(epoch, revisions).await };
        let seal = |(route, revision): &(String, Bytes)| (route.clone(), ring.seal(Place::Revision(route), revision));
        self.inner.register(epoch, &revisions.iter().map(seal).collect::<Vec<_>>()).await
    }

    async fn note(&self, list: &str, notes: &[(String, String)], kept: Duration) -> Result<(), StoreError> {
        let Some(ring) = self.ring() else { return self.inner.note(list, notes, kept).await };
        let seal = |(name, value): &(String, String)| {
            let sealed = ring.seal(Place::Note(list, name), value.as_bytes());
            (name.clone(), base16ct::lower::encode_string(&sealed))
        };
        self.inner.note(list, &notes.iter().map(seal).collect::<Vec<_>>(), kept).await
    }

    async fn notes(&self, list: &str) -> Result<Vec<(String, String)>, StoreError> {
        let notes = self.inner.notes(list).await?;
        let Some(ring) = self.ring() else { return Ok(notes) };
        let open = |(name, value): (String, String)| {
            let sealed = base16ct::lower::decode_vec(&value).ok()?.into();
            let opened = ring.open(Place::Note(list, &name), &sealed)?;
            Some((name, String::from_utf8(opened.content.into()).ok()?))
        };
        Ok(notes.into_iter().filter_map(open).collect())
    }

    async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError> {
        self.inner.claim(name, lasts).await
    }

    async fn offer(&self, epoch: &str, offer: &Offer) -> Result<(), StoreError> {
        let Some(ring) = self.ring() else { return self.inner.offer(epoch, offer).await };
        let seal = |(key, record): &(RecordKey, Record)| {
            let mut sealed = Record::new(record.version);
            for field in Field::ALL {
                let written =
                    record.get(field).map(|content| Written { after: record.version, content: Some(content.clone()) });
                sealed.set(field, written.map(|written| seal(&ring, key, field, &written)));
            }
            (*key, sealed)
        };
        self.inner.offer(epoch, &Offer { records: offer.records.iter().map(seal).collect(), ..*offer }).await
    }

    async fn name_key(&self, ids: &[String]) -> Result<Option<String>, StoreError> {
        self.inner.name_key(ids).await
    }

    async fn page(&self, epoch: &str, after: u64) -> Result<Page, StoreError> {
        self.inner.page(epoch, after).await
    }

    async fn replace(
        &self,
        epoch: &str,
        key: RecordKey,
        version: u64,
        fields: &[(Field, Bytes)],
    ) -> Result<bool, StoreError> {
        self.inner.replace(epoch, key, version, fields).await
    }
}
