//! The disk of a machine, below the files of the cache: it fills up, fails, and loses at a power cut what was not synced.

use std::{collections::BTreeMap, fs::File, io, os::unix::fs::FileExt as _, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;

use engine::cache::{Disk, Medium, Operation, Part};

/// How long an order to a thread that writes may take in real time.
pub const WRITTEN_WITHIN: Duration = Duration::from_mins(1);

/// The state of a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DiskState {
    /// It writes.
    #[default]
    Works,
    /// It is full. What is overwritten in place needs no space: the marks of loss.
    Full,
    /// It writes nothing.
    Fails,
}

/// A disk.
#[derive(Debug, Default)]
pub struct SimulatedDisk(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: DiskState,
    /// Whether a write has failed.
    has_failed: bool,
    /// Whether a mark of loss could not be written, and none was written since.
    is_behind: bool,
    /// What a power cut may lose, by file.
    unsynced: BTreeMap<Part, Vec<Unsynced>>,
}

/// A change that is not synced.
#[derive(Debug, Clone)]
struct Unsynced {
    /// The length before.
    length: u64,
    /// Where it begins, and the bytes that were there before.
    at: u64,
    before: Vec<u8>,
    /// The bytes that were written; `None`: the file ends at `at`.
    after: Option<Vec<u8>>,
}

impl SimulatedDisk {
    /// The disk for the next process, with the same state. What the process before still does is done to the other one.
    #[must_use]
    pub fn next(&self) -> Self {
        Self(Mutex::new(Inner { state: self.0.lock().state, ..Inner::default() }))
    }

    /// Its state.
    pub fn state(&self) -> DiskState {
        self.0.lock().state
    }

    /// Sets its state.
    pub fn set_state(&self, state: DiskState) {
        self.0.lock().state = state;
    }

    /// Whether a write of the process has failed.
    pub fn has_failed(&self) -> bool {
        self.0.lock().has_failed
    }

    /// Whether something is lost without a mark: if the process ended now, nobody could know what was there.
    pub fn is_behind(&self) -> bool {
        self.0.lock().is_behind
    }

    /// What a power cut does to the `file` of a part: of the changes since the last sync, any may be there or not.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn cut_power(&self, part: Part, file: &File, dice: &mut Rng) -> io::Result<()> {
        let changes = self.0.lock().unsynced.remove(&part).unwrap_or_default();
        for change in changes.iter().rev() {
            file.write_all_at(&change.before, change.at)?;
            file.set_len(change.length)?;
        }
        for change in changes.iter().filter(|_| dice.bool()) {
            match &change.after {
                Some(bytes) => file.write_all_at(bytes, change.at)?,
                None => file.set_len(change.at)?,
            }
        }
        Ok(())
    }
}

impl Medium for SimulatedDisk {
    fn before(&self, part: Part, file: &File, operation: Operation<'_>) -> io::Result<()> {
        let mut inner = self.0.lock();
        let shrinks = matches!(operation, Operation::SetLen(to) if to <= file.metadata()?.len());
        match (inner.state, part) {
            (DiskState::Works, _) | (DiskState::Full, Part::Marks) => {}
            // A full disk can still be emptied, and the database needs new pages for each commit.
            (DiskState::Full, Part::Journal | Part::SecondJournal) if shrinks => {}
            (DiskState::Full, _) => {
                inner.has_failed = true;
                if part != Part::Database
                    && let Operation::Write(at, bytes) = operation
                {
                    // The last free bytes.
                    file.write_all_at(&bytes[..bytes.len() / 2], at)?;
                }
                return Err(io::ErrorKind::StorageFull.into());
            }
            (DiskState::Fails, _) => {
                inner.has_failed = true;
                inner.is_behind |= part == Part::Marks;
                return Err(io::Error::other("input/output error"));
            }
        }
        inner.is_behind &= part != Part::Marks;
        let length = file.metadata()?.len();
        let unsynced = inner.unsynced.entry(part).or_default();
        let (at, until, after) = match operation {
            Operation::Sync => {
                unsynced.clear();
                return Ok(());
            }
            Operation::Write(at, bytes) => (at, at + bytes.len() as u64, Some(bytes.to_vec())),
            Operation::SetLen(to) => (to, length, None),
        };
        if after.is_none() && at == 0 {
            // An emptied segment of the journal. What was in it before is not of interest for long.
            unsynced.clear();
        }
        let mut before = vec![0; usize::try_from(until.min(length).saturating_sub(at)).unwrap_or_default()];
        file.read_exact_at(&mut before, at)?;
        unsynced.push(Unsynced { length, at, before, after });
        Ok(())
    }
}

/// The threads that write to disks that fail now. Simulated time waits for them, so that it follows from the seed which change fails.
#[derive(Debug, Default)]
pub struct Writers(Mutex<BTreeMap<usize, Disk>>);

impl Writers {
    /// Waits for `disk` of a machine from now on, or for none.
    pub fn set(&self, machine: usize, disk: Option<&Disk>) {
        let mut writers = self.0.lock();
        match disk {
            Some(disk) => _ = writers.insert(machine, disk.clone()),
            None => _ = writers.remove(&machine),
        }
    }

    /// Waits until all that was ordered is done.
    pub fn settle(&self) {
        self.0.lock().values().for_each(|disk| disk.flush(WRITTEN_WITHIN));
    }
}
