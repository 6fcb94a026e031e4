//! The common parts of all launchers of a gateway: the supervisor that starts them, and the folder of their work folders. Whatever
//! touches files runs on threads that may block, and the files of programs are removed by a process that can do nothing else.

use std::{
    io,
    os::unix::{fs::MetadataExt as _, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use nix::unistd::geteuid;
use parking_lot::Mutex;
use tokio::{
    net::UnixStream,
    sync::{Mutex as AsyncMutex, Semaphore},
    task::spawn_blocking,
    time::timeout,
};

use super::{
    ENDING, Opening,
    failure::StartFailure,
    link::{Reports, Requests},
    root::Root,
    supervisor::{LauncherProcess, Supervisor},
    terms::{LaunchOptions, ProcessLimits, ProgramUser},
    wire::LauncherReport,
};

/// How long the removal of one work folder may take. Some disks need milliseconds for each folder.
pub(super) const EMPTYING: Duration = Duration::from_mins(10);
/// How many work folders are emptied at once by processes of their own.
const MAX_EMPTYING: usize = 2;
/// The memory of such a process, in bytes.
const EMPTYING_BYTES: u64 = 512 * 1024 * 1024;

/// The common parts of all launchers of a gateway.
#[derive(Debug)]
pub(super) struct LauncherHost {
    /// The gateway's own program.
    program: PathBuf,
    supervisor: Mutex<Option<Supervisor>>,
    /// The folder of the work folders, once it exists. The lock is never held by a task that may be cancelled.
    root: Arc<AsyncMutex<Option<Root>>>,
    /// Whether the folders of earlier gateways are removed already.
    is_tidy: AtomicBool,
    emptying: Semaphore,
}

impl LauncherHost {
    /// Nothing is started yet. `program` is the gateway's own.
    pub(super) fn new(program: PathBuf) -> Self {
        Self {
            program,
            supervisor: Mutex::default(),
            root: Arc::default(),
            is_tidy: AtomicBool::new(false),
            emptying: Semaphore::new(MAX_EMPTYING),
        }
    }

    /// Starts a launcher's process. Also returns the socket to it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) async fn launch(&self) -> Result<(LauncherProcess, UnixStream), StartFailure> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = self.supervisor()?.launch(theirs.into()).await?;
        Ok((process, UnixStream::from_std(ours)?))
    }

    /// The supervisor. Another one if the last has ended.
    fn supervisor(&self) -> io::Result<Supervisor> {
        let mut supervisor = self.supervisor.lock();
        if let Some(there) = supervisor.as_ref().filter(|supervisor| supervisor.is_there()) {
            return Ok(there.clone());
        }
        let new = Supervisor::start(&self.program)?;
        *supervisor = Some(new.clone());
        Ok(new)
    }

    /// A new work folder for a launcher of `user`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) async fn folder(self: &Arc<Self>, user: Option<ProgramUser>) -> io::Result<PathBuf> {
        let mut root = Arc::clone(&self.root).lock_owned().await;
        let made = spawn_blocking(move || {
            if let Some(there) = &*root {
                match there.folder(user) {
                    // The folder was removed meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    result => return result,
                }
            }
            root.insert(Root::new()?).folder(user)
        });
        let folder = made.await.map_err(io::Error::other)?;
        if !self.is_tidy.swap(true, Ordering::Relaxed) {
            let host = Arc::clone(self);
            tokio::spawn(async move { host.remove_left().await });
        }
        folder
    }

    /// Removes the folders of gateways that have ended.
    async fn remove_left(&self) {
        for root in spawn_blocking(Root::left).await.unwrap_or_default() {
            self.remove_all(root).await;
        }
    }

    /// Removes `root` and all work folders in it.
    async fn remove_all(&self, root: Root) {
        let listed = spawn_blocking(move || (root.folders(), root)).await;
        if let Ok((folders, root)) = listed {
            join_all(folders.into_iter().map(|folder| self.remove(folder))).await;
            let _ = spawn_blocking(move || drop(root)).await;
        }
    }

    /// Removes a work folder with any content.
    pub(super) async fn remove(&self, folder: PathBuf) {
        if is_removed(&folder).await {
            return;
        }
        let Ok(_permit) = self.emptying.acquire().await else { return };
        let emptied = timeout(EMPTYING + ENDING, self.empty(&folder)).await;
        let why = match emptied.unwrap_or_else(|_| Err("it takes too long".to_owned())) {
            Ok(()) if is_removed(&folder).await => return,
            Ok(()) => "something was added to it".to_owned(),
            Err(why) => why,
        };
        let folder = folder.display();
        tracing::warn!(%folder, %why, "a script's work folder cannot be removed; the next start tries it again");
    }

    /// Empties a work folder by a process that may do nothing else, and that belongs to the folder's user.
    async fn empty(&self, folder: &Path) -> Result<(), String> {
        let path = folder.to_owned();
        let data = spawn_blocking(move || path.symlink_metadata()).await.map_err(|error| error.to_string())?;
        let data = data.map_err(|error| error.to_string())?;
        let user = (data.uid() != geteuid().as_raw()).then(|| ProgramUser { uid: data.uid(), gid: data.gid() });
        let limits = ProcessLimits { memory: Some(EMPTYING_BYTES), ..ProcessLimits::default() };
        let terms = LaunchOptions { limits, user, ..LaunchOptions::default() };
        let (process, socket) = self.launch().await.map_err(|failure| failure.why)?;
        let (reports, requests) = socket.into_split();
        let (mut reports, mut requests) = (Reports::new(reports), Requests::new(requests));
        let opening = Opening::Emptying { terms, folder: folder.to_owned() };
        requests.send(&opening, &[]).await.map_err(|error| error.to_string())?;
        let report = reports.next().await;
        process.kill();
        match report {
            Ok(LauncherReport::Ready(_)) => Ok(()),
            Ok(LauncherReport::NotStarted(failure)) => Err(failure.why),
            Ok(LauncherReport::Ended(_)) => Err("an unexpected message".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Removes all work folders, within a short time. The next gateway removes the others.
    pub(super) async fn close(&self) {
        let removing = async {
            if let Some(root) = self.root.lock().await.take() {
                self.remove_all(root).await;
            }
        };
        if timeout(ENDING, removing).await.is_err() {
            tracing::warn!("some work folders of scripts are left; the next start removes them");
        }
    }
}

/// Removes `folder` if it is empty. Returns whether it is gone.
async fn is_removed(folder: &Path) -> bool {
    let folder = folder.to_owned();
    let removed = spawn_blocking(move || std::fs::remove_dir(&folder).map_err(|error| error.kind()));
    matches!(removed.await, Ok(Ok(()) | Err(io::ErrorKind::NotFound)))
}
