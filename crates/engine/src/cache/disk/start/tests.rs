use redb::WriteTransaction;

use super::*;
use crate::cache::Key;
use domain::clock::SystemClock;

fn metrics() -> DiskMetrics {
    let counter = || prometheus::IntCounter::new("n", "n").unwrap();
    DiskMetrics { writes: counter(), errors: counter(), lost: counter() }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// The parts at `path`, and how many errors were counted.
fn open(path: &Path) -> (Parts, u64) {
    let metrics = metrics();
    let parts = start(&Place::of(path), &clock(), &metrics).unwrap();
    (parts, metrics.errors.get())
}

fn is_lost(parts: &Parts) -> bool {
    parts.marks.is_lost(RecordKind::Answer, &Key::of_bytes([1; 32]), None)
}

fn edit(path: &Path, work: impl FnOnce(&WriteTransaction)) {
    let database = file::open(&Place::of(path)).unwrap();
    let transaction = database.begin_write().unwrap();
    work(&transaction);
    transaction.commit().unwrap();
}

/// A way to find the files at a start, after one that was whole: what is done to them, and whether everything is lost.
type Case = (&'static str, fn(&Path), bool);

const CASES: [Case; 13] = [
    ("nothing", |_| (), false),
    ("no file at all", |path| remove(path, &["", ".lost", ".journal", ".journal-2"]), false),
    ("no database", |path| remove(path, &[""]), true),
    (
        "no database, something in the journal",
        |path| {
            remove(path, &["", ".lost"]);
            std::fs::write(beside(path, ".journal-2"), b"torn").unwrap();
        },
        true,
    ),
    ("an empty database", |path| std::fs::write(path, b"").unwrap(), true),
    (
        "an empty database alone",
        |path| {
            remove(path, &[".lost", ".journal", ".journal-2"]);
            std::fs::write(path, b"").unwrap();
        },
        true,
    ),
    ("a damaged database", |path| std::fs::write(path, b"<html>".repeat(1000)).unwrap(), true),
    ("no marks", |path| remove(path, &[".lost"]), true),
    ("damaged marks", |path| std::fs::write(beside(path, ".lost"), b"<html>").unwrap(), true),
    ("no stamp", |path| edit(path, |transaction| _ = transaction.delete_table(META).unwrap()), true),
    ("a database of an earlier version", |path| edit(path, as_an_earlier_version_wrote_it), true),
    (
        "a database of a version before marks",
        |path| {
            remove(path, &[".lost", ".journal", ".journal-2"]);
            edit(path, |transaction| {
                as_an_earlier_version_wrote_it(transaction);
                transaction.delete_table(META).unwrap();
            });
        },
        true,
    ),
    ("no table of answers", |path| edit(path, |all| _ = all.delete_table(RecordKind::Answer.table()).unwrap()), true),
];

/// With a record whose key does not name its route, and without the number of its form.
fn as_an_earlier_version_wrote_it(transaction: &WriteTransaction) {
    transaction.open_table(META).unwrap().remove(FORM).unwrap();
    let mut record = record::draft(&"head", b"body").unwrap();
    record::seal(&mut record, 7);
    transaction.open_table(RecordKind::Baseline.table()).unwrap().insert(&[1; 32], record.as_slice()).unwrap();
}

fn remove(path: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        std::fs::remove_file(beside(path, suffix)).unwrap();
    }
}

#[test]
fn what_was_lost_is_known_at_every_start() {
    for (name, damage, is_everything_lost) in CASES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.redb");
        let (parts, errors) = open(&path);
        assert!(!is_lost(&parts) && errors == 0, "a first start");
        drop(parts);
        damage(&path);
        // The second start after it remembers, and has nothing new to report.
        for errors in [u64::from(is_everything_lost), 0] {
            let (parts, found) = open(&path);
            assert_eq!((is_lost(&parts), found), (is_everything_lost, errors), "{name}");
        }
    }
}

#[test]
fn a_first_start_that_was_killed_is_still_a_first_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.redb");
    let lost = beside(&path, ".lost");
    // After each step of it.
    std::fs::write(beside(&path, ".journal"), b"").unwrap();
    let make = || Marks::make(&Place::of(&lost), clock(), 0, false).unwrap();
    std::fs::write(beside(&path, ".new"), b"half a databa").unwrap();
    std::fs::write(beside(&lost, ".new"), b"half a file of mar").unwrap();
    drop(make());
    let (parts, errors) = open(&path);
    assert!(!is_lost(&parts) && errors == 0 && parts.marks.is_finished());
    drop(parts);
    drop(make());
    let (parts, errors) = open(&path);
    assert!(!is_lost(&parts) && errors == 0, "with its stamp");
    drop(parts);
    remove(&path, &[""]);
    drop(make());
    drop(file::make(&Place::of(&path)).unwrap());
    let (parts, errors) = open(&path);
    assert!(!is_lost(&parts) && errors == 0, "without its stamp");
}

/// Whoever may write in the folder could otherwise keep the gateway from starting, without an error.
#[test]
fn a_pipe_in_the_place_of_a_file_is_an_error() {
    for suffix in [".lost", ".journal", ".journal-2"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("answers.redb");
        drop(open(&path));
        remove(&path, &[suffix]);
        nix::unistd::mkfifo(&beside(&path, suffix), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let Err(trouble) = start(&Place::of(&path), &clock(), &metrics()) else { panic!("{suffix}") };
        assert!(format!("{trouble:?}").contains("it is not a regular file"), "{suffix}: {trouble:?}");
    }
}
