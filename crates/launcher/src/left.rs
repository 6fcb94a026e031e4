//! The work folder of a launcher that has ended: removed, or kept for a person who looks for a mistake.

use std::{
    fs::{Permissions, read_dir, rename, set_permissions},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::{runtime::Handle, sync::OwnedSemaphorePermit};

use super::{folder::OWN, host::LauncherHost};

/// What an entry takes on the disk at least, in bytes: about a block.
const ENTRY: u64 = 4096;

/// The work folder of a program that has ended, with all that it left there. No process of the program is left. Dropping it removes it.
#[derive(Debug)]
pub struct LeftFolder {
    /// Empty once it was removed or kept.
    folder: PathBuf,
    host: Arc<LauncherHost>,
    /// The place of its program, which no other program of its kind takes before the folder is gone.
    place: Option<OwnedSemaphorePermit>,
}

/// A folder that was kept. It stays until it is removed.
#[derive(Debug)]
pub struct KeptFolder {
    path: PathBuf,
    host: Arc<LauncherHost>,
}

impl LeftFolder {
    /// The work folder `folder`.
    pub(super) const fn new(folder: PathBuf, host: Arc<LauncherHost>) -> Self {
        Self { folder, host, place: None }
    }

    /// The same, which holds `place` until it is gone.
    pub(super) fn holding(mut self, place: Option<OwnedSemaphorePermit>) -> Self {
        self.place = place;
        self
    }

    /// Removes it.
    pub(crate) async fn remove(mut self) {
        let folder = std::mem::take(&mut self.folder);
        self.host.remove(folder).await;
    }

    /// The bytes on the disk of all that is in it, or `None` if these are more than `max`. Each folder in it can be read and removed by its
    /// owner afterwards. Blocks.
    ///
    /// # Errors
    /// When it cannot be read, as with very deep folders.
    pub fn size(&self, max: u64) -> io::Result<Option<u64>> {
        if !self.folder.symlink_metadata()?.is_dir() {
            // A program may have replaced it, if its terms permit that.
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let (mut bytes, mut folders) = (0, vec![self.folder.clone()]);
        while let Some(folder) = folders.pop() {
            set_permissions(&folder, Permissions::from_mode(OWN))?;
            for entry in read_dir(&folder)? {
                let entry = entry?;
                // Of a link, not of its target.
                let data = entry.metadata()?;
                bytes += ENTRY.max(data.blocks() * 512);
                if bytes > max {
                    return Ok(None);
                }
                if data.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        Ok(Some(bytes))
    }

    /// Moves it to `to`, which must be a new path in the same file system. Blocks.
    ///
    /// # Errors
    /// When it cannot be moved.
    pub fn keep(mut self, to: &Path) -> io::Result<KeptFolder> {
        rename(&self.folder, to)?;
        self.folder = PathBuf::new();
        Ok(KeptFolder { path: to.to_owned(), host: Arc::clone(&self.host) })
    }
}

impl Drop for LeftFolder {
    fn drop(&mut self) {
        if self.folder.as_os_str().is_empty() {
            return;
        }
        // Without a runtime, it goes with the folder of all work folders.
        if let Ok(runtime) = Handle::try_current() {
            let (folder, host, place) = (std::mem::take(&mut self.folder), Arc::clone(&self.host), self.place.take());
            runtime.spawn(async move {
                host.remove(folder).await;
                drop(place);
            });
        }
    }
}

impl KeptFolder {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it.
    pub async fn remove(self) {
        self.host.remove(self.path).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_size_counts_all_entries_and_opens_all_folders() {
        let outer = tempfile::tempdir().unwrap();
        let work = outer.path().join("work");
        std::fs::create_dir_all(work.join("a/closed")).unwrap();
        std::fs::write(work.join("a/closed/file"), vec![1; 10_000]).unwrap();
        symlink("/", work.join("link")).unwrap();
        set_permissions(work.join("a/closed"), Permissions::from_mode(0o000)).unwrap();
        let left = LeftFolder::new(work.clone(), Arc::new(LauncherHost::new("/proc/self/exe".into())));
        assert_eq!(left.size(3 * ENTRY + 9_999).unwrap(), None);
        let size = left.size(u64::MAX).unwrap().unwrap();
        assert!((3 * ENTRY + 10_000..=3 * ENTRY + 20_000).contains(&size), "{size}");
        assert_eq!(work.join("a/closed").metadata().unwrap().permissions().mode() & 0o777, OWN);
        let kept = left.keep(&outer.path().join("kept")).unwrap();
        assert_eq!(std::fs::read(kept.path().join("a/closed/file")).unwrap().len(), 10_000);
        assert!(!work.exists());
    }
}
