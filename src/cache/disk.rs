//! Last good answers on disk (redb), so that a restart does not forget them. Written by a thread of its own, off
//! every answer's path; read when memory has nothing. Whatever is wrong with the disk is logged and counted, and
//! the gateway serves on.
//!
//! A record is `version (1 byte) | SHA-256 of the rest (8 bytes of it) | length of the head (4 bytes, little endian) |
//! head (JSON) | body`. A record that does not fit its checksum counts as missing.

use std::{
    collections::{BTreeMap, HashMap},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageError, TableDefinition};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Encoded, Entry, Key};
use crate::{clock::Timestamp, generator::Evidence, telemetry::metrics::DiskMetrics, units::ByteSize};

const ANSWERS: TableDefinition<'_, &[u8; 32], &[u8]> = TableDefinition::new("answers");
const VERSION: u8 = 1;
/// Version and checksum, in bytes.
const PREFIX: usize = 9;
/// How many answers may wait to be written; with more, the newest is not kept.
const QUEUE: usize = 1024;
/// How many answers are written in one transaction.
const BATCH: usize = 256;

/// The store, once it is open.
#[derive(Debug, Clone)]
pub struct Disk {
    database: Arc<Database>,
    queue: SyncSender<Order>,
    metrics: DiskMetrics,
}

#[derive(Debug)]
enum Order {
    Put(Key, Vec<u8>),
    /// Somebody waits until all before it is written.
    Flush(SyncSender<()>),
}

#[derive(Serialize, Deserialize)]
struct Head {
    stored_at: u64,
    took_us: u64,
    sets: usize,
    evidence: Vec<Evidence>,
}

impl Disk {
    /// Opens or makes the file at `path` and keeps about `most` bytes in it. A damaged file is set aside under a name
    /// that says so.
    ///
    /// # Errors
    /// When there can be no file: the reason, for the log.
    pub fn open(path: &Path, most: ByteSize, metrics: DiskMetrics) -> Result<Self, String> {
        let shown = path.display();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        let database = match create(path) {
            Ok(database) => database,
            Err(Trouble::Damaged(why)) => {
                let aside = set_aside(path)
                    .map_err(|error| format!("{shown} is damaged ({why}), and cannot be moved: {error}"))?;
                tracing::error!(damaged = %aside.display(), why, "the file of last good answers was damaged and is set aside; a new one begins");
                metrics.errors.inc();
                create(path).map_err(|trouble| format!("{shown}: {trouble}"))?
            }
            Err(trouble) => return Err(format!("{shown}: {trouble}")),
        };
        let database = Arc::new(database);
        let (queue, orders) = sync_channel(QUEUE);
        let writer =
            Writer { database: Arc::clone(&database), most: most.0, metrics: metrics.clone(), sizes: Sizes::default() };
        let spawned = thread::Builder::new().name("store".into()).spawn(move || writer.run(&orders));
        spawned.map_err(|error| format!("no thread to write with: {error}"))?;
        Ok(Self { database, queue, metrics })
    }

    /// What is kept under `key`, fresh no more: what happened since it was stored is not known.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Entry> {
        let read = || -> Result<Option<Entry>, redb::Error> {
            let transaction = self.database.begin_read()?;
            let table = match transaction.open_table(ANSWERS) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            let Some(record) = table.get(key.as_bytes())? else { return Ok(None) };
            let entry = decode(record.value());
            if entry.is_none() {
                tracing::warn!(%key, "a last good answer on disk is damaged and counts as missing");
                self.metrics.errors.inc();
            }
            Ok(entry)
        };
        survive(read).unwrap_or_else(|error| {
            tracing::error!(%error, "the last good answers on disk cannot be read");
            self.metrics.errors.inc();
            None
        })
    }

    /// Keeps `entry` under `key`, soon.
    pub fn put(&self, key: Key, entry: &Entry) {
        let Some(record) = encode(entry) else { return };
        if self.queue.try_send(Order::Put(key, record)).is_err() {
            self.metrics.errors.inc();
        }
    }

    /// Waits until everything that was put is on disk, at most `most`.
    pub fn flush(&self, most: Duration) {
        let (done, is_done) = sync_channel(1);
        if self.queue.send(Order::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(most);
        }
    }
}

