//! Marks of loss: the keys whose record was lost, and when. They are stored in `<path>.lost`, a file of fixed size ([`form`]). It is
//! written whole when it is created, and overwritten in place from then on, so that a mark needs no room on a full disk.
//!
//! The key and the kind of a record choose a bucket of [`WAYS`] slots, and a mark takes one of them. Its *tag* is more of the
//! key. When a bucket is full, a mark gets the tag [`EVERY`] and holds for every key of the bucket: too much may count as
//! lost, never too little.
//!
//! *Outdated* says that a record could not be written, so a record that is older than the mark is not the last one.
//! Without it, the record was removed for want of room, and only a missing record is in doubt. A damaged slot counts
//! as outdated for every key.

mod form;

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use self::form::{EMPTY, EVERY, HEADER, Header, Mark, SLOT};
use super::{
    super::Key,
    file::{replace, sync_folder},
    kind::RecordKind,
};
use crate::domain::clock::{Clock, Timestamp};

/// How many slots there are. The file has 1 MiB.
const SLOTS: usize = 1 << 16;
/// How many slots a bucket has.
const WAYS: u16 = 8;
/// How long a mark counts for a key without a record.
const LASTS: Duration = Duration::from_hours(7 * 24);

/// The marks of loss.
pub(super) struct Marks {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    file: Option<File>,
    header: Header,
    slots: HashMap<u16, Mark>,
    /// The latest stamp that was given.
    last: u64,
    has_unsynced: bool,
}

/// Why there are no marks.
#[derive(Debug)]
pub(super) enum Absent {
    /// There is no file.
    Missing,
    /// The file does not hold marks of loss.
    Damaged,
}

