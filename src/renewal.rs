//! When files may have been renewed. Kubernetes renews a mounted Secret by renaming the link `..data` in its folder, so it is
//! folders that are watched, and every event counts; and since an event can be missed, time counts too.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

/// How often files are looked at without an event.
const POLL: Duration = Duration::from_secs(30);
/// How long to wait after an event for those that come with it.
const SETTLE: Duration = Duration::from_millis(100);

/// Tells when files may have been renewed.
#[derive(Debug)]
pub struct Renewals {
    events: mpsc::Receiver<()>,
    /// It watches for as long as it lives.
    _watcher: Option<RecommendedWatcher>,
}

impl Renewals {
    /// Those of `files`. Where the system cannot watch, time alone counts, which is told in the log.
    #[must_use]
    pub fn of(files: &[PathBuf]) -> Self {
        let (tell, events) = mpsc::channel(1);
        let watcher = watch(files, tell).inspect_err(|error| {
            tracing::warn!(%error, "files cannot be watched, and are looked at every {} s", POLL.as_secs());
        });
        Self { events, _watcher: watcher.ok() }
    }

    /// Waits until they may have been.
    pub async fn next(&mut self) {
        match timeout(POLL, self.events.recv()).await {
            Ok(Some(())) => sleep(SETTLE).await,
            // Nobody watches.
            Ok(None) => sleep(POLL).await,
            Err(_) => {}
        }
        while self.events.try_recv().is_ok() {}
    }
}

fn watch(files: &[PathBuf], tell: mpsc::Sender<()>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |_| {
        // One that waits already stands for this one too.
        let _ = tell.try_send(());
    })?;
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    for folder in folders {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
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

    #[tokio::test(start_paused = true)]
    async fn without_events_time_counts() {
        let mut renewals = Renewals::of(&["/nowhere/at/all/token".into()]);
        let began = tokio::time::Instant::now();
        renewals.next().await;
        renewals.next().await;
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
