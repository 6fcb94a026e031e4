//! What somebody who can write to the store can do, and what a change of the key does.

use std::{fs, path::PathBuf};

use tempfile::TempDir;

use super::*;
use crate::MemoryStore;
use domain::clock::SystemClock;

const KEY: RecordKey = [1; 32];
const OTHER: RecordKey = [2; 32];
const NEW: &str = "a-new-key-of-more-than-thirty-two-characters";
const OLD: &str = "an-old-key-of-more-than-thirty-two-characters";

/// Replicas, and the store as somebody else sees it.
struct Stage {
    store: MemoryStore,
    folder: TempDir,
}

impl Stage {
    fn new() -> Self {
        Self { store: MemoryStore::new(Arc::new(SystemClock)), folder: TempDir::new().unwrap() }
    }

    /// A replica with these keys. Its file has its name.
    fn replica(&self, name: &str, keys: &str) -> KeyedStore<MemoryStore> {
        let file = self.file(name);
        fs::write(&file, keys).unwrap();
        let source = KeySource::new("gateway", SecretRef::File(file), &BaseDir::default());
        KeyedStore::new(self.store.clone(), Some(source), None)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// All that the store holds, as it is there.
    async fn raw(&self) -> Vec<(RecordKey, Record)> {
        self.store.page(&self.store.epoch(), 0).await.unwrap().records
    }
}

fn request(replica: &str, epoch: Option<&str>, version: u64) -> SyncRequest {
    SyncRequest {
        replica: replica.to_owned(),
        epoch: epoch.map(str::to_owned),
        version,
        invalidation: 0,
        highest: 0,
        copy: super::super::CopyState::Empty,
        live_then: 1,
        has_offered: epoch.is_some(),
        is_serving: false,
        is_current: true,
        suspects: false,
    }
}

/// Begins an epoch, and waits until it is recovered.
async fn recovered(store: &impl Store) -> String {
    let epoch = store.sync(&request("a", None, 0)).await.unwrap().epoch;
    while store.sync(&request("a", Some(&epoch), 0)).await.unwrap().is_recovering {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    epoch
}

async fn put(store: &impl Store, key: RecordKey, version: u64, field: Field, content: Option<&'static str>) -> u64 {
    let content = content.map(|content| Bytes::from_static(content.as_bytes()));
    let commit = Commit {
        lease: None,
        expected: vec![(key, version)],
        invalidation: 0,
        writes: vec![Write { key, field, content }],
    };
    let Committed::Stored(version) = store.commit(&store_epoch(store).await, &commit).await.unwrap() else {
        panic!("a conflict")
    };
    version
}

async fn store_epoch(store: &impl Store) -> String {
    store.sync(&request("reader", None, u64::MAX)).await.unwrap().epoch
}

/// What a replica reads of the record under `key`.
async fn read(store: &impl Store, key: RecordKey) -> Option<Record> {
    let epoch = store_epoch(store).await;
    let reply = store.sync(&request("a", Some(&epoch), 0)).await.unwrap();
    reply.changed.into_iter().find(|(of, _)| *of == key).map(|(_, record)| record)
}

fn is_unreadable(record: &Record) -> bool {
    record.get(Field::Answer) == Some(&Bytes::new()) && record.get(Field::Held).is_none()
}

/// Writes `fields` into the record under `key`, without any key.
async fn forge(stage: &Stage, key: RecordKey, fields: &[(Field, Option<Bytes>)]) {
    let epoch = stage.store.epoch();
    let version = stage.raw().await.iter().find(|(of, _)| *of == key).map_or(0, |(_, record)| record.version);
    let write = |(field, content): &(Field, Option<Bytes>)| Write { key, field: *field, content: content.clone() };
    let writes = fields.iter().map(write).collect();
    let commit = Commit { lease: None, expected: vec![(key, version)], invalidation: 0, writes };
    assert!(matches!(stage.store.commit(&epoch, &commit).await, Ok(Committed::Stored(_))));
}

#[tokio::test(start_paused = true)]
async fn replicas_with_one_key_read_what_each_wrote() {
    let stage = Stage::new();
    let (a, b) = (stage.replica("a", NEW), stage.replica("b", NEW));
    let epoch = recovered(&a).await;
    let version = put(&a, KEY, 0, Field::Answer, Some("answer")).await;
    put(&b, KEY, version, Field::Held, Some("held")).await;
    let record = read(&b, KEY).await.unwrap();
    assert_eq!(record.get(Field::Answer), Some(&Bytes::from_static(b"answer")));
    assert_eq!(record.get(Field::Held), Some(&Bytes::from_static(b"held")));
    // A field that a replica removes is gone, for all.
    put(&a, KEY, record.version, Field::Held, None).await;
    for store in [&a, &b] {
        let record = read(store, KEY).await.unwrap();
        assert_eq!((record.get(Field::Answer).is_some(), record.get(Field::Held)), (true, None));
    }
    b.register(&epoch, &[("previews".to_owned(), Bytes::from_static(b"revision"))]).await.unwrap();
    b.invalidate(&epoch, Bytes::from_static(b"selector")).await.unwrap();
    b.note("list", &[("name".to_owned(), "value".to_owned())], Duration::from_secs(1)).await.unwrap();
    let reply = a.sync(&request("a", Some(&epoch), 0)).await.unwrap();
    assert_eq!(reply.revisions, [("previews".to_owned(), Bytes::from_static(b"revision"))]);
    assert_eq!(reply.invalidations, [(1, Bytes::from_static(b"selector"))]);
    assert_eq!(a.notes("list").await.unwrap(), [("name".to_owned(), "value".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn what_no_replica_made_cannot_be_read() {
    let stage = Stage::new();
    let replica = stage.replica("a", NEW);
    let epoch = recovered(&replica).await;
    let first = put(&replica, KEY, 0, Field::Answer, Some("3 sets")).await;
    let old = stage.raw().await[0].1.clone();
    put(&replica, OTHER, 0, Field::Answer, Some("another question")).await;
    put(&replica, KEY, first, Field::Held, Some("rejected")).await;
    put(&replica, KEY, first + 2, Field::Answer, Some("5 sets")).await;
    let good: Vec<(RecordKey, Record)> = stage.raw().await;
    let of =
        |key: RecordKey, field| good.iter().find(|(other, _)| *other == key).and_then(|(_, it)| it.get(field)).cloned();
    let (answer, held) = (of(KEY, Field::Answer), of(KEY, Field::Held));
    assert!(!is_unreadable(&read(&replica, KEY).await.unwrap()));
    for (what, field, content) in [
        ("invented", Field::Answer, Some(Bytes::from_static(b"0 sets"))),
        ("of another question", Field::Answer, of(OTHER, Field::Answer)),
        ("another field of it", Field::Answer, held.clone()),
        ("an earlier one", Field::Answer, old.get(Field::Answer).cloned()),
        ("removed", Field::Answer, None),
        ("a decision that is removed", Field::Held, None),
    ] {
        forge(&stage, KEY, &[(field, content)]).await;
        assert!(is_unreadable(&read(&replica, KEY).await.unwrap()), "{what}");
        // Put right again, it is read again.
        forge(&stage, KEY, &[(Field::Answer, answer.clone()), (Field::Held, held.clone())]).await;
        assert_eq!(
            read(&replica, KEY).await.unwrap().get(Field::Held),
            Some(&Bytes::from_static(b"rejected")),
            "{what}"
        );
    }
    // A reason not to ask a source is only dropped.
    forge(&stage, KEY, &[(Field::Failure, Some(Bytes::from_static(b"never again")))]).await;
    let record = read(&replica, KEY).await.unwrap();
    assert_eq!((record.get(Field::Failure), is_unreadable(&record)), (None, false));
    // The other kinds: a revision that nobody has, an invalidation with an unknown selector, a request for a refresh.
    stage.store.register(&epoch, &[("previews".to_owned(), Bytes::from_static(b"forged"))]).await.unwrap();
    stage.store.invalidate(&epoch, Bytes::from_static(b"forged")).await.unwrap();
    stage.store.note("list", &[("name".to_owned(), "forged".to_owned())], Duration::ZERO).await.unwrap();
    let reply = replica.sync(&request("a", Some(&epoch), 0)).await.unwrap();
    assert_eq!((reply.revisions, reply.invalidations), (Vec::new(), vec![(1, Bytes::new())]));
    assert_eq!(replica.notes("list").await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_replica_with_a_wrong_key_or_none_has_no_contact() {
    let stage = Stage::new();
    let right = stage.replica("right", NEW);
    recovered(&right).await;
    put(&right, KEY, 0, Field::Answer, Some("answer")).await;
    let without = KeyedStore::new(stage.store.clone(), None, None);
    for (wrong, says) in [(&stage.replica("wrong", OLD), "(here: "), (&without, "(this replica has none)")] {
        let error = wrong.sync(&request("wrong", None, 0)).await.unwrap_err().to_string();
        assert!(error.contains("is not in `cache.shared.key`") && error.contains(says), "{error}");
        assert!(!error.contains(NEW) && !error.contains(OLD), "{error}");
    }
    // It has changed nothing for the others.
    tokio::time::advance(COMPARE_EVERY).await;
    assert!(!is_unreadable(&read(&right, KEY).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn the_key_is_changed_without_a_pause() {
    let stage = Stage::new();
    let (a, b) = (stage.replica("a", OLD), stage.replica("b", OLD));
    let epoch = recovered(&a).await;
    put(&a, KEY, 0, Field::Answer, Some("answer")).await;
    put(&a, OTHER, 0, Field::Baseline, Some("baseline")).await;
    let versions: Vec<u64> = stage.raw().await.iter().map(|(_, record)| record.version).collect();
    // One replica after the other gets the new key: first as another one, then as the first, then alone.
    for keys in [format!("{OLD}\n{NEW}\n"), format!("{NEW}\n{OLD}\n"), NEW.to_owned()] {
        for (replica, name) in [(&a, "a"), (&b, "b")] {
            fs::write(stage.file(name), &keys).unwrap();
            tokio::time::advance(COMPARE_EVERY).await;
            for (store, at) in [(&a, 1), (&b, 2)] {
                for key in [KEY, OTHER] {
                    let record = read(store, key).await.unwrap();
                    assert!(!is_unreadable(&record), "{name} has {keys:?}, read by replica {at}");
                }
            }
            replica.sync(&request(name, Some(&epoch), 0)).await.unwrap();
        }
        // Records that the earlier key made are looked for again after a minute.
        tokio::time::advance(Duration::from_mins(1)).await;
        for (replica, name) in [(&a, "a"), (&b, "b")] {
            replica.sync(&request(name, Some(&epoch), 0)).await.unwrap();
        }
    }
    let after: Vec<u64> = stage.raw().await.iter().map(|(_, record)| record.version).collect();
    assert_eq!(after, versions, "no replica has to read a record again");
    // A file that is spoiled later does no harm.
    fs::write(stage.file("a"), "short").unwrap();
    tokio::time::advance(COMPARE_EVERY).await;
    assert!(!is_unreadable(&read(&a, KEY).await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn without_a_readable_key_there_is_no_contact() {
    let stage = Stage::new();
    let replica = stage.replica("a", "short");
    let error = replica.sync(&request("a", None, 0)).await.unwrap_err().to_string();
    assert!(error.contains("line 1 is too short for a key"), "{error}");
    fs::write(stage.file("a"), NEW).unwrap();
    assert!(replica.sync(&request("a", None, 0)).await.is_ok());
}
