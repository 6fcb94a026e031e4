mod journal;
mod long;

use std::path::Path;

use serde_json::json;

use super::{kind::Change, *};
use crate::cache::{Encoded, Life, MadeUnder, PackedQuestion, Revision};
use domain::{
    clock::{SystemClock, Timestamp},
    generator::{BackendNote, Evidence, ParameterSet, Parameters, Question},
};

fn entry(text: &str) -> Entry {
    let set = ParameterSet(json!({ "a": text }).as_object().unwrap().clone());
    Entry {
        encoded: Encoded::encode(&[set]).unwrap(),
        question: PackedQuestion::from(&Question {
            route: "r".into(),
            application_set: None,
            parameters: Arc::default(),
            part: None,
        }),
        made_under: MadeUnder { revision: Revision::of(&json!({})), trust: 7 },
        stored_at: Timestamp(1_700_000_000_000),
        queried_at: Timestamp(1_700_000_000_000),
        first_at: Timestamp(1_700_000_000_000),
        run_number: 7,
        life: Life::For(Duration::from_mins(1)),
        took: Duration::from_micros(7),
        evidence: vec![Evidence::absent("a", "b").of("c")],
        last_served: super::super::LastServed::default(),
        elements: None,
        note: BackendNote::of(&serde_json::json!({"n": 1})),
    }
}

/// A new folder, and the path of a store in it. Dropping the folder removes it.
fn new_store_path() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.redb");
    (folder, path)
}

/// The key with this number, of one route.
fn key(n: u8) -> Key {
    of_route(0, n)
}

fn of_route(route: u8, n: u8) -> Key {
    let mut bytes = [n; 32];
    bytes[24..].fill(route);
    Key::of_bytes(bytes)
}

/// A size of the files for exactly so many answers of [`LONG`].
fn limited_to(answers: u64) -> u64 {
    // Each takes one page.
    (answers * 4096).div_ceil(3) * 8
}

/// The length of an answer's text.
const LONG: usize = 2000;

fn metrics() -> DiskMetrics {
    let counter = || prometheus::IntCounter::new("n", "n").unwrap();
    DiskMetrics { writes: counter(), errors: counter(), lost: counter() }
}

fn try_open(path: &Path, max_bytes: u64) -> Result<Disk, Trouble> {
    Disk::open(&Place::of(path), ByteSize(max_bytes), metrics(), &(Arc::new(SystemClock) as Arc<dyn Clock>))
}

fn open(path: &Path, max_bytes: u64) -> Disk {
    try_open(path, max_bytes).unwrap()
}

/// Waits until the file can be opened again: its writer ends in its own time.
fn close(disk: Disk, path: &Path) {
    disk.flush(Duration::from_secs(10));
    drop(disk);
    while matches!(Journal::open(&Place::of(path)), Err(Trouble::Locked(_))) {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn records_survive_a_restart() {
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
    assert!(try_open(&path, 1).unwrap_err().to_string().contains("another process"));
}

#[test]
fn the_size_is_bounded_and_the_oldest_records_are_evicted() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, limited_to(4));
    for n in 0..20 {
        disk.put(key(n), &entry(&"x".repeat(LONG)));
        disk.flush(Duration::from_secs(10));
    }
    let there: Vec<u8> = (0..20).filter(|n| disk.get(&key(*n)).is_ok()).collect();
    assert_eq!(there, [16, 17, 18, 19]);
    close(disk, &path);
    let disk = open(&path, limited_to(3));
    disk.put(key(30), &entry(&"x".repeat(LONG)));
    disk.flush(Duration::from_secs(10));
    let there: Vec<u8> = (0..31).filter(|n| disk.get(&key(*n)).is_ok_and(|found| found.is_some())).collect();
    assert_eq!(there, [18, 19, 30]);
}

#[test]
fn a_used_record_is_not_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let disk = open(&folder.path().join("answers.redb"), limited_to(4));
    for n in 0..20 {
        disk.put(key(n), &entry(&"x".repeat(LONG)));
        disk.used(key(0));
        disk.flush(Duration::from_secs(10));
    }
    let there: Vec<u8> = (0..20).filter(|n| disk.get(&key(*n)).is_ok()).collect();
    assert_eq!(there, [0, 17, 18, 19]);
}

#[test]
fn a_route_pushes_nothing_of_another_out_of_the_file() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, limited_to(40));
    let put = |key: Key| {
        disk.put(key, &entry(&"x".repeat(LONG)));
        disk.put_baseline(key, &"sets");
    };
    (0..5).for_each(|n| put(of_route(1, n)));
    for round in 0..10 {
        (0..250).for_each(|n| put(Key::of_bytes([&[n, round][..], &[2; 30]].concat().try_into().unwrap())));
    }
    disk.flush(Duration::from_secs(10));
    let route = of_route(1, 0).route();
    let lost = disk.metrics.lost.get();
    assert!(lost > 2000, "{lost}");
    assert!((0..5).all(|n| body(&disk, &of_route(1, n)).is_some()));
    assert!(
        (0..250).all(|n| disk.get(&of_route(3, n)).unwrap().is_none()),
        "and no mark of loss counts for another route"
    );
    assert_eq!((disk.usage(route).0.records, disk.marks(route).0.records), (10, 0));
    close(disk, &path);
    let disk = open(&path, limited_to(40));
    assert!((0..5).all(|n| body(&disk, &of_route(1, n)).is_some()));
    assert_eq!(disk.baseline::<String>(&of_route(1, 0)).unwrap().as_deref(), Some("sets"));
}

