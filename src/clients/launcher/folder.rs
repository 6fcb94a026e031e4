//! The folder in which a program works: its own alone, empty when it begins, and emptied when it has ended, whatever it
//! made of it.

use std::{
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The mode of a work folder: its owner's alone.
const OWN: u32 = 0o700;
/// How long after a change the next one is sure to have another time: some file systems count whole seconds, kernels before 6.13 in
/// ticks, and a clock may stand still while a machine is busy elsewhere.
const SETTLED: Duration = Duration::from_secs(2);

/// A launcher's own.
#[derive(Debug)]
pub(crate) struct Work {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The folder itself, which tells more quickly how it is than its path.
    opened: File,
    /// When it was last changed, as of a look that found it as it was made, and so long before that look that another change would
    /// have another time.
    changed: Option<SystemTime>,
}

/// Makes one.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().mode(OWN).create(folder)
}

impl Work {
    /// The one at `path`, of which nothing else is known.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn new(path: PathBuf) -> io::Result<Self> {
        Ok(Self { opened: File::open(&path)?, path, changed: None })
    }

    /// Whether somebody removed it.
    pub(crate) fn is_gone(&self) -> bool {
        self.opened.metadata().map_or(true, |data| data.nlink() == 0)
    }

    /// Whether its path still leads to it.
    pub(crate) fn is_in_place(&self) -> bool {
        let place = |data: Metadata| (data.dev(), data.ino());
        let (Ok(there), Ok(own)) = (self.path.symlink_metadata(), self.opened.metadata()) else { return false };
        place(there) == place(own)
    }

    /// Whether it is as it was made. The time of a change is the kernel's: a program cannot set it, so where it stays what it was
    /// when somebody looked inside, and was long past even then, nobody need look again.
    pub(crate) fn is_as_made(&mut self, now: impl FnOnce() -> SystemTime) -> bool {
        let Ok(data) = self.opened.metadata() else { return false };
        let changed = changed(&data);
        if changed.is_some() && changed == self.changed {
            return true;
        }
        let looked = now();
        let is_as_made = is_own(&data)
            && self.is_in_place()
            && self.path.read_dir().is_ok_and(|mut entries| entries.next().is_none());
        self.changed = changed.filter(|changed| is_as_made && *changed + SETTLED < looked);
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

/// Empties one; whether it is as it was made.
pub(crate) fn empty(folder: &Path) -> bool {
    let is_own = folder.symlink_metadata().is_ok_and(|data| is_own(&data));
    if !is_own && fs::set_permissions(folder, Permissions::from_mode(OWN)).is_err() {
        return false;
    }
    let Ok(mut entries) = folder.read_dir() else { return false };
    entries.try_for_each(|entry| remove(&entry?.path())).is_ok()
}

/// Removes a file, or a folder with all that is in it; also folders in which nothing may be changed, as Go's module cache
/// has them.
///
/// # Errors
/// When something stays.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    if !path.symlink_metadata()?.is_dir() {
        return fs::remove_file(path);
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open(path)?;
            fs::remove_dir_all(path)
        }
        result => result,
    }
}

/// Gives back to the owner what the folders below `path` denied.
fn open(path: &Path) -> io::Result<()> {
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(OWN))?;
        for entry in folder.read_dir()? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn whatever_was_made_of_it_is_undone() {
        let outer = tempfile::tempdir().unwrap();
        let (folder, other) = (outer.path().join("work"), outer.path().join("other"));
        make(&folder).unwrap();
        let is_as_made = |folder: &Path| Work::new(folder.to_owned()).unwrap().is_as_made(SystemTime::now);
        assert!(is_as_made(&folder) && empty(&folder));
        fs::create_dir_all(folder.join("a/b/c")).unwrap();
        assert!(!is_as_made(&folder));
        fs::write(folder.join("a/b/file"), "x").unwrap();
        fs::write(&other, "stays").unwrap();
        symlink(&other, folder.join("a/link")).unwrap();
        symlink(outer.path(), folder.join("way out")).unwrap();
        for denied in ["a/b/c", "a/b", "a", "."] {
            fs::set_permissions(folder.join(denied), Permissions::from_mode(0o555)).unwrap();
        }
        assert!(empty(&folder));
        let mode = folder.symlink_metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((folder.read_dir().unwrap().count(), mode), (0, OWN));
        assert_eq!(fs::read_to_string(&other).unwrap(), "stays");
        assert!(!empty(&outer.path().join("nowhere")));
        remove(&folder).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn who_changes_it_is_seen() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("work");
        make(&path).unwrap();
        let mut work = Work::new(path.clone()).unwrap();
        let mut ended = |change: &dyn Fn()| {
            // A moment, so that it has another time; what is looked at is long past.
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
        // A program may say when it was changed, but not when it said so.
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
    fn what_changed_just_now_is_looked_at_again() {
        let outer = tempfile::tempdir().unwrap();
        let path = outer.path().join("work");
        make(&path).unwrap();
        let mut work = Work::new(path).unwrap();
        assert!(work.is_as_made(SystemTime::now) && work.changed.is_none());
        assert!(work.is_as_made(|| SystemTime::now() + 2 * SETTLED) && work.changed.is_some());
        assert!(work.is_as_made(|| panic!("it has not changed since")));
    }
}
