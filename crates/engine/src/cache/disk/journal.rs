//! The journal holds the changes that are not in the database yet. A change is appended with one system call before its
//! answer is sent, without waiting for the disk, so it survives the end of the process (`kill -9`, out of memory).
//! After a power cut the last changes may be missing.
//!
//! There are two segments, `<path>.journal` and `<path>.journal-2`. Changes are appended to one of them. When the writer begins a
//! transaction, it switches to the other segment. When the transaction is committed, it empties the first one. So no answer waits for a
//! commit, and the two hold at most twice [`Limits::journal`](super::sizes::Limits) bytes and two records. A segment is a row of frames:
//!
//! `version 2 (1 byte) | kind (1) | length of the record (4) | stamp (8) | key (32) | SHA-256 of these (8) | record`
//!
//! Numbers are little endian. A length of 0 is a removal. The record brings its own checksum. The lock on the first segment shows that a
//! process uses the file. Both segments are empty after an orderly end.

use std::{
    fs::{OpenOptions, TryLockError},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    sync::Arc,
};

use crate::cache::{
    Key,
    disk::{
        file::Trouble,
        kind::{Change, RecordKind},
        medium::{Handle, Part, Place},
        record,
    },
};

/// How many bytes may wait for the writer, unless [`Journal::limit`] is smaller.
const BOUND: u64 = 8 * 1024 * 1024;
/// The overhead of each waiting change, in bytes, besides its record.
const EACH: u64 = 96;
/// The first part of a frame, without and with its checksum.
const SUMMED: usize = 46;
const HEADER: usize = SUMMED + 8;
/// It changed when keys began to name their route: an earlier journal counts as damaged, so that everything is lost.
const VERSION: u8 = 2;

/// The two segments, and where the next frame goes.
#[derive(Debug)]
pub(super) struct Journal {
    segments: Arc<[Handle; 2]>,
    active: usize,
    /// How long the active segment is, in bytes.
    length: u64,
    /// How many bytes wait for the writer.
    waiting: u64,
    /// How many may wait. A record beyond that is not stored, and is marked as lost.
    bound: u64,
    frame: Vec<u8>,
}

/// The content of the segments at the start.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    /// All changes, in the order in which they were made.
    pub changes: Vec<Change>,
    /// The changes whose record is damaged.
    pub damaged: Vec<(RecordKind, Key)>,
    /// Whether a part is damaged so that its keys are unknown.
    pub(crate) has_gap: bool,
    /// Whether the journal held anything.
    pub is_used: bool,
}

