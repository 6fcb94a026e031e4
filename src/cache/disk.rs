//! Last good answers on disk (redb), so that a restart does not forget them. Written by a thread of its own, off
//! every answer's path; read when memory has nothing. Whatever is wrong with the disk is logged and counted, and
//! the gateway serves on.

mod file;
pub(super) mod record;
mod writer;

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use redb::{Database, ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};

pub use self::file::Trouble;
use self::{
    file::File,
    record::{Head, decode, encode},
    writer::{Order, Writer},
};
use super::{Entry, Key, answers::Listed};
use crate::{
    generator::{Question, Selector},
    telemetry::metrics::DiskMetrics,
    units::ByteSize,
};

type Records = TableDefinition<'static, &'static [u8; 32], &'static [u8]>;
type Readable = ReadOnlyTable<&'static [u8; 32], &'static [u8]>;

const ANSWERS: Records = TableDefinition::new("answers");
const HELD: Records = TableDefinition::new("held");
const BASELINES: Records = TableDefinition::new("baselines");
/// How many orders may wait for the writer; with more, the newest answer is not kept.
const QUEUE: usize = 1024;

/// The records of a kind, to be read; `None` where nothing was ever written.
fn records(database: &Database, kind: Records) -> Result<Option<Readable>, redb::Error> {
    match database.begin_read()?.open_table(kind) {
        Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
        table => Ok(Some(table?)),
    }
}

/// That the file, or a record in it, cannot be read, so that nobody knows what was there. The log says why.
#[derive(Debug, Clone, Copy)]
pub struct Unreadable;

/// The store, once it is open.
#[derive(Debug, Clone)]
pub struct Disk {
    file: Arc<File>,
    queue: SyncSender<Order>,
    metrics: DiskMetrics,
}

impl Disk {
    /// Opens or makes the file at `path` and keeps about `most` bytes in it. A damaged file is set aside under a name
    /// that says so.
    ///
    /// # Errors
    /// When there can be no file.
    pub fn open(path: &Path, most: ByteSize, metrics: DiskMetrics) -> Result<Self, Trouble> {
        Self::start(File::open(path, &metrics)?, most, metrics)
    }

    /// A store without a file.
    #[cfg(test)]
    pub(crate) fn in_memory(metrics: DiskMetrics) -> Self {
        Self::start(File::in_memory(), ByteSize::mib(256), metrics).unwrap()
    }

    /// Keeps about `most` bytes in `file`.
    fn start(file: File, most: ByteSize, metrics: DiskMetrics) -> Result<Self, Trouble> {
        let file = Arc::new(file);
        let (queue, orders) = sync_channel(QUEUE);
        let writer = Writer::new(Arc::clone(&file), most.0, metrics.clone());
        let spawned = thread::Builder::new().name("store".into()).spawn(move || writer.run(&orders));
        spawned.map_err(|error| Trouble::Other(format!("no thread to write with: {error}")))?;
        Ok(Self { file, queue, metrics })
    }

    /// What is kept under `key`, fresh no more: what happened since it was stored is not known.
    ///
    /// # Errors
    /// When there may have been something, and it cannot be read.
    pub fn get(&self, key: &Key) -> Result<Option<Entry>, Unreadable> {
        let read = self.attempt(|database| {
            let Some(table) = records(database, ANSWERS)? else { return Ok(None) };
            let Some(record) = table.get(key.as_bytes())? else { return Ok(None) };
            let entry = decode(record.value());
            if entry.is_none() {
                self.damaged(key);
            }
            Ok(Some(entry))
        })?;
        match read {
            Some(entry) => entry.map(Some).ok_or(Unreadable),
            None if self.file.is_anew => Err(Unreadable),
            None => Ok(None),
        }
    }

    /// All answers that are kept.
    #[must_use]
    pub fn list(&self) -> Vec<(Key, Listed)> {
        self.read_all::<Head, _>(ANSWERS, |key, head, size| (key, Listed::kept(head, size)))
    }

    /// What the next answer under `key` is compared with.
    ///
    /// # Errors
    /// When there may have been something, and it cannot be read.
    pub fn baseline<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, Unreadable> {
        let read = self.attempt(|database| {
            let Some(table) = records(database, BASELINES)? else { return Ok(None) };
            let Some(record) = table.get(key.as_bytes())? else { return Ok(None) };
            Ok(Some(record::open::<T>(record.value()).map(|(baseline, _)| baseline)))
        })?;
        let Some(baseline) = read else { return Ok(None) };
        if baseline.is_none() {
            self.damaged(key);
        }
        baseline.map(Some).ok_or(Unreadable)
    }

    /// What is held, by lineage.
    #[must_use]
    pub fn held<T: DeserializeOwned>(&self) -> Vec<(Key, T)> {
        self.read_all::<T, _>(HELD, |key, held, _| (key, held))
    }

