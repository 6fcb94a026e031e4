//! Last good answers on disk, so that they survive a restart. A change is appended to the [`journal`] before its
//! answer is sent. A thread of its own writes it to the database (redb), so no answer waits for the database. The database is read
//! when memory has no entry. If the disk fails, the gateway logs and counts it, and keeps serving.
//!
//! A lost record never counts as "there was nothing". A record is lost if it could not be written, was evicted, or
//! was in a file that is damaged or gone. It then has a mark of loss ([`marks`]), and reading it is an error. [`mod@start`] decides at
//! each start what was lost.

mod change;
mod file;
mod journal;
mod kind;
mod long;
mod marks;
mod medium;
pub(crate) mod record;
mod sizes;
mod start;
mod throttle;
mod writer;

use std::{
    fmt,
    sync::{
        Arc,
        mpsc::{Sender, channel, sync_channel},
    },
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use redb::{Database, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable};
use serde::{
    Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

pub use crate::cache::disk::{
    file::Trouble,
    medium::{Medium, Operation, Part, Place},
};
use crate::cache::{
    Entry, Key, Listed, RouteId, Usage,
    disk::{
        file::File,
        journal::Journal,
        kind::RecordKind,
        long::{KnownChunks, whole},
        marks::Marks,
        record::{Head, decode, encode},
        sizes::{Limits, Sizes},
        start::{Parts, start},
        throttle::Throttle,
        writer::{Order, Writer},
    },
};
use domain::{
    clock::{Clock, Timestamp},
    generator::{Question, Selector},
    units::ByteSize,
};
use telemetry::metrics::DiskMetrics;

/// The key of the one record of [`RecordKind::Copy`].
const COPY: Key = Key::of_bytes([0; 32]);

type Readable = ReadOnlyTable<&'static [u8; 32], &'static [u8]>;

/// The records of a kind; `None` if none was ever written.
fn records(transaction: &ReadTransaction, kind: RecordKind) -> Result<Option<Readable>, redb::Error> {
    match transaction.open_table(kind.table()) {
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

/// The file or a record in it cannot be read or was lost, so its content is unknown. The reason is logged.
#[derive(Debug, Clone, Copy)]
pub struct Unreadable;

/// The store, once it is open.
#[derive(Clone)]
pub struct Disk {
    file: Arc<File>,
    journal: Arc<Mutex<Journal>>,
    marks: Arc<Marks>,
    queue: Sender<Order>,
    metrics: DiskMetrics,
    sizes: Arc<Mutex<Sizes>>,
    chunks: Arc<KnownChunks>,
    throttle: Arc<Throttle>,
    /// The limit of the held answers, in bytes: their records then use at most half of the file's limit.
    held_limit: u64,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Disk {
    /// Opens or creates the file at `place` with its companions, and takes over the journal's changes. They take about `max_bytes` together
    /// ([`Limits`]). A damaged file is set aside under another name, and counts as lost.
    ///
    /// # Errors
    /// When there can be no file.
    pub fn open(
        place: &Place,
        max_bytes: ByteSize,
        metrics: DiskMetrics,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, Trouble> {
        Self::run(start(place, clock, &metrics)?, max_bytes, metrics)
    }

    /// A store without a file.
    #[cfg(test)]
    pub(crate) fn in_memory(metrics: DiskMetrics) -> Self {
        let marks = Marks::in_memory(Arc::new(domain::clock::SystemClock));
        let parts = Parts { file: File::in_memory(), journal: Journal::in_memory(), marks };
        Self::run(parts, ByteSize::mib(256), metrics).unwrap()
    }

    /// Starts the thread that writes.
    fn run(parts: Parts, max_bytes: ByteSize, metrics: DiskMetrics) -> Result<Self, Trouble> {
        let Parts { file, mut journal, marks } = parts;
        let limits = Limits::of(max_bytes.0);
        journal.limit(limits.journal);
        let (file, journal, marks) = (Arc::new(file), Arc::new(Mutex::new(journal)), Arc::new(marks));
        let sizes = Arc::new(Mutex::new(Sizes::new(limits.records)));
        let chunks = Arc::<KnownChunks>::default();
        let held_limit = (limits.records / 4).max(64 * 1024);
        // The journal bounds how much may wait.
        let (queue, orders) = channel();
        let is_too_large = file.size() > limits.file;
        let mut writer = Writer {
            file: Arc::clone(&file),
            journal: Arc::clone(&journal),
            marks: Arc::clone(&marks),
            last: marks.last(),
            limits,
            metrics: metrics.clone(),
            sizes: Arc::clone(&sizes),
            chunks: Arc::clone(&chunks),
            compacted: None,
            throttle: Throttle::default(),
        };
        if is_too_large {
            // Before anybody reads, since reading has to wait meanwhile.
            writer.prepare();
        }
        let spawned = thread::Builder::new().name("store".into()).spawn(move || {
            if !is_too_large {
                writer.prepare();
            }
            writer.run(&orders);
        });
        spawned.map_err(|error| Trouble::Other(format!("no thread to write with: {error}")))?;
        Ok(Self { file, journal, marks, queue, metrics, sizes, chunks, throttle: Arc::default(), held_limit })
    }

    /// How many bytes of held answers the file may hold.
    pub(crate) const fn held_limit(&self) -> u64 {
        self.held_limit
    }

    /// How much the records of `route` take in the file, and how much they may take before some of them leave.
    pub fn usage(&self, route: RouteId) -> (Usage, u64) {
        self.sizes.lock().usage(route)
    }

    /// The same for marks of loss.
    pub fn marks(&self, route: RouteId) -> (Usage, u64) {
        self.marks.usage(route)
    }

    /// The answer under `key`. It is not fresh, because later changes are unknown.
    ///
    /// # Errors
    /// When there may have been an answer, and it is lost or cannot be read.
    pub fn get(&self, key: &Key) -> Result<Option<Entry>, Unreadable> {
        self.read(RecordKind::Answer, key, decode)
    }

    /// Whether an answer from `then` or later is stored under `key`.
    pub(super) fn has_since(&self, key: &Key, then: Timestamp) -> bool {
        matches!(self.get(key), Ok(Some(kept)) if kept.stored_at >= then)
    }

    /// The content of a record under `key`. `decode` also returns its stamp.
    ///
    /// # Errors
    /// When there may have been a record, and it is lost or cannot be read.
    fn read<T>(
        &self,
        kind: RecordKind,
        key: &Key,
        decode: impl Fn(&[u8]) -> Option<(u64, T)>,
    ) -> Result<Option<T>, Unreadable> {
        let found = self.attempt(|database| {
            let transaction = database.begin_read()?;
            let Some(table) = records(&transaction, kind)? else { return Ok(None) };
            let Some(record) = table.get(key.as_bytes())? else { return Ok(None) };
            let chunks = records(&transaction, RecordKind::Chunk)?;
            Ok(Some(whole((kind, *key), record.value(), chunks.as_ref())?.and_then(|record| decode(&record))))
        })?;
        let (stamp, content) = match found {
            Some(Some((stamp, content))) => (Some(stamp), Some(content)),
            Some(None) => {
                self.damaged(kind, key);
                return Err(Unreadable);
            }
            None => (None, None),
        };
        if self.marks.is_lost(kind, key, stamp) { Err(Unreadable) } else { Ok(content) }
    }

    /// All stored answers.
    #[must_use]
    pub fn list(&self) -> Vec<(Key, Listed)> {
        self.read_all::<Head, _>(RecordKind::Answer, |key, head, size| (key, Listed::kept(head, size)))
    }

    /// The baseline under `key`.
    ///
    /// # Errors
    /// When there may have been a baseline, and it is lost or cannot be read.
    pub fn baseline<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, Unreadable> {
        self.read(RecordKind::Baseline, key, |record| {
            record::open(record).map(|(stamp, baseline, _)| (stamp, baseline))
        })
    }

    /// The baselines, by lineage.
    #[must_use]
    pub fn baselines<T: DeserializeOwned>(&self) -> Vec<(Key, T)> {
        self.read_all::<T, _>(RecordKind::Baseline, |key, baseline, _| (key, baseline))
    }

    /// Records the file's copy of a shared store.
    pub(crate) fn put_copy<T: Serialize>(&self, copy: &T) {
        match record::draft(copy, &[]) {
            Some(draft) => self.change(RecordKind::Copy, COPY, Some(draft)),
            None => self.lose(RecordKind::Copy, &COPY),
        }
    }

    /// Records that the file is a copy of no store: a gateway without one uses it.
    pub(crate) fn leave_store(&self) {
        if !matches!(self.copy::<IgnoredAny>(), Ok(None)) {
            self.change(RecordKind::Copy, COPY, None);
        }
    }

    /// The file's copy of a shared store ([`Self::put_copy`]). `None` if it is a copy of none.
    ///
    /// # Errors
    /// When the record is lost.
    pub fn copy<T: DeserializeOwned>(&self) -> Result<Option<T>, Unreadable> {
        self.read(RecordKind::Copy, &COPY, |record| record::open(record).map(|(stamp, copy, _)| (stamp, copy)))
    }

    /// Stores the requesters of the question with `key`, or removes it.
    pub(crate) fn put_requesters<T: Serialize>(&self, key: Key, requesters: Option<&[T]>) {
        self.change(RecordKind::Requesters, key, requesters.and_then(|requesters| record::draft(&requesters, &[])));
    }

    /// The requesters, by question.
    #[must_use]
    pub fn requesters<T: DeserializeOwned>(&self) -> Vec<(Key, Vec<T>)> {
        self.read_all::<Vec<T>, _>(RecordKind::Requesters, |key, requesters, _| (key, requesters))
    }

    /// The held answers, by lineage.
    #[must_use]
    pub fn held<T: DeserializeOwned>(&self) -> Vec<(Key, T)> {
        self.read_all::<T, _>(RecordKind::Held, |key, held, _| (key, held))
    }

    /// All records of a kind, except lost ones.
    fn read_all<H: DeserializeOwned, T>(&self, kind: RecordKind, made: impl Fn(Key, H, usize) -> T) -> Vec<T> {
        let read = |database: &Database| {
            let transaction = database.begin_read()?;
            let Some(table) = records(&transaction, kind)? else { return Ok(Vec::new()) };
            let chunks = records(&transaction, RecordKind::Chunk)?;
            let mut all = Vec::new();
            for row in table.iter()? {
                let (key, record) = row?;
                let key = Key::of_bytes(*key.value());
                let record = whole((kind, key), record.value(), chunks.as_ref())?.unwrap_or_default();
                match record::open(&record) {
                    Some((stamp, ..)) if self.marks.is_lost(kind, &key, Some(stamp)) => {}
                    Some((_, head, _)) => all.push(made(key, head, record.len())),
                    None => self.damaged(kind, &key),
                }
            }
            Ok(all)
        };
        self.attempt(read).unwrap_or_default()
    }

    fn damaged(&self, kind: RecordKind, key: &Key) {
        // A chunk may be missing. The next change writes all.
        self.chunks.forget(&(kind, *key));
        tracing::warn!(%key, "a record on disk is damaged; what it held is unknown");
        self.metrics.errors.inc();
    }

    fn attempt<T>(&self, read: impl Fn(&Database) -> Result<T, redb::Error>) -> Result<T, Unreadable> {
        self.file.read(read).map_err(|error| {
            tracing::error!(%error, "the last good answers on disk cannot be read");
            self.metrics.errors.inc();
            Unreadable
        })
    }

    /// Stores `entry` under `key`. When this returns, the record survives the end of the process: it is in the journal, or
    /// marked as lost.
    pub fn put(&self, key: Key, entry: &Entry) {
        match encode(entry) {
            Some(draft) => self.change(RecordKind::Answer, key, Some(draft)),
            None => self.lose(RecordKind::Answer, &key),
        }
    }

    /// Stores the baseline under `key`, with the same promise.
    pub(crate) fn put_baseline<T: Serialize>(&self, key: Key, baseline: &T) {
        match record::draft(baseline, &[]) {
            Some(draft) => self.change(RecordKind::Baseline, key, Some(draft)),
            None => self.lose(RecordKind::Baseline, &key),
        }
    }

    /// Stores the held answer under `key`, or removes it, with the same promise.
    pub fn hold<T: Serialize>(&self, key: Key, held: Option<&T>) {
        match held.map(|held| record::draft(held, &[])) {
            Some(None) => self.lose(RecordKind::Held, &key),
            draft => self.change(RecordKind::Held, key, draft.flatten()),
        }
    }

    /// Records a use of the answer under `key`.
    pub fn used(&self, key: Key) {
        if self.journal.lock().admit(0) {
            let _ = self.queue.send(Order::Used(key));
        }
    }

    /// Makes every selected answer stale until its backend was called, and waits until that is written. Returns the selected
    /// answers.
    #[must_use]
    pub(crate) fn expire(&self, selectors: Vec<Selector>) -> Vec<(Key, Question)> {
        let (reply, expired) = sync_channel(1);
        let _ = self.queue.send(Order::Expire(selectors, reply));
        expired.recv().unwrap_or_default()
    }

    /// Overwrites the records of answer and baseline under `key` with damaged ones.
    #[cfg(test)]
    pub(crate) fn damage(&self, key: &Key) {
        for kind in [RecordKind::Answer, RecordKind::Baseline] {
            let change = kind::Change { kind, key: *key, stamp: self.marks.next(), record: Some(b"damaged".to_vec()) };
            self.queue.send(Order::Change(change)).unwrap();
        }
        self.flush(Duration::from_secs(10));
    }

    /// Waits until all changes are on disk, at most `timeout`.
    pub fn flush(&self, timeout: Duration) {
        let (done, is_done) = sync_channel(1);
        if self.queue.send(Order::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(timeout);
        }
    }
}

#[cfg(test)]
mod tests;
