use std::{
    fs::File,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

use super::*;
use crate::cache::disk::medium::{Medium, Operation, beside};

struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

const START: u64 = 1_700_000_000_000;
const DAY: u64 = 24 * 60 * 60 * 1000;

struct Setup {
    folder: tempfile::TempDir,
    clock: Arc<TestClock>,
}

impl Setup {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Arc::new(TestClock(AtomicU64::new(START))) }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("answers.redb.lost")
    }

    fn make(&self) -> Marks {
        Marks::make(&Place::of(&self.path()), Arc::clone(&self.clock) as Arc<dyn Clock>, 0, false).unwrap()
    }

    fn read(&self) -> Result<Marks, Absent> {
        Marks::read(&Place::of(&self.path()), Arc::clone(&self.clock) as Arc<dyn Clock>, 0).unwrap()
    }

    fn set_clock(&self, to: u64) {
        self.clock.0.store(to, Ordering::Relaxed);
    }
}

/// The key with this number, of this route.
fn key(route: u8, n: u16) -> Key {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&n.to_le_bytes());
    bytes[24] = route;
    Key::of_bytes(bytes)
}

const A: RecordKind = RecordKind::Answer;

#[test]
fn a_record_is_lost_until_a_later_one_is_written() {
    let setup = Setup::new();
    let marks = setup.make();
    let (old, other) = (marks.next(), marks.next());
    assert!(!marks.is_lost(A, &key(1, 1), Some(old)) && !marks.is_lost(A, &key(1, 1), None));
    marks.set(A, &key(1, 1), true).unwrap();
    let new = marks.next();
    for marks in [marks, setup.read().unwrap()] {
        assert!(marks.is_lost(A, &key(1, 1), Some(old)) && marks.is_lost(A, &key(1, 1), None));
        assert!(!marks.is_lost(A, &key(1, 1), Some(new)));
        assert!(!marks.is_lost(A, &key(1, 2), Some(other)), "another key");
        assert!(!marks.is_lost(RecordKind::Held, &key(1, 1), None), "another kind");
        assert!(marks.next() > new || setup.read().is_ok(), "stamps go on");
    }
}

#[test]
fn a_record_that_had_to_leave_is_lost_only_while_it_is_missing() {
    let setup = Setup::new();
    let marks = setup.make();
    let old = marks.next();
    marks.set(A, &key(1, 1), false).unwrap();
    assert!(marks.is_lost(A, &key(1, 1), None));
    assert!(!marks.is_lost(A, &key(1, 1), Some(old)), "it was the last one");
}

#[test]
fn a_mark_holds_for_a_week_and_against_an_older_record_for_good() {
    let setup = Setup::new();
    let marks = setup.make();
    let old = marks.next();
    marks.set(A, &key(1, 1), true).unwrap();
    setup.set_clock(START + 7 * DAY - 1000);
    assert!(marks.is_lost(A, &key(1, 1), None));
    setup.set_clock(START + 7 * DAY + 1000);
    assert!(!marks.is_lost(A, &key(1, 1), None));
    assert!(marks.is_lost(A, &key(1, 1), Some(old)), "an outdated record does not come back");
}

#[test]
fn a_clock_that_is_put_back_brings_nothing_back() {
    let setup = Setup::new();
    let marks = setup.make();
    let old = marks.next();
    marks.set(A, &key(1, 1), true).unwrap();
    setup.set_clock(START - 400 * DAY);
    for marks in [marks, setup.read().unwrap()] {
        assert!(marks.is_lost(A, &key(1, 1), Some(old)) && marks.is_lost(A, &key(1, 1), None));
        let new = marks.next();
        assert!(new > old && !marks.is_lost(A, &key(1, 1), Some(new)), "what is written now is known");
        marks.set(A, &key(1, 1), true).unwrap();
        assert!(marks.is_lost(A, &key(1, 1), Some(new)), "and lost again");
    }
}

/// Marks all keys of a route with these numbers.
fn mark(marks: &Marks, route: u8, numbers: std::ops::Range<u16>, is_outdated: bool) {
    numbers.for_each(|n| marks.set(A, &key(route, n), is_outdated).unwrap());
}

#[test]
fn too_many_marks_of_one_route_lose_too_much_of_it_and_nothing_of_another() {
    let setup = Setup::new();
    let marks = setup.make();
    let old = marks.next();
    mark(&marks, 1, 0..100, false);
    mark(&marks, 2, 0..60_000, false);
    mark(&marks, 1, 100..200, false);
    for marks in [marks, setup.read().unwrap()] {
        assert!((0..200).all(|n| marks.is_lost(A, &key(1, n), None)));
        assert!(!(200..60_000).any(|n| marks.is_lost(A, &key(1, n), None)), "the marks of another route");
        assert!((0..60_000).all(|n| marks.is_lost(A, &key(2, n), None)));
        let absent = (60_000..u16::MAX).filter(|n| marks.is_lost(A, &key(2, *n), None)).count();
        assert!((1..2500).contains(&absent), "{absent} of 5535");
        assert!(!marks.is_lost(A, &key(2, 500), Some(old)), "a record that is there is not in doubt");
        assert_eq!(marks.usage(key(1, 0).route()).0.records, 200);
    }
    // A week later slots are free again, where nothing is outdated.
    let marks = setup.read().unwrap();
    setup.set_clock(START + 8 * DAY);
    mark(&marks, 3, 0..50_000, false);
    assert!(marks.is_lost(A, &key(3, 9), None) && !marks.is_lost(A, &key(3, 50_000), None));
}