    fn read_all<H: DeserializeOwned, T>(&self, kind: Records, made: impl Fn(Key, H, usize) -> T) -> Vec<T> {
        let read = |database: &Database| {
            let Some(table) = records(database, kind)? else { return Ok(Vec::new()) };
            let mut all = Vec::new();
            for row in table.iter()? {
                let (key, record) = row?;
                let key = Key::of_bytes(*key.value());
                match record::open(record.value()) {
                    Some((head, _)) => all.push(made(key, head, record.value().len())),
                    None => self.damaged(&key),
                }
            }
            Ok(all)
        };
        self.attempt(read).unwrap_or_default()
    }

    fn damaged(&self, key: &Key) {
        tracing::warn!(%key, "a record on disk is damaged and counts as missing");
        self.metrics.errors.inc();
    }

    fn attempt<T>(&self, read: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, Unreadable> {
        self.file.with(read).map_err(|error| {
            tracing::error!(%error, "the last good answers on disk cannot be read");
            self.metrics.errors.inc();
            Unreadable
        })
    }

    /// Keeps `entry` under `key`, soon.
    pub fn put(&self, key: Key, entry: &Entry) {
        if let Some(record) = encode(entry) {
            self.order(Order::Put(key, record));
        }
    }

    /// Keeps what the next answer under `key` is compared with, soon.
    pub fn put_baseline<T: Serialize>(&self, key: Key, baseline: &T) {
        if let Some(record) = record::seal(baseline, &[]) {
            self.order(Order::Baseline(key, record));
        }
    }

    /// Keeps what is held under `key`, soon, or forgets it.
    pub fn hold<T: Serialize>(&self, key: Key, held: Option<&T>) {
        let record = held.and_then(|held| record::seal(held, &[]));
        self.order(Order::Hold(key, record));
    }

    /// Notes that what is under `key` was of use.
    pub fn used(&self, key: Key) {
        let _ = self.queue.try_send(Order::Used(key));
    }

    fn order(&self, order: Order) {
        if self.queue.try_send(order).is_err() {
            self.metrics.errors.inc();
        }
    }

    /// Lets no answer that is selected be served before its backend was asked, and waits until that is written. Which
    /// those are.
    #[must_use]
    pub fn expire(&self, selector: Selector) -> Vec<(Key, Question)> {
        let (told, expired) = sync_channel(1);
        let _ = self.queue.send(Order::Expire(selector, told));
        expired.recv().unwrap_or_default()
    }

    /// Overwrites the records of answer and baseline under `key` with what is none.
    #[cfg(test)]
    pub(crate) fn damage(&self, key: &Key) {
        self.order(Order::Put(*key, b"damaged".to_vec()));
        self.order(Order::Baseline(*key, b"damaged".to_vec()));
        self.flush(Duration::from_secs(10));
    }

    /// Waits until everything that was put is on disk, at most `most`.
    pub fn flush(&self, most: Duration) {
        let (done, is_done) = sync_channel(1);
        if self.queue.send(Order::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{file::create, *};
    use crate::{
        cache::{Encoded, Life, PackedQuestion, Revision},
        clock::Timestamp,
        generator::{Evidence, ParameterSet, Parameters, Question},
    };

    fn entry(text: &str) -> Entry {
        let set = ParameterSet(json!({ "a": text }).as_object().unwrap().clone());
        Entry {
            encoded: Encoded::encode(&[set]).unwrap(),
            question: PackedQuestion::from(&Question {
                route: "r".into(),
                application_set: None,
                parameters: Arc::default(),
            }),
            revision: Revision::of(&json!({})),
            stored_at: Timestamp(1_700_000_000_000),
            asked_at: Timestamp(1_700_000_000_000),
            first_at: Timestamp(1_700_000_000_000),
            turn: 7,
            life: Life::For(Duration::from_mins(1)),
            took: Duration::from_micros(7),
            evidence: vec![Evidence::absent("a", "b").of("c")],
            note: Some(Arc::new(serde_json::json!({"n": 1}))),
        }
    }

    fn key(n: u8) -> Key {
        Key::of_bytes([n; 32])
    }

    fn metrics() -> DiskMetrics {
        let counter = || prometheus::IntCounter::new("n", "n").unwrap();
        DiskMetrics { writes: counter(), errors: counter() }
    }

    fn open(path: &Path, most: u64) -> Disk {
        Disk::open(path, ByteSize(most), metrics()).unwrap()
    }

    /// Waits until the file can be opened again: its writer ends in its own time.
    fn close(disk: Disk, path: &Path) {
        disk.flush(Duration::from_secs(10));
        drop(disk);
        while matches!(create(path), Err(Trouble::Locked(_))) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/answers.redb");
        let disk = open(&path, 1 << 20);
        assert!(disk.get(&key(1)).unwrap().is_none());
        disk.put(key(1), &entry("x"));
        close(disk, &path);
        let disk = open(&path, 1 << 20);
        let (kept, put) = (disk.get(&key(1)).unwrap().unwrap(), entry("x"));
        assert_eq!((kept.encoded.body(), kept.encoded.sets()), (put.encoded.body(), 1));
        assert_eq!(
            (kept.question, kept.stored_at, kept.life, kept.took, kept.evidence),
            (put.question, put.stored_at, Life::Restored, put.took, put.evidence)
        );
        assert!(Disk::open(&path, ByteSize(1), metrics()).unwrap_err().to_string().contains("another process"));
    }

    #[test]
    fn the_size_is_bounded_and_the_oldest_leave() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.redb");
        let disk = open(&path, 6000);
        for n in 0..20 {
            disk.put(key(n), &entry(&"x".repeat(1000)));
            disk.flush(Duration::from_secs(10));
        }
        let there: Vec<u8> = (0..20).filter(|n| disk.get(&key(*n)).unwrap().is_some()).collect();
        assert_eq!(there, [16, 17, 18, 19]);
        close(disk, &path);
        let disk = open(&path, 3400);
        disk.put(key(30), &entry("x"));
        disk.flush(Duration::from_secs(10));
        let there: Vec<u8> = (0..31).filter(|n| disk.get(&key(*n)).unwrap().is_some()).collect();
        assert_eq!(there, [18, 19, 30]);
    }

    #[test]
    fn what_is_used_stays() {
        let folder = tempfile::tempdir().unwrap();
        let disk = open(&folder.path().join("answers.redb"), 6000);
        for n in 0..20 {
            disk.put(key(n), &entry(&"x".repeat(1000)));
            disk.used(key(0));
            disk.flush(Duration::from_secs(10));
        }
        let there: Vec<u8> = (0..20).filter(|n| disk.get(&key(*n)).unwrap().is_some()).collect();
        assert_eq!(there, [0, 17, 18, 19]);
    }

    #[test]
    fn what_is_over_stays_over_and_what_is_held_stays_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.redb");
        let disk = open(&path, 1 << 20);
        let asking = |branch: &str| {
            let parameters: Parameters = json!({ "branch": branch }).as_object().unwrap().clone();
            let entry = entry(branch);
            let question = Question { parameters: Arc::new(parameters.clone()), ..entry.question.open() };
            let question = PackedQuestion::from(&question);
            (Entry { question, ..entry }, Selector { parameters, ..Selector::default() })
        };
        let ((x, select_x), (y, _)) = (asking("x"), asking("y"));
        disk.put(key(1), &x);
        disk.put(key(2), &y);
        disk.hold(key(3), Some(&"why"));
        disk.hold(key(4), Some(&"gone"));
        disk.hold::<&str>(key(4), None);
        let expired: Vec<Key> = disk.expire(select_x).into_iter().map(|(key, _)| key).collect();
        assert_eq!(expired, [key(1)]);
        close(disk, &path);
        let disk = open(&path, 1 << 20);
        let lives = [1, 2].map(|n| disk.get(&key(n)).unwrap().unwrap().life);
        assert_eq!(lives, [Life::For(Duration::ZERO), Life::Restored]);
        assert_eq!(disk.held::<String>(), [(key(3), "why".to_owned())]);
        assert_eq!(disk.list().len(), 2);
    }

    #[test]
    fn a_damaged_record_counts_as_missing() {
        let record = encode(&entry("x")).unwrap();
        assert!(decode(&record).is_some());
        for position in 0..record.len() {
            let mut damaged = record.clone();
            damaged[position] ^= 0x20;
            assert!(decode(&damaged).is_none(), "byte {position}");
            assert!(decode(&record[..position]).is_none(), "cut at {position}");
        }
        assert!(decode(&[0; 100]).is_none() && decode(&[]).is_none());
    }

    #[test]
    fn a_damaged_file_is_set_aside_and_named() {
        // What was in it is not known, other than in a file that is new.
        for damage in [b"not a database".to_vec(), vec![0; 100_000]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("answers.redb");
            std::fs::write(&path, &damage).unwrap();
            let disk = open(&path, 1 << 20);
            assert_eq!(disk.metrics.errors.get(), 1);
            assert!(disk.get(&key(2)).is_err());
            disk.put(key(1), &entry("x"));
            disk.flush(Duration::from_secs(10));
            assert!(disk.get(&key(1)).unwrap().is_some());
            let names: Vec<String> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            let aside = names.iter().find(|name| name.starts_with("answers.redb.damaged-")).unwrap();
            assert_eq!(std::fs::read(folder.path().join(aside)).unwrap(), damage);
        }
    }
}