impl Journal {
    /// Opens or creates the segments beside `place`, locks them, and reads them.
    ///
    /// # Errors
    /// When another process uses them, or they cannot be read.
    pub(super) fn open(place: &Place) -> Result<(Self, Recovered), Trouble> {
        let segments =
            [open(&place.beside(".journal"), Part::Journal)?, open(&place.beside(".journal-2"), Part::SecondJournal)?];
        segments[0].file().try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Trouble::Locked("another process uses its journal".to_owned()),
            TryLockError::Error(error) => Trouble::Other(format!("its journal cannot be locked: {error}")),
        })?;
        let mut recovered = Recovered::default();
        for segment in &segments {
            let mut bytes = Vec::new();
            segment
                .file()
                .read_to_end(&mut bytes)
                .map_err(|error| Trouble::Other(format!("its journal cannot be read: {error}")))?;
            recovered.read(&bytes);
        }
        recovered.changes.sort_by_key(|change| change.stamp);
        Ok((Self::of(segments), recovered))
    }

    /// A journal in files without a name.
    #[cfg(test)]
    pub(super) fn in_memory() -> Self {
        let place = Place::of(std::path::Path::new(""));
        Self::of([Part::Journal, Part::SecondJournal].map(|part| place.handle(part, tempfile::tempfile().unwrap())))
    }

    fn of(segments: [Handle; 2]) -> Self {
        Self { segments: Arc::new(segments), active: 0, length: 0, waiting: 0, bound: BOUND, frame: Vec::new() }
    }

    /// Lets so many bytes wait for the writer.
    pub(super) fn limit(&mut self, bytes: u64) {
        self.bound = bytes;
    }

    /// The segments, for emptying them without a lock on the journal.
    pub(super) fn segments(&self) -> Arc<[Handle; 2]> {
        Arc::clone(&self.segments)
    }

    /// Whether one more order of so many bytes may wait for the writer. If so, it counts as waiting.
    pub(super) fn admit(&mut self, bytes: usize) -> bool {
        let fits = self.waiting < self.bound;
        if fits {
            self.waiting += EACH + bytes as u64;
        }
        fits
    }

    /// Appends `change`. A partly written frame is removed again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn append(&mut self, change: &Change) -> io::Result<()> {
        let record = change.record.as_deref().unwrap_or_default();
        let length = u32::try_from(record.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.frame.clear();
        self.frame.extend_from_slice(&[VERSION, change.kind.number()]);
        self.frame.extend_from_slice(&length.to_le_bytes());
        self.frame.extend_from_slice(&change.stamp.to_le_bytes());
        self.frame.extend_from_slice(change.key.as_bytes());
        let sum = record::checksum(&self.frame);
        self.frame.extend_from_slice(&sum);
        self.frame.extend_from_slice(record);
        let segment = &self.segments[self.active];
        let written = segment.write_all_at(&self.frame, self.length);
        if written.is_ok() {
            self.length += self.frame.len() as u64;
        } else {
            // If this fails too, the next frame overwrites the partial one.
            let _ = segment.truncate(self.length);
        }
        // A large answer must not keep its memory for good.
        self.frame.shrink_to(1 << 20);
        written
    }

    /// Switches to the other segment, which must be empty. Returns the segment to empty once all its changes are committed.
    pub(super) fn switch(&mut self) -> Option<usize> {
        self.waiting = 0;
        if self.length == 0 {
            return None;
        }
        let full = self.active;
        self.active = 1 - full;
        self.length = 0;
        Some(full)
    }

    /// Empties both segments.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.length = 0;
        self.segments.iter().try_for_each(|segment| segment.truncate(0))
    }
}

impl Recovered {
    /// Reads a segment. A frame that breaks off at the end belongs to an answer that was never sent. After a damaged header, the
    /// start of the next frame is unknown.
    fn read(&mut self, mut bytes: &[u8]) {
        self.is_used |= !bytes.is_empty();
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
            let Some((kind, key, stamp, length)) = parse(header) else {
                self.has_gap = true;
                return;
            };
            let Some((record, rest)) = rest.split_at_checked(length) else { return };
            bytes = rest;
            if record.is_empty() {
                self.changes.push(Change { kind, key, stamp, record: None });
            } else if record::stamp(record).is_some() {
                self.changes.push(Change { kind, key, stamp, record: Some(record.to_vec()) });
            } else {
                self.damaged.push((kind, key));
            }
        }
    }

    /// The highest stamp in the journal.
    pub(super) fn stamp(&self) -> u64 {
        self.changes.last().map_or(0, |change| change.stamp)
    }
}

fn open(place: &Place, part: Part) -> Result<Handle, Trouble> {
    let mut options = OpenOptions::new();
    let file = domain::file::open(&place.path, options.read(true).write(true).create(true).truncate(false).mode(0o600));
    let file = file.map_err(|error| Trouble::Other(format!("its journal cannot be opened: {error}")))?;
    Ok(place.handle(part, file))
}

fn parse(header: &[u8; HEADER]) -> Option<(RecordKind, Key, u64, usize)> {
    let (summed, sum) = header.split_first_chunk::<SUMMED>()?;
    if *sum != record::checksum(summed) {
        return None;
    }
    let ([version, kind], rest) = summed.split_first_chunk::<2>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (stamp, key) = rest.split_first_chunk::<8>()?;
    if *version != VERSION {
        return None;
    }
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    Some((RecordKind::of(*kind)?, Key::of_bytes(key.try_into().ok()?), u64::from_le_bytes(*stamp), length))
}

#[cfg(test)]
mod tests;
