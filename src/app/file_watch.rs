//! Reports when files may have changed. Kubernetes updates a mounted Secret by renaming the link `..data` in its folder, so folders are
//! watched and every event counts. An event can be missed, so files are also polled every 30 s.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt};
use inotify::{EventStream, Inotify, WatchMask};
use tokio::time::{sleep, timeout};

/// How often files are polled without an event.
const POLL: Duration = Duration::from_secs(30);
/// How long to wait after an event for further ones of the same change.
const SETTLE: Duration = Duration::from_millis(100);

/// Reports when files may have changed.
#[derive(Debug)]
pub(crate) struct Renewals {
    /// Events of the files' folders; `None` if the system cannot watch them.
    events: Option<EventStream<[u8; 4096]>>,
}

impl Renewals {
    /// Watches `files`. If the system cannot watch, the files are only polled, and this is logged.
    #[must_use]
    pub(crate) fn of(files: &[PathBuf]) -> Self {
        let events = watch(files).inspect_err(unwatched);
        Self { events: events.ok() }
    }

    /// Waits until files may have changed.
    pub(crate) async fn next(&mut self) {
        let Some(events) = &mut self.events else { return sleep(POLL).await };
        match timeout(POLL, events.next()).await {
            Ok(Some(Ok(_))) => sleep(SETTLE).await,
            Ok(end) => {
                unwatched(&end.and_then(Result::err).unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()));
                self.events = None;
                return sleep(POLL).await;
            }
            Err(_) => return,
        }
        while let Some(Some(Ok(_))) = events.next().now_or_never() {}
    }
}

fn unwatched(error: &io::Error) {
    tracing::warn!(%error, "files cannot be watched, and are polled every {} s", POLL.as_secs());
}

/// Events of the folders of `files` that mean new content: renames, and files closed after writing. Reads are left out, because the gateway
/// itself reads. Writes to a file that stays open are left out too, such as to a log in the same folder.
fn watch(files: &[PathBuf]) -> io::Result<EventStream<[u8; 4096]>> {
    let renewed = WatchMask::CLOSE_WRITE | WatchMask::ATTRIB | WatchMask::CREATE | WatchMask::DELETE;
    let moved = WatchMask::MOVE | WatchMask::MOVE_SELF | WatchMask::DELETE_SELF;
    let inotify = Inotify::init()?;
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    for folder in folders {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        inotify.watches().add(folder, renewed | moved).map_err(|error| at(folder, &error))?;
    }
    inotify.into_event_stream([0; 4096])
}

fn at(folder: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_swapped_link_is_an_event() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (version, text) in [("..one", "1"), ("..two", "2")] {
            std::fs::create_dir(at(version)).unwrap();
            std::fs::write(at(version).join("token"), text).unwrap();
        }
        std::os::unix::fs::symlink("..one", at("..data")).unwrap();
        std::os::unix::fs::symlink("..data/token", at("token")).unwrap();
        let mut renewals = Renewals::of(&[at("token")]);
        let nothing = timeout(Duration::from_millis(300), renewals.next()).await;
        assert!(nothing.is_err(), "nothing happened");
        std::os::unix::fs::symlink("..two", at("..data_tmp")).unwrap();
        std::fs::rename(at("..data_tmp"), at("..data")).unwrap();
        timeout(Duration::from_secs(10), renewals.next()).await.unwrap();
        assert_eq!(std::fs::read_to_string(at("token")).unwrap(), "2");
    }

    #[tokio::test]
    async fn neither_a_look_nor_a_log_is_an_event() {
        use std::io::Write;

        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "1").unwrap();
        let mut log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut renewals = Renewals::of(std::slice::from_ref(&token));
        std::fs::read(&token).unwrap();
        log.write_all(b"a line\n").unwrap();
        let nothing = timeout(Duration::from_millis(300), renewals.next()).await;
        assert!(nothing.is_err(), "nothing was renewed");
        std::fs::write(&token, "2").unwrap();
        timeout(Duration::from_secs(10), renewals.next()).await.unwrap();
        std::fs::read(&token).unwrap();
        let nothing = timeout(Duration::from_millis(300), renewals.next()).await;
        assert!(nothing.is_err(), "all that came with it was one event");
    }

    #[tokio::test(start_paused = true)]
    async fn without_events_time_counts() {
        let mut renewals = Renewals::of(&["/nowhere/at/all/token".into()]);
        let began = tokio::time::Instant::now();
        renewals.next().await;
        renewals.next().await;
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
