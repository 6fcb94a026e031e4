//! The supervisor, from the gateway's side: a process that starts all launchers. If a launcher is killed, what its program started becomes
//! the supervisor's, which ends it. If the gateway is killed, the supervisor stays until nothing is left.

mod inside;

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::Path,
    process::Stdio,
};

use serde::{Deserialize, Serialize};
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::{mpsc, oneshot},
};

pub(super) use self::inside::supervise;
use super::{
    ARGUMENT, Opening,
    failure::StartFailure,
    link::{Reports, Requests},
    open_files::for_programs,
};

/// A message from the gateway to the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorRequest {
    /// Start a launcher. Its socket comes with the message.
    Start,
    /// Kill the launcher with this process id, if it is still there.
    Kill(u32),
}

/// A message from the supervisor to the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SupervisorReport {
    /// The next launcher that was requested has this process id, or could not be started.
    Started(Result<u32, StartFailure>),
    /// The launcher with this process id has ended, and so has everything that it left.
    Gone(u32),
}

/// The supervisor of a gateway. It ends when this and all its launchers are dropped.
#[derive(Debug, Clone)]
pub(super) struct Supervisor(mpsc::UnboundedSender<Wanted>);

/// A launcher's process.
#[derive(Debug)]
pub(super) struct LauncherProcess {
    id: u32,
    gone: oneshot::Receiver<()>,
    supervisor: Supervisor,
}

/// The requests of the gateway to the supervisor.
#[derive(Debug)]
enum Wanted {
    Start(OwnedFd, oneshot::Sender<Result<Started, StartFailure>>),
    Kill(u32),
}

/// A launcher that was started.
#[derive(Debug)]
struct Started {
    id: u32,
    gone: oneshot::Receiver<()>,
}

impl Supervisor {
    /// Starts a supervisor. `program` is the gateway's own.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(program: &Path) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = Command::new(program)
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let (wanted, requests) = mpsc::unbounded_channel();
        tokio::spawn(attend(process, UnixStream::from_std(ours)?, requests));
        Ok(Self(wanted))
    }

    /// Whether it is still there.
    pub(super) fn is_there(&self) -> bool {
        !self.0.is_closed()
    }

    /// Starts a launcher whose standard input is `socket`.
    ///
    /// # Errors
    /// When it cannot be started, or the supervisor has ended.
    pub(super) async fn launch(&self, socket: OwnedFd) -> Result<LauncherProcess, StartFailure> {
        let ended = || StartFailure::from("the process that starts launchers has ended".to_owned());
        let (reply, started) = oneshot::channel();
        self.0.send(Wanted::Start(socket, reply)).map_err(|_| ended())?;
        let Started { id, gone } = started.await.map_err(|_| ended())??;
        Ok(LauncherProcess { id, gone, supervisor: self.clone() })
    }
}

impl LauncherProcess {
    /// Its process id.
    pub(super) const fn id(&self) -> u32 {
        self.id
    }

    /// Whether its supervisor is still there.
    pub(super) fn is_supervised(&self) -> bool {
        self.supervisor.is_there()
    }

    /// Kills it.
    pub(super) fn kill(&self) {
        // Without a supervisor it ends when its socket is closed.
        let _ = self.supervisor.0.send(Wanted::Kill(self.id));
    }

    /// Waits until it has ended, and everything that it left. Returns at once if the supervisor has ended.
    pub(super) async fn gone(&mut self) {
        let _ = (&mut self.gone).await;
    }
}

/// Talks to the supervisor `process` over `socket`, until either side is done.
async fn attend(mut process: Child, socket: UnixStream, mut wanted: mpsc::UnboundedReceiver<Wanted>) {
    if let Err(error) = converse(socket, &mut wanted).await {
        tracing::warn!(%error, "the process that starts launchers has ended; another one is started");
    }
    // Closes the channels of all callers who wait: their launchers are gone. Nobody is added.
    drop(wanted);
    let _ = process.wait().await;
}

async fn converse(socket: UnixStream, wanted: &mut mpsc::UnboundedReceiver<Wanted>) -> io::Result<()> {
    let (reports, requests) = socket.into_split();
    let (mut reports, mut requests) = (Reports::new(reports), Requests::new(requests));
    requests.send(&Opening::Supervisor { open_files: for_programs() }, &[]).await?;
    let (mut starting, mut running) = (VecDeque::new(), HashMap::<u32, oneshot::Sender<()>>::new());
    loop {
        tokio::select! {
            request = wanted.recv() => match request {
                None => return Ok(()),
                Some(Wanted::Kill(id)) => requests.send(&SupervisorRequest::Kill(id), &[]).await?,
                Some(Wanted::Start(socket, reply)) => {
                    starting.push_back(reply);
                    requests.send(&SupervisorRequest::Start, &[socket]).await?;
                }
            },
            report = reports.next() => match report? {
                SupervisorReport::Started(started) => {
                    let reply: Option<oneshot::Sender<_>> = starting.pop_front();
                    let started = started.map(|id| {
                        let (end, gone) = oneshot::channel();
                        running.insert(id, end);
                        Started { id, gone }
                    });
                    // If nobody waits any more, the launcher sees its socket closed and ends.
                    let _ = reply.map(|reply| reply.send(started));
                }
                SupervisorReport::Gone(id) => {
                    if let Some(end) = running.remove(&id) {
                        let _ = end.send(());
                    }
                }
            },
        }
    }
}