impl Marks {
    /// Reads the marks at `path`. New stamps will be later than `floor` and than all marks.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub(super) fn read(path: &Path, clock: Arc<dyn Clock>, floor: u64) -> io::Result<Result<Self, Absent>> {
        let file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(Absent::Missing)),
            file => file?,
        };
        let mut bytes = vec![0; HEADER + SLOTS * SLOT];
        let has_size = file.metadata()?.len() == bytes.len() as u64;
        if !has_size {
            return Ok(Err(Absent::Damaged));
        }
        file.read_exact_at(&mut bytes, 0)?;
        let (header, slots) = bytes.split_at(HEADER);
        let Some(header) = Header::parse(header) else { return Ok(Err(Absent::Damaged)) };
        let marks = Self::of(Some(file), clock, floor.max(header.everything), header);
        marks.take_in(slots);
        Ok(Ok(marks))
    }

    /// Creates the file at `path`, whole and on disk. It is unfinished, unless everything is lost.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn make(path: &Path, clock: Arc<dyn Clock>, floor: u64, is_everything_lost: bool) -> io::Result<Self> {
        let marks = Self::of(None, clock, floor, Header::default());
        let everything = if is_everything_lost { marks.next() } else { 0 };
        let header = Header { is_finished: is_everything_lost, everything };
        let mut bytes = header.bytes().to_vec();
        bytes.extend(EMPTY.bytes().repeat(SLOTS));
        let new = replace(path);
        let _ = std::fs::remove_file(&new);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        std::fs::rename(&new, path)?;
        sync_folder(path)?;
        {
            let mut inner = marks.inner();
            inner.file = Some(file);
            inner.header = header;
        }
        Ok(marks)
    }

    /// Marks without a file.
    #[cfg(test)]
    pub(super) fn in_memory(clock: Arc<dyn Clock>) -> Self {
        Self::of(None, clock, 0, Header::default())
    }

    fn of(file: Option<File>, clock: Arc<dyn Clock>, last: u64, header: Header) -> Self {
        let inner = Inner { file, header, slots: HashMap::new(), last, has_unsynced: false };
        Self { clock, inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Reads the slots of a file.
    fn take_in(&self, slots: &[u8]) {
        let empty = EMPTY.bytes();
        let mut damaged = Vec::new();
        let mut inner = self.inner();
        for (slot, bytes) in (0..=u16::MAX).zip(slots.chunks_exact(SLOT)) {
            if bytes == empty {
                continue;
            }
            match Mark::parse(bytes) {
                Some(mark) => {
                    inner.last = inner.last.max(mark.at);
                    inner.slots.insert(slot, mark);
                }
                None => damaged.push(slot),
            }
        }
        drop(inner);
        if !damaged.is_empty() {
            tracing::warn!(
                slots = damaged.len(),
                "some marks of lost records are damaged; these records count as lost"
            );
        }
        for slot in damaged {
            let mark = Mark { at: self.next(), tag: EVERY, is_outdated: true };
            let _ = self.inner().write(slot, mark);
        }
    }

    /// A stamp that is later than all stamps given before: the time in milliseconds since 1970, or a little more. It
    /// never goes back, even if the clock does, so stamps tell the order of changes.
    pub(super) fn next(&self) -> u64 {
        let now = self.clock.now().0;
        let mut inner = self.inner();
        inner.last = now.max(inner.last.saturating_add(1));
        inner.last
    }

    /// The latest stamp that was given.
    pub(super) fn last(&self) -> u64 {
        self.inner().last
    }

    /// Whether the record under `key` is lost: the record with `stamp` is outdated, or there is no record and a recent
    /// mark. A mark in the future, as after a clock was put back, counts as recent.
    pub(super) fn is_lost(&self, kind: RecordKind, key: &Key, stamp: Option<u64>) -> bool {
        let (bucket, tag) = place(kind, key);
        let inner = self.inner();
        let marks = inner.bucket(bucket).filter_map(|(_, mark)| mark);
        let marks = marks.filter(|mark| mark.tag == tag || mark.tag == EVERY);
        let at = marks.filter(|mark| mark.is_outdated || stamp.is_none()).map(|mark| mark.at).max();
        let at = at.unwrap_or(0).max(inner.header.everything);
        drop(inner);
        match stamp {
            Some(stamp) => stamp < at,
            None => at > 0 && self.is_of_late(at),
        }
    }

    fn is_of_late(&self, at: u64) -> bool {
        self.clock.now().since(Timestamp(at)).is_none_or(|passed| passed < LASTS)
    }

    /// Marks the record under `key` as lost. `is_outdated` says that the record could not be written, so that an older
    /// one may still be there.
    ///
    /// # Errors
    /// When the mark cannot be written; it then holds until the process ends.
    pub(super) fn set(&self, kind: RecordKind, key: &Key, is_outdated: bool) -> io::Result<()> {
        let (bucket, tag) = place(kind, key);
        let mark = Mark { at: self.next(), tag, is_outdated };
        let mut inner = self.inner();
        let slots: Vec<(u16, Option<Mark>)> = inner.bucket(bucket).collect();
        let is_alike = |other: &Mark| other.is_outdated == is_outdated;
        let is_over = |other: &Mark| !other.is_outdated && !self.is_of_late(other.at);
        let find = |fits: &dyn Fn(&Mark) -> bool| slots.iter().find(|(_, other)| other.as_ref().is_some_and(fits));
        let same = find(&|other| is_alike(other) && other.tag == tag);
        let free = || slots.iter().find(|(_, other)| other.as_ref().is_none_or(is_over));
        if let Some((slot, _)) = same.or_else(free) {
            return inner.write(*slot, mark);
        }
        // The bucket is full. One mark counts for every key of it from now on.
        let oldest = || slots.iter().min_by_key(|(_, other)| other.map(|other| (!is_alike(&other), other.at)));
        let Some((slot, other)) = find(&|other| is_alike(other) && other.tag == EVERY).or_else(oldest) else {
            return Ok(());
        };
        let is_outdated = is_outdated || other.is_some_and(|other| other.is_outdated);
        inner.write(*slot, Mark { tag: EVERY, is_outdated, ..mark })
    }

    /// The same for several records. All are marked, even if one mark cannot be written.
    ///
    /// # Errors
    /// When a mark cannot be written.
    pub(super) fn set_all(&self, keys: &[(RecordKind, Key)]) -> io::Result<()> {
        keys.iter().map(|(kind, key)| self.set(*kind, key, true)).fold(Ok(()), io::Result::and)
    }

    /// Marks everything as lost.
    ///
    /// # Errors
    /// When the mark cannot be written; it then holds until the process ends.
    pub(super) fn set_everything(&self) -> io::Result<()> {
        let everything = self.next();
        self.inner().write_header(Header { is_finished: true, everything })
    }

    /// Whether the database beside the marks was created completely.
    pub(super) fn is_finished(&self) -> bool {
        self.inner().header.is_finished
    }

    /// Notes that the database was created completely.
    ///
    /// # Errors
    /// When that cannot be written.
    pub(super) fn finish(&self) -> io::Result<()> {
        if self.is_finished() {
            return Ok(());
        }
        let mut inner = self.inner();
        let header = Header { is_finished: true, ..inner.header };
        inner.write_header(header)?;
        drop(inner);
        self.sync()
    }

    /// Waits until all marks are on disk.
    ///
    /// # Errors
    /// When they cannot be.
    pub(super) fn sync(&self) -> io::Result<()> {
        let file = {
            let mut inner = self.inner();
            if !std::mem::take(&mut inner.has_unsynced) {
                return Ok(());
            }
            inner.file.as_ref().map(File::try_clone).transpose()?
        };
        file.map_or(Ok(()), |file| file.sync_data())
    }
}

impl Inner {
    /// The slots of the bucket that begins at `first`.
    fn bucket(&self, first: u16) -> impl Iterator<Item = (u16, Option<Mark>)> {
        (first..=first + (WAYS - 1)).map(|slot| (slot, self.slots.get(&slot).copied()))
    }

    fn write_header(&mut self, header: Header) -> io::Result<()> {
        self.header = header;
        self.has_unsynced = true;
        self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(&header.bytes(), 0))
    }

    fn write(&mut self, slot: u16, mark: Mark) -> io::Result<()> {
        self.slots.insert(slot, mark);
        self.has_unsynced = true;
        let position = HEADER + usize::from(slot) * SLOT;
        self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(&mark.bytes(), position as u64))
    }
}

/// The first slot of the bucket and the tag of a record. Keys are hashes.
fn place(kind: RecordKind, key: &Key) -> (u16, u32) {
    let bytes = key.as_bytes();
    let number = kind.number();
    let slot = u16::from_le_bytes([bytes[0], bytes[1]]).wrapping_add(u16::from(number).wrapping_mul(0x9E37));
    (slot - slot % WAYS, u32::from_le_bytes([number, bytes[2], bytes[3], bytes[4]]))
}

#[cfg(test)]
mod tests;
