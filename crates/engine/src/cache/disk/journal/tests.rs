use std::path::Path;

use super::*;
use crate::cache::disk::medium::beside;

fn change(n: u8, stamp: u64, has_record: bool) -> Change {
    let draft = has_record.then(|| record::draft(&n, &[n; 100]).unwrap());
    Change::new(RecordKind::Answer, Key::of_bytes([n; 32]), draft, stamp)
}

/// A journal with three changes, and its first segment's bytes.
fn written(path: &Path) -> (Vec<Change>, Vec<u8>) {
    let (mut journal, found) = Journal::open(&Place::of(path)).unwrap();
    assert!(found.changes.is_empty() && !found.is_used);
    let changes = vec![change(1, 10, true), change(2, 11, false), change(3, 12, true)];
    for change in &changes {
        journal.append(change).unwrap();
    }
    (changes, std::fs::read(beside(path, ".journal")).unwrap())
}

#[test]
fn what_was_appended_is_read_back_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.redb");
    let (mut changes, _) = written(&path);
    {
        let (mut journal, found) = Journal::open(&Place::of(&path)).unwrap();
        assert_eq!(found.changes, changes);
        assert!(found.is_used && !found.has_gap && found.damaged.is_empty());
        assert!(matches!(Journal::open(&Place::of(&path)), Err(Trouble::Locked(_))), "one process to a journal");
        journal.length = 1000;
        assert_eq!(journal.switch(), Some(0));
        journal.append(&change(4, 9, true)).unwrap();
    }
    // The second segment may be the older one.
    changes.insert(0, change(4, 9, true));
    let (mut journal, found) = Journal::open(&Place::of(&path)).unwrap();
    assert_eq!(found.changes, changes);
    journal.clear().unwrap();
    drop(journal);
    assert!(!Journal::open(&Place::of(&path)).unwrap().1.is_used);
}

#[test]
fn a_torn_tail_is_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.redb");
    let (changes, bytes) = written(&path);
    let last = bytes.len() - HEADER - changes[2].record.as_ref().unwrap().len();
    for length in last..bytes.len() {
        let mut found = Recovered::default();
        found.read(&bytes[..length]);
        assert!(found.changes == changes[..2] && !found.has_gap && found.damaged.is_empty(), "cut at {length}");
    }
}

#[test]
fn a_flipped_bit_never_passes_for_a_torn_tail() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("answers.redb");
    let (changes, bytes) = written(&path);
    for position in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x10;
        let mut found = Recovered::default();
        found.read(&damaged);
        let is_reported = found.has_gap || found.damaged == [(RecordKind::Answer, found_key(&changes, position))];
        assert!(is_reported, "byte {position}");
        assert!(found.changes.iter().all(|change| changes.contains(change)), "byte {position}");
    }
    let mut found = Recovered::default();
    found.read(&[0; 1000]);
    assert!(found.has_gap, "zeros are no frames");
}

/// The key of the frame with the byte at `position`.
fn found_key(changes: &[Change], position: usize) -> Key {
    let mut end = 0;
    let frame = changes.iter().find(|change| {
        end += HEADER + change.record.as_ref().map_or(0, Vec::len);
        position < end
    });
    frame.unwrap().key
}

#[test]
fn what_waits_is_bounded_until_the_writer_takes_it() {
    let mut journal = Journal::in_memory();
    let large = usize::try_from(BOUND).unwrap();
    assert!(journal.admit(large), "one record may be as large as it is");
    assert!(!journal.admit(1));
    assert_eq!(journal.switch(), None, "nothing was appended");
    assert!(journal.admit(1));
}
