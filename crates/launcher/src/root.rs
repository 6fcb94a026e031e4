//! The folder that holds all work folders of a gateway. It is removed when the gateway ends. A folder that `kill -9` left
//! behind is removed by the next gateway. A folder for temporary files is shared with others: only what is surely a gateway's
//! own is touched.

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, chown},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use nix::unistd::geteuid;
use rustix::fs::{CWD, Mode, OFlags, fstat, openat};

use super::{ProgramUser, emptying, folder};

/// The prefix of the folders' names.
const PREFIX: &str = "appset-gateway-";
/// This file is locked as long as the gateway lives.
const LOCK: &str = "lock";
/// How long a gateway's end may take to remove the folder.
const REMOVAL: Duration = Duration::from_secs(1);

/// A gateway's folder for the work folders of its launchers.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    count: AtomicU64,
    /// Held as long as the folder is used.
    _lock: File,
}

impl Root {
    /// Makes a folder among the system's temporary files.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new() -> io::Result<Self> {
        let temporary = std::env::temp_dir();
        let name = format!("{PREFIX}{}-{:016x}", std::process::id(), fastrand::u64(..));
        // The folder has another name until it is locked. Otherwise a gateway that starts meanwhile would remove it.
        let (new, path) = (temporary.join(format!(".{name}")), temporary.join(name));
        // Other users may pass through to their own folders.
        DirBuilder::new().mode(0o711).create(&new)?;
        let lock = File::create_new(new.join(LOCK))?;
        lock.lock()?;
        std::fs::rename(new, &path)?;
        Ok(Self { path, count: AtomicU64::new(0), _lock: lock })
    }

    /// The folders of gateways that have ended. Each is locked, so that only one gateway removes it.
    pub(crate) fn left() -> Vec<Self> {
        let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
        let named = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        named.filter_map(|entry| Self::abandoned(entry.path())).collect()
    }

    /// The folder at `path`, if it is this user's and its lock is free. Any user may make such a folder, and a lock that is a FIFO or a
    /// link: nothing is waited for or followed.
    fn abandoned(path: PathBuf) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let own = geteuid().as_raw();
        let opened = openat(CWD, &path, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
        fstat(&opened).ok().filter(|data| data.st_uid == own)?;
        let lock = File::from(openat(&opened, LOCK, flags, Mode::empty()).ok()?);
        lock.metadata().ok().filter(|data| data.is_file() && data.uid() == own)?;
        lock.try_lock().ok()?;
        Some(Self { path, count: AtomicU64::new(0), _lock: lock })
    }

    /// Makes a work folder for a launcher of `user`. No other user can read it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn folder(&self, user: Option<ProgramUser>) -> io::Result<PathBuf> {
        let own = self.path.join(self.count.fetch_add(1, Ordering::Relaxed).to_string());
        folder::make(&own)?;
        if let Some(ProgramUser { uid, gid }) = user {
            chown(&own, Some(uid), Some(gid))?;
        }
        Ok(own)
    }

    /// The work folders that are there.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
    }
}

impl Drop for Root {
    /// Removes the folders that are left, within a short time. The next gateway removes the others.
    fn drop(&mut self) {
        let until = Instant::now() + REMOVAL;
        for folder in self.folders() {
            if std::fs::remove_dir(&folder).is_err() && emptying::empty(&folder, until).is_ok() {
                let _ = std::fs::remove_dir(&folder);
            }
        }
        // The lock goes last: without it nobody would find the remaining folders.
        if self.folders().is_empty() && std::fs::remove_file(self.path.join(LOCK)).is_ok() {
            let _ = std::fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn named(what: &str) -> PathBuf {
        std::env::temp_dir().join(format!("{PREFIX}{what}-{:016x}", fastrand::u64(..)))
    }

    /// Files of others in a shared folder for temporary files neither hold a gateway up nor are removed.
    #[test]
    fn only_own_folders_of_ended_gateways_are_removed() {
        let used = Root::new().unwrap();
        let left = named("0");
        std::fs::create_dir_all(left.join("0/work")).unwrap();
        File::create(left.join(LOCK)).unwrap();
        let [without, fifo, linked, foreign, file] = ["of-somebody-else", "fifo", "link", "foreign", "file"].map(named);
        for folder in [&without, &fifo, &linked, &foreign] {
            std::fs::create_dir(folder).unwrap();
        }
        nix::unistd::mkfifo(&fifo.join(LOCK), nix::sys::stat::Mode::S_IRWXU).unwrap();
        File::create(&file).unwrap();
        symlink(&file, linked.join(LOCK)).unwrap();
        File::create(foreign.join(LOCK)).unwrap();
        let is_root = chown(&foreign, Some(65534), Some(65534)).is_ok();
        let link = named("link");
        symlink(&left, &link).unwrap();
        drop(Root::left());
        assert!(!left.exists() && used.path.exists());
        for stays in [&without, &fifo, &linked, &file] {
            assert!(stays.exists(), "{stays:?}");
        }
        assert!(foreign.exists() || !is_root);
        for folder in [&without, &fifo, &linked, &foreign] {
            let _ = std::fs::remove_dir_all(folder);
        }
        for path in [file, link] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn a_folder_goes_with_its_gateway() {
        let root = Root::new().unwrap();
        let (first, second) = (root.folder(None).unwrap(), root.folder(None).unwrap());
        assert!(first != second && first.is_dir());
        std::fs::create_dir_all(second.join("a/b")).unwrap();
        assert_eq!(root.folders().len(), 2);
        let path = root.path.clone();
        drop(root);
        assert!(!path.exists());
    }
}
