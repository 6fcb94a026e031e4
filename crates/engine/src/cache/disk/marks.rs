//! Marks of loss: the keys whose record was lost, and when. They are stored in `<path>.lost`, a file of fixed size ([`form`]). It is
//! written whole when it is created, and overwritten in place from then on, so that a mark needs no space on a full disk.
//!
//! A mark takes a slot and names its record by the route and the beginning of the key. When no slot is left, the route with the most marks
//! gives some of its own up: one mark then holds for all of its keys that begin with the same byte, and later one for the whole
//! route. Too much of that route may count as lost then, never too little, and nothing of another route.
//!
//! *Outdated* means that a record could not be written, so a record that is older than the mark is not the last one.
//! Without it, the record was evicted, and only a missing record is in doubt. After a damaged slot, everything
//! counts as lost.

mod form;
mod merge;

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::OpenOptions,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use crate::cache::{
    Key, RouteId, Usage,
    disk::{
        file::{replace, sync_folder},
        kind::RecordKind,
        marks::form::{EMPTY, HEADER, Header, Mark, SLOT, Scope},
        medium::{Handle, Part, Place},
    },
};
use domain::clock::{Clock, Timestamp};

/// How many slots there are. The file has about 1 MiB.
const SLOTS: u16 = 52_000;
/// How long a mark counts for a key without a record.
const LASTS: Duration = Duration::from_hours(7 * 24);