#[test]
fn what_is_outdated_stays_so_when_marks_are_merged() {
    let setup = Setup::new();
    let marks = setup.make();
    let (old, other) = (marks.next(), marks.next());
    mark(&marks, 1, 0..200, true);
    mark(&marks, 2, 0..u16::MAX, true);
    let new = marks.next();
    for marks in [marks, setup.read().unwrap()] {
        assert!((0..u16::MAX).all(|n| marks.is_lost(A, &key(2, n), Some(old)) && marks.is_lost(A, &key(2, n), None)));
        assert!(!(0..u16::MAX).any(|n| marks.is_lost(A, &key(2, n), Some(new))));
        assert!((0..200).all(|n| marks.is_lost(A, &key(1, n), Some(old))));
        assert!(!(200..u16::MAX).any(|n| marks.is_lost(A, &key(1, n), Some(other))));
    }
}

#[test]
fn as_many_routes_as_slots_lose_everything() {
    let marks = Marks::in_memory(Setup::new().clock);
    let of = |route: u32| {
        let mut bytes = [0; 32];
        bytes[24..28].copy_from_slice(&route.to_le_bytes());
        Key::of_bytes(bytes)
    };
    (0..u32::from(SLOTS)).for_each(|route| marks.set(A, &of(route), false).unwrap());
    assert!(!marks.is_lost(A, &of(u32::MAX), None));
    marks.set(A, &of(u32::from(SLOTS)), false).unwrap();
    assert!(marks.is_lost(A, &of(u32::MAX), None) && marks.is_lost(A, &of(u32::from(SLOTS)), None));
}

#[test]
fn everything_can_be_lost_at_once() {
    let setup = Setup::new();
    let marks = setup.make();
    let old = marks.next();
    marks.set_everything().unwrap();
    let new = marks.next();
    let path = beside(&setup.path(), "-2");
    let made = Marks::make(&Place::of(&path), Arc::clone(&setup.clock) as Arc<dyn Clock>, old, true).unwrap();
    for marks in [marks, setup.read().unwrap(), made] {
        assert!(marks.is_lost(A, &key(9, 9), Some(old)) && marks.is_lost(RecordKind::Held, &key(9, 9), None));
        assert!(!marks.is_lost(A, &key(9, 9), Some(new)) || marks.next() > new);
        assert!(marks.is_finished());
        setup.set_clock(START + 8 * DAY);
        assert!(marks.is_lost(A, &key(9, 9), Some(old)) && !marks.is_lost(A, &key(9, 9), None));
        setup.set_clock(START);
    }
}

#[test]
fn damage_is_reported_or_counts_as_lost() {
    let setup = Setup::new();
    assert!(matches!(setup.read(), Err(Absent::Missing)));
    assert!(!setup.make().is_finished());
    setup.make().finish().unwrap();
    assert!(setup.read().unwrap().is_finished());
    let whole = std::fs::read(setup.path()).unwrap();
    assert_eq!(whole.len(), HEADER + usize::from(SLOTS) * SLOT);
    let mut flipped = whole.clone();
    flipped[9] ^= 1;
    for bytes in [&b""[..], &whole[..1000], &vec![0; whole.len()], &[&whole[..], b"x"].concat(), &flipped] {
        std::fs::write(setup.path(), bytes).unwrap();
        assert!(matches!(setup.read(), Err(Absent::Damaged)));
    }
    // A hole in the slots: nobody knows whose mark was there.
    let mut holed = whole.clone();
    holed[HEADER..HEADER + SLOT].fill(0);
    std::fs::write(setup.path(), &holed).unwrap();
    let marks = setup.read().unwrap();
    assert!(marks.is_lost(A, &key(1, 1), None) && marks.is_lost(A, &key(2, 2), Some(START - 1)));
}

/// A disk that writes and syncs, or does not.
#[derive(Debug, Default)]
struct FailingDisk {
    writes_nothing: AtomicBool,
    syncs_nothing: AtomicBool,
}

impl Medium for FailingDisk {
    fn before(&self, _: Part, _: &File, operation: Operation<'_>) -> io::Result<()> {
        let fails = match operation {
            Operation::Sync => &self.syncs_nothing,
            Operation::Write(..) | Operation::SetLen(_) => &self.writes_nothing,
        };
        if fails.load(Ordering::Relaxed) { Err(io::Error::other("it fails")) } else { Ok(()) }
    }
}

#[test]
fn what_could_not_be_written_or_synced_is_written_and_synced_later() {
    let (setup, disk) = (Setup::new(), Arc::new(FailingDisk::default()));
    let place = Place::of(&setup.path()).on(Arc::clone(&disk) as Arc<dyn Medium>);
    let marks = Marks::make(&place, Arc::clone(&setup.clock) as Arc<dyn Clock>, 0, false).unwrap();
    let (old, lost) = (marks.next(), key(1, 1));
    disk.writes_nothing.store(true, Ordering::Relaxed);
    assert!(marks.set(A, &lost, true).is_err() && marks.sync().is_err());
    assert!(marks.is_lost(A, &lost, Some(old)) && !setup.read().unwrap().is_lost(A, &lost, Some(old)));
    disk.writes_nothing.store(false, Ordering::Relaxed);
    disk.syncs_nothing.store(true, Ordering::Relaxed);
    assert!(marks.sync().is_err() && marks.sync().is_err(), "an error of a sync is not forgotten");
    disk.syncs_nothing.store(false, Ordering::Relaxed);
    marks.sync().unwrap();
    assert!(setup.read().unwrap().is_lost(A, &lost, Some(old)));
    assert!(!setup.read().unwrap().is_lost(A, &key(1, 2), Some(old)));
}
