//! The folder that holds the launchers' folders. It is gone when the gateway ends; one that was left by `kill -9` is
//! removed by the next gateway.

use std::{
    fs::{DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, chown},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use super::{User, folder};

/// What the folders' names begin with.
const PREFIX: &str = "appset-gateway-";
/// Held locked as long as the gateway lives.
const LOCK: &str = "lock";

/// A gateway's folder for its launchers.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    count: AtomicU64,
    _lock: File,
}

impl Root {
    /// A new one in the system's folder for temporary files, where those of gateways that are gone are removed.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn new() -> io::Result<Self> {
        let temporary = std::env::temp_dir();
        let left = std::fs::read_dir(&temporary).into_iter().flatten().flatten();
        left.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX))
            .filter(|entry| is_left(&entry.path()))
            .for_each(|entry| _ = folder::remove(&entry.path()));
        let name = format!("{PREFIX}{}-{:016x}", std::process::id(), fastrand::u64(..));
        // Under another name until it is locked: a gateway that starts meanwhile would take it for one that was left.
        let (new, path) = (temporary.join(format!(".{name}")), temporary.join(name));
        // Others may pass through, to a folder that is theirs.
        DirBuilder::new().mode(0o711).create(&new)?;
        let lock = File::create(new.join(LOCK))?;
        lock.lock()?;
        std::fs::rename(new, &path)?;
        Ok(Self { path, count: AtomicU64::new(0), _lock: lock })
    }

    /// A folder for a launcher of `user`, which nobody else can look into.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn folder(&self, user: Option<User>) -> io::Result<PathBuf> {
        let own = self.path.join(self.count.fetch_add(1, Ordering::Relaxed).to_string());
        folder::make(&own)?;
        if let Some(User { uid, gid }) = user {
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

/// Whether nobody holds the lock of the folder `root`.
fn is_left(root: &Path) -> bool {
    File::open(root.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_is_removed_and_what_is_used_is_not() {
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
