//! One launcher, from the gateway's side.

use std::{
    io::{self, PipeReader, PipeWriter, Write},
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use rustix::io::ioctl_fionbio;
use tokio::time::timeout;

use super::{
    ENDING, Launchers, Opening,
    failure::StartFailure,
    host::LauncherHost,
    left::LeftFolder,
    link::{Reports, Requests},
    supervisor::LauncherProcess,
    terms::{Identities, LaunchOptions},
    usage::Meter,
    wire::{self, LauncherReport, LauncherRequest, STREAMS},
};

/// A launcher process and the socket to it. The launcher ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Launcher {
    process: LauncherProcess,
    reports: Reports,
    requests: Requests,
    folder: PathBuf,
    identities: Identities,
    host: Arc<LauncherHost>,
}

impl Launcher {
    /// Starts a launcher with `terms`. Also returns the rights that the kernel could not take away from it.
    ///
    /// # Errors
    /// When no launcher with these terms can be started.
    pub(crate) async fn open(launchers: &Launchers, terms: &LaunchOptions) -> Result<(Self, Vec<String>), String> {
        let (host, identities) = (Arc::clone(&launchers.host), terms.identities());
        let folder = host.folder(terms.user).await.map_err(|error| format!("cannot make a folder for it: {error}"))?;
        let failed = |failure: StartFailure| format!("its launcher: {}", failure.why);
        let (process, socket) = host.launch().await.map_err(failed)?;
        let (reports, requests) = socket.into_split();
        let (reports, requests) = (Reports::new(reports), Requests::new(requests));
        let mut slot = Self { process, reports, requests, folder, identities, host };
        match slot.begin(terms).await {
            Ok(LauncherReport::Ready(lacks)) => Ok((slot, lacks)),
            report => {
                tokio::spawn(slot.destroy());
                match report {
                    Ok(LauncherReport::NotStarted(failure)) => Err(failure.why),
                    Ok(_) => Err("its launcher sent an unexpected message".to_owned()),
                    Err(error) => Err(failed(error.into())),
                }
            }
        }
    }

    async fn begin(&mut self, terms: &LaunchOptions) -> io::Result<LauncherReport> {
        let opening = Opening::Launcher { terms: terms.clone(), folder: self.folder.clone() };
        self.requests.send(&opening, &[]).await?;
        self.next_report().await
    }

    /// Starts a program with `streams`. `frame` holds the [`LauncherRequest::Start`].
    ///
    /// # Errors
    /// When the launcher has ended.
    pub(crate) async fn start(&mut self, frame: &[u8], streams: &[OwnedFd; STREAMS]) -> io::Result<()> {
        self.requests.send_frame(frame, streams).await
    }

    /// Waits for the next message. A cancelled call loses nothing.
    ///
    /// # Errors
    /// When the launcher has ended.
    pub(crate) async fn next_report(&mut self) -> io::Result<LauncherReport> {
        self.reports.next().await
    }

    /// Asks the launcher to end the program. A cancelled call has sent nothing.
    ///
    /// # Errors
    /// When the launcher has ended.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<()> {
        self.requests.send_at_once(&wire::frame(&LauncherRequest::Stop(grace))?).await
    }

    /// Measures the program's usage.
    pub(crate) const fn meter(&self) -> Meter {
        Meter { launcher: Some(self.process.id()) }
    }

    /// Whether it may run another program: `terms` still lead to the same files as when it started, and its supervisor is still there.
    pub(crate) fn is_good(&self, terms: &LaunchOptions) -> bool {
        self.process.is_supervised() && self.identities == terms.identities()
    }

    /// Kills the launcher. For idle launchers only.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }

    /// Kills the launcher and all remaining processes of its program, and removes its folder.
    pub(crate) async fn destroy(self) {
        self.end().await.remove().await;
    }

    /// Kills the launcher and all remaining processes of its program. Its folder is left.
    pub(crate) async fn end(self) -> LeftFolder {
        let Self { mut process, mut reports, requests, folder, host, .. } = self;
        process.kill();
        // A launcher without a supervisor sees this.
        drop(requests);
        let ended = async {
            process.gone().await;
            while !process.is_supervised() && reports.next::<LauncherReport>().await.is_ok() {}
        };
        if timeout(ENDING, ended).await.is_err() {
            tracing::warn!(launcher = process.id(), "processes of a script may be left: they do not end");
        }
        LeftFolder::new(folder, host)
    }
}

/// How much an empty pipe takes at once, in bytes (pipe(7), `PIPE_BUF`).
const MAX_SHORT_INPUT: usize = 4096;

/// The gateway's ends of the pipes to a program.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The program's standard input.
    pub stdin: PipeWriter,
    /// The program's standard output. Reading never blocks.
    pub stdout: PipeReader,
    /// The program's standard error. Reading never blocks.
    pub stderr: PipeReader,
}

impl Ends {
    /// New pipes: the program's ends in the order stdin, stdout, stderr, and the gateway's ends.
    ///
    /// # Errors
    /// When the process has too many open files.
    pub(crate) fn new() -> io::Result<([OwnedFd; STREAMS], Self)> {
        let (their_in, stdin) = io::pipe()?;
        let (stdout, their_out) = io::pipe()?;
        let (stderr, their_err) = io::pipe()?;
        [stdout.as_fd(), stderr.as_fd()].into_iter().try_for_each(|fd| ioctl_fionbio(fd, true))?;
        Ok(([their_in.into(), their_out.into(), their_err.into()], Self { stdin, stdout, stderr }))
    }

    /// Writes `input` if it is short. Must be the first write. Returns whether it wrote.
    pub(crate) fn feed(&mut self, input: &[u8]) -> bool {
        input.len() <= MAX_SHORT_INPUT && self.stdin.write(input).is_ok_and(|written| written == input.len())
    }
}