/// Makes an error of a panic: redb reads a damaged page as far as it makes sense, and panics beyond.
fn survive<T>(work: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(redb::Error::Corrupted("it panicked".into())))
}

enum Trouble {
    Damaged(String),
    Other(String),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged(why) | Self::Other(why) => f.write_str(why),
        }
    }
}

fn create(path: &Path) -> Result<Database, Trouble> {
    let opened = catch_unwind(|| Database::create(path)).unwrap_or_else(|_| Err(DatabaseError::RepairAborted));
    opened.map_err(|error| match &error {
        DatabaseError::DatabaseAlreadyOpen => Trouble::Other("another process holds it".to_owned()),
        DatabaseError::Storage(StorageError::Io(io))
            if io.kind() != std::io::ErrorKind::InvalidData && io.kind() != std::io::ErrorKind::UnexpectedEof =>
        {
            Trouble::Other(error.to_string())
        }
        _ => Trouble::Damaged(error.to_string()),
    })
}

fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".damaged-{seconds}"));
    let aside = path.with_file_name(name);
    std::fs::rename(path, &aside)?;
    Ok(aside)
}

fn encode(entry: &Entry) -> Option<Vec<u8>> {
    let head = Head {
        stored_at: entry.stored_at.0,
        took_us: u64::try_from(entry.took.as_micros()).unwrap_or(u64::MAX),
        sets: entry.encoded.sets(),
        evidence: entry.evidence.clone(),
    };
    let head = serde_json::to_vec(&head).ok()?;
    let length = u32::try_from(head.len()).ok()?.to_le_bytes();
    let mut record = vec![VERSION; PREFIX];
    record.extend_from_slice(&length);
    record.extend_from_slice(&head);
    record.extend_from_slice(entry.encoded.body());
    let sum = checksum(&record[PREFIX..]);
    record[1..PREFIX].copy_from_slice(&sum);
    Some(record)
}

fn decode(record: &[u8]) -> Option<Entry> {
    let (&version, rest) = record.split_first()?;
    let (sum, content) = rest.split_first_chunk::<8>()?;
    if version != VERSION || *sum != checksum(content) {
        return None;
    }
    let (length, rest) = content.split_first_chunk::<4>()?;
    let (head, body) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
    let head: Head = serde_json::from_slice(head).ok()?;
    Some(Entry {
        encoded: Encoded::restore(Bytes::copy_from_slice(body), head.sets)?,
        stored_at: Timestamp(head.stored_at),
        life: Duration::ZERO,
        took: Duration::from_micros(head.took_us),
        evidence: head.evidence,
    })
}

fn checksum(content: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&Sha256::digest(content)[..8]);
    sum
}

/// Which records there are, by the time at which they were written last.
#[derive(Default)]
struct Sizes {
    by_key: HashMap<[u8; 32], (u64, u64)>,
    by_turn: BTreeMap<u64, [u8; 32]>,
    turn: u64,
    total: u64,
}

impl Sizes {
    fn note(&mut self, key: [u8; 32], size: u64) {
        self.forget(&key);
        self.turn += 1;
        self.by_key.insert(key, (self.turn, size));
        self.by_turn.insert(self.turn, key);
        self.total += size;
    }

    fn forget(&mut self, key: &[u8; 32]) {
        if let Some((turn, size)) = self.by_key.remove(key) {
            self.by_turn.remove(&turn);
            self.total -= size;
        }
    }

    fn oldest(&self) -> Option<[u8; 32]> {
        self.by_turn.values().next().copied()
    }
}

struct Writer {
    database: Arc<Database>,
    most: u64,
    metrics: DiskMetrics,
    sizes: Sizes,
}

impl Writer {
    /// Writes what comes, several at once when several wait, until nobody is left to send.
    fn run(mut self, orders: &Receiver<Order>) {
        if let Err(error) = survive(|| self.count()) {
            self.trouble(&error);
        }
        while let Ok(first) = orders.recv() {
            let (mut records, mut waiting) = (HashMap::new(), Vec::new());
            for order in std::iter::once(first).chain(orders.try_iter().take(BATCH)) {
                match order {
                    Order::Put(key, record) => _ = records.insert(*key.as_bytes(), record),
                    Order::Flush(done) => waiting.push(done),
                }
            }
            if let Err(error) = survive(|| self.write(&records)) {
                self.trouble(&error);
            }
            for done in waiting {
                let _ = done.send(());
            }
        }
    }