/// The marks of loss.
pub(super) struct Marks {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

struct Inner {
    file: Option<Handle>,
    header: Header,
    /// The marks of each route, by the beginning of its id.
    routes: HashMap<[u8; 4], OfRoute>,
    /// The slots without a mark.
    free: Vec<u16>,
    /// The latest stamp that was issued.
    last: u64,
    has_unsynced: bool,
    /// Whether a mark could not be written. All of them are written again, as soon as that works.
    is_behind: bool,
}

/// The marks of a route: where each is, and when its record was lost. They are identified by their scope, and by whether they are
/// *outdated*.
type OfRoute = HashMap<(Scope, bool), (u16, u64)>;

/// Why there are no marks.
#[derive(Debug)]
pub(super) enum Absent {
    /// There is no file.
    Missing,
    /// The file does not hold marks of loss.
    Damaged,
}

impl Marks {
    /// Reads the marks at `place`. New stamps will be later than `floor` and than all marks.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub(super) fn read(place: &Place, clock: Arc<dyn Clock>, floor: u64) -> io::Result<Result<Self, Absent>> {
        let file = match domain::file::open(&place.path, OpenOptions::new().read(true).write(true)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(Absent::Missing)),
            file => file?,
        };
        let mut bytes = vec![0; HEADER + usize::from(SLOTS) * SLOT];
        let has_size = file.metadata()?.len() == bytes.len() as u64;
        if !has_size {
            return Ok(Err(Absent::Damaged));
        }
        file.read_exact_at(&mut bytes, 0)?;
        let (header, slots) = bytes.split_at(HEADER);
        let Some(header) = Header::parse(header) else { return Ok(Err(Absent::Damaged)) };
        let marks = Self::of(Some(place.handle(Part::Marks, file)), clock, floor.max(header.everything), header);
        marks.take_in(slots)?;
        Ok(Ok(marks))
    }

    /// Creates the file at `place`, whole and on disk. It is unfinished, unless everything is lost.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn make(place: &Place, clock: Arc<dyn Clock>, floor: u64, is_everything_lost: bool) -> io::Result<Self> {
        let marks = Self::of(None, clock, floor, Header::default());
        let everything = if is_everything_lost { marks.next() } else { 0 };
        let header = Header { is_finished: is_everything_lost, everything };
        let mut bytes = header.bytes().to_vec();
        bytes.extend(EMPTY.repeat(usize::from(SLOTS)));
        let (path, new) = (&place.path, replace(&place.path));
        let _ = std::fs::remove_file(&new);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&new)?;
        let file = place.handle(Part::Marks, file);
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

    fn of(file: Option<Handle>, clock: Arc<dyn Clock>, last: u64, header: Header) -> Self {
        // The last one is taken first.
        let free = (0..SLOTS).rev().collect();
        let inner = Inner { file, header, routes: HashMap::new(), free, last, has_unsynced: false, is_behind: false };
        Self { clock, inner: Mutex::new(inner) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    /// Reads the slots of a file.
    fn take_in(&self, slots: &[u8]) -> io::Result<()> {
        let mut is_damaged = false;
        let mut inner = self.inner();
        inner.free.clear();
        for (slot, bytes) in (0..SLOTS).zip(slots.chunks_exact(SLOT)) {
            if let Some(mark) = Mark::parse(bytes) {
                inner.note(slot, mark);
                continue;
            }
            is_damaged |= bytes != EMPTY;
            inner.free.push(slot);
        }
        inner.free.reverse();
        drop(inner);
        if is_damaged {
            tracing::error!("some marks of lost records are damaged; all records count as lost");
            self.set_everything()?;
        }
        Ok(())
    }

    /// A stamp that is later than all stamps issued before: the time in milliseconds since 1970, or a little more. It
    /// never goes back, even if the clock does, so stamps show the order of changes.
    pub(super) fn next(&self) -> u64 {
        let now = self.clock.now().0;
        let mut inner = self.inner();
        inner.last = now.max(inner.last.saturating_add(1));
        inner.last
    }

    /// The latest stamp that was issued.
    pub(super) fn last(&self) -> u64 {
        self.inner().last
    }

    /// Whether the record under `key` is lost: the record with `stamp` is outdated, or there is no record and a recent
    /// mark. A mark in the future, as after a clock was put back, counts as recent.
    pub(super) fn is_lost(&self, kind: RecordKind, key: &Key, stamp: Option<u64>) -> bool {
        let inner = self.inner();
        let of_route = inner.routes.get(&route(key));
        let scopes = [one(kind, key), Scope::Range(key.as_bytes()[0]), Scope::Route];
        let at = of_route.and_then(|marks| {
            let outdated = scopes.iter().filter_map(|scope| marks.get(&(*scope, true)));
            let missing = scopes.iter().filter(|_| stamp.is_none()).filter_map(|scope| marks.get(&(*scope, false)));
            outdated.chain(missing).map(|(_, at)| *at).max()
        });
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

    /// Marks the record under `key` as lost. `is_outdated`: that the record could not be written, so that an older
    /// one may still be there.
    ///
    /// # Errors
    /// When the mark cannot be written; it then holds until the process ends, and longer if a later [`Self::sync`] works.
    pub(super) fn set(&self, kind: RecordKind, key: &Key, is_outdated: bool) -> io::Result<()> {
        let mark = Mark { at: self.next(), route: route(key), scope: one(kind, key), is_outdated };
        let mut inner = self.inner();
        let same = inner.routes.get(&mark.route).and_then(|marks| marks.get(&(mark.scope, is_outdated)));
        if let Some((slot, _)) = same.copied() {
            return inner.write(slot, mark);
        }
        if inner.free.is_empty() {
            inner.drop_old(|at| self.is_of_late(at));
        }
        if inner.free.is_empty() {
            inner.merge()?;
        }
        if let Some(slot) = inner.free.pop() {
            return inner.write(slot, mark);
        }
        // There are as many routes as slots.
        drop(inner);
        self.set_everything()
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

    /// How many marks `route` has and what they take, and how much they may take before they are merged.
    pub(super) fn usage(&self, route: RouteId) -> (Usage, u64) {
        let [a, b, c, d, ..] = route.to_bytes();
        let inner = self.inner();
        let own = inner.routes.get(&[a, b, c, d]).map_or(0, HashMap::len);
        let slot = SLOT as u64;
        let usage = Usage { records: own as u64, weight: own as u64 * slot, left: 0 };
        let sharing = inner.routes.len() + usize::from(own == 0);
        let share = usize::from(SLOTS) / sharing.max(1);
        (usage, share.max(own + inner.free.len()) as u64 * slot)
    }

    /// Waits until all marks are on disk. Those that could not be written before are written now.
    ///
    /// # Errors
    /// When they cannot be.
    pub(super) fn sync(&self) -> io::Result<()> {
        let file = {
            let mut inner = self.inner();
            if inner.is_behind {
                inner.write_all()?;
            }
            if !std::mem::take(&mut inner.has_unsynced) {
                return Ok(());
            }
            inner.file.as_ref().map(Handle::try_clone).transpose()?
        };
        let synced = file.map_or(Ok(()), |file| file.sync());
        // After an error, the file may have any of them.
        self.inner().is_behind |= synced.is_err();
        synced
    }
}

impl Inner {
    /// Notes the content of a slot.
    fn note(&mut self, slot: u16, mark: Mark) {
        self.last = self.last.max(mark.at);
        let marks = self.routes.entry(mark.route).or_default();
        // A mark that was merged may still be in the file, and a later one of the same record beside it.
        match marks.entry((mark.scope, mark.is_outdated)) {
            Entry::Vacant(place) => _ = place.insert((slot, mark.at)),
            Entry::Occupied(mut place) => {
                let (other, at) = *place.get();
                if other != slot {
                    self.free.push(if at < mark.at { other } else { slot });
                }
                if at <= mark.at {
                    place.insert((slot, mark.at));
                }
            }
        }
    }

    fn write_header(&mut self, header: Header) -> io::Result<()> {
        self.header = header;
        self.has_unsynced = true;
        self.write_at(&header.bytes(), 0)
    }

    fn write(&mut self, slot: u16, mark: Mark) -> io::Result<()> {
        let marks = self.routes.entry(mark.route).or_default();
        marks.insert((mark.scope, mark.is_outdated), (slot, mark.at));
        self.has_unsynced = true;
        let position = HEADER + usize::from(slot) * SLOT;
        self.write_at(&mark.bytes(), position as u64)
    }

    fn write_at(&mut self, bytes: &[u8], position: u64) -> io::Result<()> {
        let written = self.file.as_ref().map_or(Ok(()), |file| file.write_all_at(bytes, position));
        self.is_behind |= written.is_err();
        written
    }

    /// Writes all marks.
    fn write_all(&mut self) -> io::Result<()> {
        let mut bytes = self.header.bytes().to_vec();
        bytes.extend(EMPTY.repeat(usize::from(SLOTS)));
        for (route, marks) in &self.routes {
            for ((scope, is_outdated), (slot, at)) in marks {
                let mark = Mark { at: *at, route: *route, scope: *scope, is_outdated: *is_outdated };
                let position = HEADER + usize::from(*slot) * SLOT;
                bytes[position..position + SLOT].copy_from_slice(&mark.bytes());
            }
        }
        self.write_at(&bytes, 0)?;
        (self.is_behind, self.has_unsynced) = (false, true);
        Ok(())
    }
}

/// The scope of one record.
fn one(kind: RecordKind, key: &Key) -> Scope {
    let [a, b, c, d, ..] = *key.as_bytes();
    Scope::One(kind.number(), [a, b, c, d])
}

/// The beginning of the id of a key's route.
fn route(key: &Key) -> [u8; 4] {
    let [a, b, c, d, ..] = key.route().to_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests;
