//! The folder of archives, and the room in it.
//!
//! The files have no names, so the kernel removes them with this process. Only the folder itself may be left behind; the next relay removes it, and
//! sees by a lock which ones are in use.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FlockOperation, flock};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use crate::grpc::status::Status;
use domain::units::ByteSize;

/// The folder below the work folder.
const WORK: &str = "_cmp_relay";
/// The unit in which room is counted, in bytes.
const UNIT: u64 = 64 * 1024;

/// The folder, and the room in it.
#[derive(Debug)]
pub(super) struct SpoolFolder {
    /// Where files are made.
    pub(super) path: PathBuf,
    /// Locked as long as this process lives.
    _lock: File,
    room: Arc<Semaphore>,
    size: ByteSize,
    units: u32,
}

/// Room for one archive.
#[derive(Debug)]
pub(super) struct Room {
    permit: OwnedSemaphorePermit,
    /// The bytes that fit.
    bytes: u64,
    size: ByteSize,
}

impl SpoolFolder {
    /// Makes a folder of its own below `work`, for archives of `size` bytes together. Folders of relays that have ended are removed.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn new(work: Option<PathBuf>, size: ByteSize) -> io::Result<Self> {
        let all = work.unwrap_or_else(std::env::temp_dir).join(WORK);
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", all.display()));
        DirBuilder::new().recursive(true).mode(0o700).create(&all).map_err(failed)?;
        // No other relay removes a folder whose lock is not there yet.
        let _alone = locked(&all.join("lock"), FlockOperation::LockExclusive).map_err(failed)?;
        for folder in fs::read_dir(&all).map_err(failed)?.flatten().filter(|entry| entry.path().is_dir()) {
            let path = folder.path();
            if locked(&path.join("lock"), FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_dir_all(path);
            }
        }
        let path = all.join(format!("{}-{:08x}", std::process::id(), fastrand::u32(..)));
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let lock = locked(&path.join("lock"), FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
        let units = u32::try_from(size.0.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX >> 4).min(u32::MAX >> 4);
        Ok(Self { path, _lock: lock, room: Arc::new(Semaphore::new(units as usize)), size, units })
    }

    /// Waits for room for an archive of `bytes`, until `until`. Earlier calls come first.
    ///
    /// # Errors
    /// When there is none in time, or never.
    pub(super) async fn room(&self, bytes: u64, until: Instant) -> Result<Room, Status> {
        let size = self.size;
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX);
        if units > self.units {
            return Err(Status::unknown(format!(
                "the archive of {} is larger than the relay's spool of {size} (`spool`)",
                ByteSize(bytes)
            )));
        }
        match timeout_at(until, Arc::clone(&self.room).acquire_many_owned(units)).await {
            Ok(Ok(permit)) => Ok(Room { permit, bytes, size }),
            _ => Err(Status::unknown(format!(
                "the relay's spool of {size} is full of archives of other calls, and had no room in time (`spool`)"
            ))),
        }
    }

    /// Removes the folder, at the end of the process.
    pub(super) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.path);
    }

    /// The bytes that are taken.
    pub(super) fn taken(&self) -> u64 {
        (self.units as usize - self.room.available_permits()) as u64 * UNIT
    }
}

impl Room {
    /// `bytes` have come in all. Takes more room if they are more than what was announced.
    ///
    /// # Errors
    /// When there is no more.
    pub(super) fn hold(&mut self, bytes: u64) -> Result<(), Status> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let units = u32::try_from((bytes - self.bytes).div_ceil(UNIT)).unwrap_or(u32::MAX) as usize;
        let more = Arc::clone(self.permit.semaphore()).try_acquire_many_owned(u32::try_from(units).unwrap_or(u32::MAX));
        let Ok(more) = more else {
            return Err(Status::unknown(format!(
                "the archive is larger than announced, and the relay's spool of {} has no room for it (`spool`)",
                self.size
            )));
        };
        self.permit.merge(more);
        self.bytes += units as u64 * UNIT;
        Ok(())
    }
}

impl Drop for SpoolFolder {
    fn drop(&mut self) {
        self.remove();
    }
}

fn locked(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    flock(&file, operation)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_room_and_are_refused_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let spool = SpoolFolder::new(Some(folder.path().to_owned()), ByteSize::mib(1)).unwrap();
        let soon = || Instant::now() + Duration::from_secs(1);
        let never = spool.room(1024 * 1024 + 1, soon()).await.unwrap_err();
        assert!(never.message.contains("larger than the relay's spool of 1.0 MiB"), "{never}");
        let mut first = spool.room(700_000, soon()).await.unwrap();
        let refused = spool.room(700_000, soon()).await.unwrap_err();
        assert!(refused.message.contains("full of archives of other calls"), "{refused}");
        first.hold(700_000).unwrap();
        first.hold(1_000_000).unwrap();
        assert!(first.hold(2_000_000).unwrap_err().message.contains("larger than announced"));
        let waiting = spool.room(1024 * 1024, soon());
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut waiting).await.is_err());
        drop(first);
        let all = waiting.await.unwrap();
        assert_eq!(spool.taken(), 1024 * 1024);
        drop(all);
        assert_eq!(spool.taken(), 0);
    }

    #[test]
    fn a_folder_of_a_live_relay_stays_and_that_of_a_dead_one_goes() {
        let folder = tempfile::tempdir().unwrap();
        let new = || SpoolFolder::new(Some(folder.path().to_owned()), ByteSize::mib(1)).unwrap();
        let dead = folder.path().join(WORK).join("dead");
        fs::create_dir_all(&dead).unwrap();
        fs::write(dead.join("left"), "x").unwrap();
        let (one, two) = (new(), new());
        assert!(one.path.exists() && two.path.exists() && one.path != two.path && !dead.exists());
        let path = two.path.clone();
        drop(two);
        assert!(!path.exists() && one.path.exists());
    }
}