    /// Takes stock of a file that was there before.
    fn count(&mut self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = match transaction.open_table(ANSWERS) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
            table => table?,
        };
        let mut found = Vec::new();
        for row in table.iter()? {
            let (key, record) = row?;
            let stored_at = decode(record.value()).map_or(0, |entry| entry.stored_at.0);
            found.push((stored_at, *key.value(), record.value().len() as u64));
        }
        found.sort_unstable();
        for (_, key, size) in found {
            self.sizes.note(key, size);
        }
        Ok(())
    }

    fn write(&mut self, records: &HashMap<[u8; 32], Vec<u8>>) -> Result<(), redb::Error> {
        if records.is_empty() {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(ANSWERS)?;
            for (key, record) in records {
                table.insert(key, record.as_slice())?;
                self.sizes.note(*key, record.len() as u64);
            }
            while self.sizes.total > self.most
                && let Some(oldest) = self.sizes.oldest()
            {
                table.remove(&oldest)?;
                self.sizes.forget(&oldest);
            }
        }
        transaction.commit()?;
        self.metrics.writes.inc_by(records.len() as u64);
        Ok(())
    }

    fn trouble(&self, error: &redb::Error) {
        self.metrics.errors.inc();
        tracing::error!(%error, "the last good answers cannot be kept on disk; they stay in memory");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::generator::ParameterSet;

    fn entry(text: &str) -> Entry {
        let set = ParameterSet(json!({ "a": text }).as_object().unwrap().clone());
        Entry {
            encoded: Encoded::encode(&[set]).unwrap(),
            stored_at: Timestamp(1_700_000_000_000),
            life: Duration::from_mins(1),
            took: Duration::from_micros(7),
            evidence: vec![Evidence { asked: "a".into(), answered: "b".into() }],
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
        while matches!(create(path), Err(Trouble::Other(_))) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_was_kept_is_there_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/answers.redb");
        let disk = open(&path, 1 << 20);
        assert!(disk.get(&key(1)).is_none());
        disk.put(key(1), &entry("x"));
        close(disk, &path);
        let disk = open(&path, 1 << 20);
        let (kept, put) = (disk.get(&key(1)).unwrap(), entry("x"));
        assert_eq!((kept.encoded.body(), kept.encoded.sets()), (put.encoded.body(), 1));
        assert_eq!(
            (kept.stored_at, kept.life, kept.took, kept.evidence),
            (put.stored_at, Duration::ZERO, put.took, put.evidence)
        );
        assert!(Disk::open(&path, ByteSize(1), metrics()).unwrap_err().contains("another process"));
    }

    #[test]
    fn the_size_is_bounded_and_the_oldest_leave() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.redb");
        let disk = open(&path, 5000);
        for n in 0..20 {
            disk.put(key(n), &entry(&"x".repeat(1000)));
            disk.flush(Duration::from_secs(10));
        }
        let there: Vec<u8> = (0..20).filter(|n| disk.get(&key(*n)).is_some()).collect();
        assert_eq!(there, [16, 17, 18, 19]);
        close(disk, &path);
        let disk = open(&path, 2500);
        disk.put(key(30), &entry("x"));
        disk.flush(Duration::from_secs(10));
        let there: Vec<u8> = (0..31).filter(|n| disk.get(&key(*n)).is_some()).collect();
        assert_eq!(there, [18, 19, 30]);
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
        for damage in [b"not a database".to_vec(), vec![0; 100_000]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("answers.redb");
            std::fs::write(&path, &damage).unwrap();
            let disk = open(&path, 1 << 20);
            assert_eq!(disk.metrics.errors.get(), 1);
            disk.put(key(1), &entry("x"));
            disk.flush(Duration::from_secs(10));
            assert!(disk.get(&key(1)).is_some());
            let names: Vec<String> = std::fs::read_dir(folder.path())
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            let aside = names.iter().find(|name| name.starts_with("answers.redb.damaged-")).unwrap();
            assert_eq!(std::fs::read(folder.path().join(aside)).unwrap(), damage);
        }
    }
}
