//! The journal of a gateway that was killed, or that has more to write than its limit.

use super::*;

/// Changes as a gateway that was killed leaves them.
fn leave_in_journal(path: &Path, changes: &[Change]) -> std::path::PathBuf {
    let (mut journal, _) = Journal::open(&Place::of(path)).unwrap();
    for change in changes {
        journal.append(change).unwrap();
    }
    medium::beside(path, ".journal")
}

/// An answer made so many milliseconds from now.
fn answer(n: u8, text: &str, offset: i64) -> Change {
    let stamp = SystemClock.now().0.saturating_add_signed(offset);
    Change::new(RecordKind::Answer, key(n), encode(&entry(text)), stamp)
}

#[test]
fn the_journal_is_replayed_once() {
    let (folder, path) = new_store_path();
    let disk = open(&path, 1 << 20);
    disk.put(key(1), &entry("in the database"));
    disk.put(key(2), &entry("in the database"));
    disk.hold(key(3), Some(&"why"));
    close(disk, &path);
    let removal = Change { record: None, ..Change::new(RecordKind::Held, key(3), None, u64::MAX / 2) };
    leave_in_journal(&path, &[answer(1, "later", 60_000), answer(2, "earlier", -60_000), answer(4, "new", 0), removal]);
    for _ in 0..2 {
        let disk = open(&path, 1 << 20);
        let body = |n| body(&disk, &key(n));
        let expected = |text: &str| Some(entry(text).encoded.body().to_vec());
        assert_eq!((body(1), body(2)), (expected("later"), expected("in the database")));
        assert_eq!((body(4), body(5)), (expected("new"), None));
        assert_eq!(disk.held::<String>(), []);
        assert_eq!((disk.metrics.errors.get(), disk.metrics.writes.get()), (0, 0));
        close(disk, &path);
        assert_eq!(std::fs::metadata(folder.path().join("answers.redb.journal")).unwrap().len(), 0);
    }
}

#[test]
fn records_of_a_damaged_journal_are_lost() {
    let (_folder, path) = new_store_path();
    let disk = open(&path, 1 << 20);
    disk.put(key(1), &entry("x"));
    disk.put(key(2), &entry("x"));
    close(disk, &path);
    // In a record: its key is lost, even though an older record is there.
    let journal = leave_in_journal(&path, &[answer(1, "later", 0), answer(3, "new", 0)]);
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    let disk = open(&path, 1 << 20);
    assert!(disk.get(&key(1)).is_err() && body(&disk, &key(2)).is_some() && body(&disk, &key(3)).is_some());
    assert_eq!((disk.list().len(), disk.metrics.lost.get()), (2, 1));
    // A later answer makes it known again.
    disk.put(key(1), &entry("y"));
    disk.flush(Duration::from_secs(10));
    assert!(body(&disk, &key(1)).is_some());
    close(disk, &path);
    // In a header: any key may be lost.
    let journal = leave_in_journal(&path, &[answer(3, "new", 0), answer(4, "new", 0)]);
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    for errors in [1, 0] {
        let disk = open(&path, 1 << 20);
        assert!((0..9).all(|n| disk.get(&key(n)).is_err()) && disk.list().is_empty());
        assert_eq!(disk.metrics.errors.get(), errors);
        close(disk, &path);
    }
}

#[test]
fn a_record_above_the_limit_of_the_journal_is_lost_until_it_is_written_again() {
    let (folder, path) = new_store_path();
    let disk = open(&path, 1 << 30);
    let large = |n: u8| {
        entry(
            &(0..1 << 15)
                .map(|at: u32| Key::of_bytes([n; 32]).spread(Timestamp(at.into())).to_string())
                .collect::<String>(),
        )
    };
    disk.put(key(30), &entry("old"));
    disk.flush(Duration::from_secs(10));
    // The writer waits for the database.
    disk.file
        .with(|database| {
            let _transaction = database.begin_write()?;
            (0..30).for_each(|n| disk.put(key(n), &large(n)));
            disk.put(key(30), &entry("new"));
            Ok(())
        })
        .unwrap();
    let size = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().len();
    assert!(size("answers.redb.journal") + size("answers.redb.journal-2") < (2 * 8 + 4) << 20);
    disk.flush(Duration::from_secs(30));
    let known: Vec<u8> = (0..30).filter(|n| disk.get(&key(*n)).is_ok()).collect();
    assert!((8..20).contains(&known.len()), "{known:?}");
    assert!(known.iter().all(|n| body(&disk, &key(*n)) == Some(large(*n).encoded.body().to_vec())));
    assert!(disk.get(&key(30)).is_err(), "the older record does not count");
    close(disk, &path);
    let disk = open(&path, 1 << 30);
    assert!((0..30).all(|n| disk.get(&key(n)).is_ok() == known.contains(&n)), "also after a restart");
    disk.put(key(30), &entry("new"));
    disk.flush(Duration::from_secs(10));
    assert!(body(&disk, &key(30)).is_some());
}
