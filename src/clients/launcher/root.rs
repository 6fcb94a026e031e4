//! The folder that holds all work folders of a gateway. It is removed when the gateway ends. A folder that `kill -9` left
//! behind is removed by the next gateway.

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use super::{ProgramUser, folder};

/// The prefix of the folders' names.
const PREFIX: &str = "appset-gateway-";
/// This file is locked as long as the gateway lives.
const LOCK: &str = "lock";

/// A gateway's folder for the work folders of its launchers.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    count: AtomicU64,
    _lock: File,
}

impl Root {
    /// Makes a folder among the system's temporary files, and removes the folders of gateways that have ended.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new() -> io::Result<Self> {
        let temporary = std::env::temp_dir();
        let left = std::fs::read_dir(&temporary).into_iter().flatten().flatten();
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
            .filter(|entry| is_abandoned(&entry.path()))
            .for_each(|entry| _ = folder::remove(&entry.path()));
        let name = format!("{PREFIX}{}-{:016x}", std::process::id(), fastrand::u64(..));
        // The folder has another name until it is locked. Otherwise a gateway that starts meanwhile would remove it.
        let (new, path) = (temporary.join(format!(".{name}")), temporary.join(name));
        // Other users may pass through to their own folders.
        DirBuilder::new().mode(0o711).create(&new)?;
        let lock = File::create(new.join(LOCK))?;
        lock.lock()?;
        std::fs::rename(new, &path)?;
        Ok(Self { path, count: AtomicU64::new(0), _lock: lock })
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
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = folder::remove(&self.path);
    }
}

/// Whether the gateway of the folder `root` has ended: nobody holds its lock.
fn is_abandoned(root: &Path) -> bool {
    File::open(root.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_ended_gateways_are_removed() {
        let used = Root::new().unwrap();
        let left = std::env::temp_dir().join(format!("{PREFIX}0-{:016x}", fastrand::u64(..)));
        std::fs::create_dir_all(left.join("0/work")).unwrap();
        File::create(left.join(LOCK)).unwrap();
        let strange = std::env::temp_dir().join(format!("{PREFIX}of-somebody-else-{:016x}", fastrand::u64(..)));
        std::fs::create_dir(&strange).unwrap();
        let next = Root::new().unwrap();
        assert!(!left.exists() && used.path.exists() && next.path.exists() && strange.exists());
        std::fs::remove_dir(strange).unwrap();
        let (first, second) = (next.folder(None).unwrap(), next.folder(None).unwrap());
        assert!(first != second && first.is_dir());
        let path = next.path.clone();
        drop(next);
        assert!(!path.exists());
    }
}
