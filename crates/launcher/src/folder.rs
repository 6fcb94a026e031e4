//! The work folder of a launcher's programs. Only its owner may enter it. Only its own copy of a folder is there when a program begins. It is
//! [emptied](super::emptying) when the program has ended, in any state that the program left.

use std::{
    fs::{DirBuilder, File, Metadata},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{CWD, Mode, OFlags, fchmod, openat};

/// The mode of a work folder: only its owner has access.
pub(crate) const OWN: u32 = 0o700;
/// Two changes with this time between them surely have different times. Some file systems count whole seconds, kernels before
/// 6.13 count in ticks, and a clock may stand still while a machine is busy.
const SETTLED: Duration = Duration::from_secs(2);

/// A launcher's work folder.
#[derive(Debug)]
pub(crate) struct Work {
    /// Its path.
    pub path: PathBuf,
    /// The open folder. Its state is quicker to read than through the path.
    opened: File,
    /// The time of its last change, when a check found the folder unchanged. Set only if the change was so long before the
    /// check that a later change must have another time.
    changed: Option<SystemTime>,
}

/// Makes a work folder.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(OWN).create(folder)
}

impl Work {
    /// The folder at `path`, not checked yet.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { opened: openat(CWD, &path, flags, Mode::empty())?.into(), path, changed: None })
    }

    /// The time that a change gets now, by the clock of the file system: this changes the folder.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn clock(&self) -> io::Result<SystemTime> {
        fchmod(&self.opened, Mode::from_raw_mode(OWN))?;
        changed(&self.opened.metadata()?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Whether the folder was removed.
    pub(crate) fn is_gone(&self) -> bool {
        self.opened.metadata().map_or(true, |data| data.nlink() == 0)
    }

    /// Whether the path still leads to the folder.
    pub(crate) fn is_in_place(&self) -> bool {
        let file = |data: Metadata| (data.dev(), data.ino());
        let (Ok(there), Ok(own)) = (self.path.symlink_metadata(), self.opened.metadata()) else { return false };
        file(there) == file(own)
    }

    /// Whether the folder is empty and has its mode. The kernel sets the time of a change and a program cannot. If that
    /// time is the one of an earlier check, the folder needs no second check.
    pub(crate) fn is_as_made(&mut self, now: impl FnOnce() -> SystemTime) -> bool {
        let Ok(data) = self.opened.metadata() else { return false };
        let changed = changed(&data);
        if changed.is_some() && changed == self.changed {
            return true;
        }
        let checked = now();
        let is_as_made = is_own(&data)
            && self.is_in_place()
            && self.path.read_dir().is_ok_and(|mut entries| entries.next().is_none());
        self.changed = changed.filter(|changed| is_as_made && *changed + SETTLED < checked);
        is_as_made
    }
}

fn changed(data: &Metadata) -> Option<SystemTime> {
    let (seconds, nanos) = (u64::try_from(data.ctime()).ok()?, u32::try_from(data.ctime_nsec()).ok()?);
    Some(UNIX_EPOCH + Duration::new(seconds, nanos))
}

fn is_own(data: &Metadata) -> bool {
    data.is_dir() && data.nlink() > 0 && data.permissions().mode() & 0o7777 == OWN
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        time::Instant,
    };

    use super::{super::emptying, *};

    fn empty(folder: &Path) -> bool {
        emptying::empty(folder, Instant::now() + Duration::from_mins(1)).is_ok()
    }

    #[test]
    fn every_change_is_noticed() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("work");
        make(&path).unwrap();
        let mut work = Work::new(path.clone()).unwrap();
        let mut ended = |change: &dyn Fn()| {
            // Wait a moment, so that the change has another time. The check gets a much later time.
            std::thread::sleep(Duration::from_millis(30));
            change();
            work.is_as_made(|| SystemTime::now() + 2 * SETTLED)
        };
        let file = path.join("file");
        assert!(ended(&|| ()) && ended(&|| ()));
        assert!(ended(&|| {
            fs::write(&file, "x").unwrap();
            fs::remove_file(&file).unwrap();
        }));
        assert!(!ended(&|| fs::write(&file, "x").unwrap()));
        assert!(!ended(&|| ()));
        assert!(empty(&path) && ended(&|| ()) && ended(&|| ()));
        // A program can set the time of modification, but not the time of that change.
        let long_ago = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_hours(1));
        assert!(!ended(&|| {
            fs::write(&file, "x").unwrap();
            fs::File::open(&path).unwrap().set_times(long_ago).unwrap();
        }));
        assert!(empty(&path) && ended(&|| ()));
        assert!(!ended(&|| {
            fs::rename(&path, outer.path().join("away")).unwrap();
            make(&path).unwrap();
        }));
        assert!(!ended(&|| fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap()));
        fs::remove_dir(&path).unwrap();
        assert!(!ended(&|| ()));
    }

    #[test]
    fn a_recent_change_is_checked_again() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("work");
        make(&path).unwrap();
        let mut work = Work::new(path).unwrap();
        assert!(work.is_as_made(SystemTime::now) && work.changed.is_none());
        assert!(work.is_as_made(|| SystemTime::now() + 2 * SETTLED) && work.changed.is_some());
        assert!(work.is_as_made(|| panic!("the folder has not changed since")));
    }
}