/// What all files at `path` take, in bytes.
fn all_files(path: &Path) -> u64 {
    let files = std::fs::read_dir(path.parent().unwrap()).unwrap();
    files.map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn the_files_stay_within_their_limit_and_a_file_of_before_is_compacted() {
    const MIB: u64 = 1 << 20;
    let (_folder, path) = new_store_path();
    let disk = open(&path, 64 * MIB);
    let decision = "an operator rejected it";
    disk.hold(key(0), Some(&decision));
    // More than twice the limit, and most of it baselines.
    let numbers: Vec<u64> = (0..1000).collect();
    for n in 0..12_000_u32 {
        let mut bytes = [7; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        bytes[..8].rotate_left(usize::try_from(n % 8).unwrap());
        disk.put_baseline(Key::of_bytes(bytes), &numbers);
        if n % 4 == 0 {
            disk.put(Key::of_bytes(bytes), &entry(&"x".repeat(LONG)));
        }
        if n % 500 == 0 {
            disk.flush(Duration::from_secs(30));
        }
    }
    disk.flush(Duration::from_secs(30));
    let large = all_files(&path);
    assert!((16 * MIB..64 * MIB).contains(&large), "{large}");
    close(disk, &path);
    let disk = open(&path, 16 * MIB);
    disk.flush(Duration::from_secs(30));
    let small = all_files(&path);
    assert!(small <= 16 * MIB, "{small}");
    assert_eq!(disk.held::<String>(), [(key(0), decision.to_owned())]);
}

#[test]
fn expired_and_held_records_survive_a_restart() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, 1 << 20);
    let asking = |branch: &str| {
        let parameters: Parameters = json!({ "branch": branch }).as_object().unwrap().clone();
        let entry = entry(branch);
        let question = Question { parameters: Arc::new(parameters.clone()), ..entry.question.open() };
        let question = PackedQuestion::from(&question);
        (Entry { question, ..entry }, Selector { parameters, ..Selector::default() })
    };
    let ((x, select_x), (y, _), (z, select_z)) = (asking("x"), asking("y"), asking("z"));
    disk.put(key(1), &x);
    disk.put(key(2), &y);
    disk.put(key(5), &z);
    disk.hold(key(3), Some(&"why"));
    disk.hold(key(4), Some(&"gone"));
    disk.hold::<&str>(key(4), None);
    let mut expired: Vec<Key> = disk.expire(vec![select_x, select_z]).into_iter().map(|(key, _)| key).collect();
    expired.sort_unstable();
    let mut selected = [key(1), key(5)];
    selected.sort_unstable();
    assert_eq!(expired, selected);
    close(disk, &path);
    let disk = open(&path, 1 << 20);
    let lives = [1, 2, 5].map(|n| disk.get(&key(n)).unwrap().unwrap().life);
    assert_eq!(lives, [Life::For(Duration::ZERO), Life::Restored, Life::For(Duration::ZERO)]);
    assert_eq!(disk.held::<String>(), [(key(3), "why".to_owned())]);
    assert_eq!(disk.list().len(), 3);
}

#[test]
fn a_damaged_record_counts_as_missing() {
    let mut record = encode(&entry("x")).unwrap();
    record::seal(&mut record, 5);
    assert!(decode(&record).is_some() && record::stamp(&record) == Some(5));
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
    // A damaged file, unlike a new one, may have held records.
    for damage in [b"not a database".to_vec(), vec![0; 100_000]] {
        let (folder, path) = new_store_path();
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

fn body(disk: &Disk, key: &Key) -> Option<Vec<u8>> {
    disk.get(key).unwrap().map(|entry| entry.encoded.body().to_vec())
}

#[test]
fn an_evicted_record_is_lost_and_a_record_that_never_was_is_not() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, limited_to(4));
    for n in 0..20 {
        disk.put(key(n), &entry(&"x".repeat(LONG)));
        disk.flush(Duration::from_secs(10));
    }
    close(disk, &path);
    for _ in 0..2 {
        let disk = open(&path, limited_to(4));
        assert!((0..16).all(|n| disk.get(&key(n)).is_err()) && (16..20).all(|n| body(&disk, &key(n)).is_some()));
        assert!((20..250).all(|n| disk.get(&key(n)).unwrap().is_none()));
        close(disk, &path);
    }
}

#[test]
fn baselines_unused_for_90_days_are_removed_at_a_start() {
    #[derive(Debug)]
    struct Fixed(u64);
    impl Clock for Fixed {
        fn now(&self) -> Timestamp {
            Timestamp(self.0)
        }
    }
    const DAY: u64 = 86_400_000;
    let (_folder, path) = new_store_path();
    let day = |day: u64| Arc::new(Fixed(1_700_000_000_000 + day * DAY)) as Arc<dyn Clock>;
    let start = |clock| {
        let disk = Disk::open(&Place::of(&path), ByteSize(1 << 20), metrics(), &clock).unwrap();
        disk.flush(Duration::from_secs(10));
        disk
    };
    let known = |disk: &Disk, n| disk.baseline::<u64>(&key(n)).unwrap();
    for (at, n) in [(0, 1), (20, 2), (100, 3)] {
        let disk = start(day(at));
        disk.put_baseline(key(n), &n);
        close(disk, &path);
    }
    // The time while the gateway was off does not count.
    let disk = start(day(1000));
    assert_eq!([1, 2, 3].map(|n| known(&disk, n)), [None, Some(2), Some(3)]);
}
