//! Empties a folder that programs have filled, with anything that they can make there: folders in folders without end, folders
//! without the right to enter, many files, names that are not text. Takes little memory and few open files, follows no link, and
//! stays in its file system.

use std::{
    collections::VecDeque,
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd as _, BorrowedFd, OwnedFd},
    path::Path,
    time::Instant,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, chmod, fchmod, fstat, openat, openat2, unlinkat},
    io::Errno,
};

/// How many levels are open at once. Higher ones are found again by `..`.
const MAX_OPEN: usize = 32;
/// The most levels. The list of closed ones then takes 128 MiB.
const MAX_LEVELS: usize = 8_000_000;
/// The flags for a folder that is read.
pub(crate) const FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The access that the owner of a folder needs.
const OWNERS: Mode = Mode::RWXU;

/// A folder's device and inode number.
type Id = (u64, u64);

/// A folder that is being emptied.
struct Level {
    id: Id,
    entries: Dir,
    /// Whether something was found since the entries were read from their beginning.
    has_found: bool,
    /// The folder in it that is being emptied now.
    inner: Option<CString>,
}

/// The folders from the one to empty down to the one that is being emptied.
struct Levels {
    /// The upper ones, which are not open.
    closed: Vec<Id>,
    /// The lower ones; at least one.
    open: VecDeque<Level>,
}

/// Removes everything in `folder`, and restores its owner's access to it.
///
/// # Errors
/// When something cannot be removed, such as a folder on which another file system is mounted, or `until` is over.
pub(crate) fn empty(folder: &Path, until: Instant) -> io::Result<()> {
    empty_but(folder, None, until)
}

/// As [`empty`], but the entry `kept` stays, with all that is in it.
///
/// # Errors
/// As [`empty`].
pub(crate) fn empty_but(folder: &Path, kept: Option<&CStr>, until: Instant) -> io::Result<()> {
    let top =
        openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut levels = Levels { closed: Vec::new(), open: VecDeque::from([Level::new(unlock(&top)?)?]) };
    while Instant::now() < until {
        let is_top = levels.open.len() + levels.closed.len() == 1;
        let Some(level) = levels.open.back_mut() else { return Ok(()) };
        let name = match level.next(kept.filter(|_| is_top))? {
            Some((name, kind)) => {
                if let Some(inner) = level.remove(&name, kind)? {
                    level.inner = Some(name);
                    levels.descend(inner)?;
                }
                continue;
            }
            None if is_top => return Ok(()),
            None => levels.ascend()?,
        };
        if let (Some(name), Some(level)) = (name, levels.open.back_mut()) {
            match unlinkat(level.entries.fd()?, &*name, AtFlags::REMOVEDIR) {
                // A living process still adds to it. It is found again.
                Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

impl Levels {
    /// Goes into `inner`, a folder in the lowest one.
    fn descend(&mut self, inner: OwnedFd) -> io::Result<()> {
        if self.closed.len() >= MAX_LEVELS {
            return Err(io::Error::other("there are too many folders in each other"));
        }
        self.open.push_back(Level::new(inner)?);
        if self.open.len() > MAX_OPEN
            && let Some(upper) = self.open.pop_front()
        {
            self.closed.push(upper.id);
        }
        Ok(())
    }

    /// Leaves the lowest folder, which is empty. Returns its name if that is still known.
    fn ascend(&mut self) -> io::Result<Option<CString>> {
        let left = self.open.pop_back();
        if self.open.is_empty()
            && let (Some(left), Some(id)) = (left, self.closed.pop())
        {
            let upper = openat(left.entries.fd()?, c"..", FOLDER, Mode::empty())?;
            // A living process may have moved the folder, and `..` may be anything.
            if id_of(&upper)? != id {
                return Err(io::Error::other("a folder was moved meanwhile"));
            }
            self.open.push_back(Level::new(upper)?);
        }
        Ok(self.open.back_mut().and_then(|level| level.inner.take()))
    }
}

impl Level {
    fn new(folder: OwnedFd) -> io::Result<Self> {
        Ok(Self { id: id_of(&folder)?, entries: Dir::new(folder)?, has_found: false, inner: None })
    }

    /// The next entry but `kept`, and its kind if the file system names it. `None` if there is none: entries may be passed over while others
    /// are removed, so all are read until none is left.
    fn next(&mut self, kept: Option<&CStr>) -> io::Result<Option<(CString, FileType)>> {
        loop {
            match self.entries.read().transpose()? {
                Some(entry) if [c".", c".."].contains(&entry.file_name()) || kept == Some(entry.file_name()) => {}
                Some(entry) => {
                    self.has_found = true;
                    return Ok(Some((entry.file_name().to_owned(), entry.file_type())));
                }
                None if self.has_found => {
                    self.has_found = false;
                    self.entries.rewind();
                }
                None => return Ok(None),
            }
        }
    }

    /// Removes an entry, or opens it if it is a folder with something in it.
    fn remove(&self, name: &CStr, kind: FileType) -> io::Result<Option<OwnedFd>> {
        let folder = self.entries.fd()?;
        if kind != FileType::Directory {
            match unlinkat(folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => return Ok(None),
                // A folder, on a file system that does not say so.
                Err(Errno::ISDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(Errno::NOTEMPTY | Errno::EXIST) => enter(folder, name, self.id.0),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the folder `name` in `parent`, which is on `device`. `None` if it is not a folder any more.
fn enter(parent: BorrowedFd<'_>, name: &CStr, device: u64) -> io::Result<Option<OwnedFd>> {
    let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let stay = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let opened = match openat2(parent, name, path, Mode::empty(), stay) {
        // A kernel, or a filter of system calls, that lacks it.
        Err(Errno::NOSYS | Errno::PERM) => openat(parent, name, path, Mode::empty()),
        opened => opened,
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if id_of(&opened)?.0 != device {
        return Err(Errno::XDEV.into());
    }
    unlock(&opened).map(Some)
}

/// A folder to read, from one that was opened as a path only. Restores its owner's access to it.
fn unlock(folder: &OwnedFd) -> io::Result<OwnedFd> {
    let mode = Mode::from_raw_mode(fstat(folder)?.st_mode);
    if !mode.contains(OWNERS) {
        // The only way to a folder that may not be read.
        chmod(format!("/proc/self/fd/{}", folder.as_raw_fd()), OWNERS)?;
    }
    let opened = openat(folder, c".", FOLDER, Mode::empty())?;
    if mode != OWNERS {
        fchmod(&opened, OWNERS)?;
    }
    Ok(opened)
}

fn id_of(folder: &OwnedFd) -> io::Result<Id> {
    let data = fstat(folder)?;
    Ok((data.st_dev, data.st_ino))
}

#[cfg(test)]
mod tests;
