//! Whether a copy of a folder is as it was made, though a program ran in it. Then the next program gets it: to copy thousands of small files
//! and to remove them takes most of the processor time of a program that reads only a few.
//!
//! The kernel notes when a file, a folder or a link last changed: its content, its rights, its entries. A program cannot set that time. So
//! nothing has changed if all entries have the times that they had before the program, and the clock of the file system had moved on before the
//! program began: any later change gets a later time.

use std::{
    ffi::OsStr,
    hash::{BuildHasher as _, RandomState},
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, Stat, fstat, fstatfs, openat, statat};

use super::{emptying::FOLDER, folder::Work, wire::Copied};

/// A copy with fewer entries is made again: that is quicker than to wait for the clock.
const WORTH: usize = 200;
/// How long to wait for the clock of the file system. Kernels count in ticks of up to 10 ms.
const PATIENCE: Duration = Duration::from_millis(30);
/// File systems that note each change, also one through mapped memory (statfs(2)): ext4, XFS and btrfs. A tmpfs does not.
const NOTING: [u64; 3] = [0xEF53, 0x5846_5342, 0x9123_683E];

/// A copy of a folder, in the state in which it was made.
#[derive(Debug)]
pub(crate) struct Unchanged {
    what: Copied,
    folder: PathBuf,
    /// Its programs cannot compute the sums.
    sums: RandomState,
    sum: u64,
    count: usize,
}

impl Unchanged {
    /// Notes the state of `folder`, which is in `work` and was just copied from `what` with `count` entries. `None` if a later change could
    /// go unnoticed, or to notice it would not pay.
    pub(crate) fn note(what: &Copied, count: usize, folder: &Path, work: &Work) -> Option<Self> {
        if !what.is_fixed || count < WORTH {
            return None;
        }
        let sums = RandomState::new();
        let State { sum, newest, is_noting, count } = state(folder, &sums, usize::MAX).ok()?;
        if !is_noting {
            return None;
        }
        for _ in 0..PATIENCE.as_millis() {
            if work.clock().ok()? > newest {
                return Some(Self { what: what.clone(), folder: folder.to_owned(), sums, sum, count });
            }
            sleep(Duration::from_millis(1));
        }
        None
    }

    /// Whether it is a copy of `what`.
    pub(crate) fn is_of(&self, what: &Copied) -> bool {
        // Where in it a program runs does not matter.
        self.what == Copied { inside: self.what.inside.clone(), ..what.clone() }
    }

    /// Whether nothing in it has changed. The processes that used it must have ended.
    pub(crate) fn holds(&self) -> bool {
        state(&self.folder, &self.sums, self.count).is_ok_and(|state| state.sum == self.sum)
    }
}

/// The state of a folder and all that is in it.
struct State {
    /// The sum over all entries, of their numbers and the times of their last changes.
    sum: u64,
    newest: SystemTime,
    /// Whether its file system notes each change.
    is_noting: bool,
    /// How many entries it has, with itself.
    count: usize,
}

/// The state of the folder `top`. An error if it has more than `most` entries: a program may have made millions.
fn state(top: &Path, sums: &RandomState, most: usize) -> io::Result<State> {
    let top = openat(CWD, top, FOLDER, Mode::empty())?;
    let is_noting = u64::try_from(fstatfs(&top)?.f_type).is_ok_and(|kind| NOTING.contains(&kind));
    let mut state = State { sum: 0, newest: UNIX_EPOCH, is_noting, count: 0 };
    let mut folders = vec![PathBuf::from(".")];
    while let Some(folder) = folders.pop() {
        let opened = openat(&top, &folder, FOLDER, Mode::empty())?;
        state.add(&fstat(&opened)?, sums)?;
        if state.count + folders.len() > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            let inner = || folder.join(OsStr::from_bytes(name.to_bytes()));
            if entry.file_type() == FileType::Directory {
                folders.push(inner());
                continue;
            }
            let data = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(data.st_mode) {
                FileType::Directory => folders.push(inner()),
                _ => state.add(&data, sums)?,
            }
            if state.count + folders.len() > most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
        }
    }
    Ok(state)
}

impl State {
    fn add(&mut self, data: &Stat, sums: &RandomState) -> io::Result<()> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
        let seconds = u64::try_from(data.st_ctime).map_err(invalid)?;
        let nanos = u32::try_from(data.st_ctime_nsec).map_err(invalid)?;
        self.count += 1;
        self.sum = self.sum.wrapping_add(sums.hash_one((data.st_ino, seconds, nanos)));
        self.newest = self.newest.max(UNIX_EPOCH + Duration::new(seconds, nanos));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
