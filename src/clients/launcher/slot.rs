//! One launcher, from the gateway's side.

use std::{
    io::{self, PipeReader, PipeWriter, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use rustix::io::ioctl_fionbio;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Interest},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    process::{Child, Command},
};

use super::{
    ARGUMENT, Launchers, Opening, folder,
    terms::{Identities, LaunchOptions},
    tree,
    usage::Meter,
    wire::{self, LauncherReport, LauncherRequest, STREAMS},
};

/// A launcher process and the socket to it. The launcher ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Launcher {
    process: Child,
    reports: Reports,
    requests: OwnedWriteHalf,
    folder: PathBuf,
    identities: Identities,
}

/// The messages from a launcher.
#[derive(Debug)]
pub(crate) struct Reports {
    socket: OwnedReadHalf,
    /// Received bytes that are not a whole frame yet.
    taken: Vec<u8>,
}

impl Launcher {
    /// Starts a launcher with `terms`. Also returns what the kernel could not take away from it.
    ///
    /// # Errors
    /// When no launcher with these terms can be started.
    pub(crate) async fn open(launchers: &Launchers, terms: &LaunchOptions) -> Result<(Self, Vec<String>), String> {
        let folder = launchers.folder(terms.user).map_err(|error| format!("cannot make a folder for it: {error}"))?;
        let failed = |error: io::Error| format!("its launcher: {error}");
        let mut slot = Self::launch(launchers, folder, terms.identities()).map_err(failed)?;
        let opening = Opening { terms: terms.clone(), folder: slot.folder.clone() };
        slot.send(&opening).await.map_err(failed)?;
        match slot.reports.next().await.map_err(failed)? {
            LauncherReport::Ready(lacks) => Ok((slot, lacks)),
            LauncherReport::NotStarted(failure) => Err(failure.why),
            LauncherReport::Ended(_) => Err("its launcher sent an unexpected message".to_owned()),
        }
    }

    fn launch(launchers: &Launchers, folder: PathBuf, identities: Identities) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let process = Command::new(&launchers.program)
            .arg(ARGUMENT)
            .env_clear()
            .current_dir("/")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        let (reports, requests) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { process, reports: Reports { socket: reports, taken: Vec::new() }, requests, folder, identities })
    }

    /// Starts a program with `streams`. `frame` holds the [`LauncherRequest::Start`].
    ///
    /// # Errors
    /// When the launcher has ended.
    pub(crate) async fn start(&mut self, frame: &[u8], streams: &[OwnedFd; STREAMS]) -> io::Result<()> {
        let socket: &UnixStream = self.requests.as_ref();
        let sent = loop {
            socket.writable().await?;
            match socket.try_io(Interest::WRITABLE, || wire::send_with(socket, frame, streams)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => break result?,
            }
        };
        self.requests.write_all(&frame[sent..]).await
    }

    /// The messages from the launcher.
    pub(crate) const fn reports(&mut self) -> &mut Reports {
        &mut self.reports
    }

    /// Asks the launcher to end the program. A cancelled call has sent nothing.
    ///
    /// # Errors
    /// When the launcher has ended.
    pub(crate) async fn stop(&mut self, grace: Duration) -> io::Result<()> {
        let frame = wire::frame(&LauncherRequest::Stop(grace))?;
        loop {
            self.requests.writable().await?;
            match self.requests.try_write(&frame) {
                Ok(written) if written == frame.len() => return Ok(()),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn send(&mut self, message: &impl serde::Serialize) -> io::Result<()> {
        self.requests.write_all(&wire::frame(message)?).await
    }

    /// Measures what the program uses.
    pub(crate) fn meter(&self) -> Meter {
        Meter { launcher: self.process.id() }
    }

    /// Whether `terms` still lead to the same files as when the launcher started.
    pub(crate) fn is_good(&self, terms: &LaunchOptions) -> bool {
        self.identities == terms.identities()
    }

    /// Kills the launcher. For idle launchers only.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.start_kill();
    }

    /// Kills the launcher and all remaining processes of its program, and removes its folder.
    pub(crate) async fn destroy(mut self) {
        let leader = self.process.id().and_then(|id| i32::try_from(id).ok());
        let _ = self.process.kill().await;
        let work = std::mem::take(&mut self.folder);
        let clear = tokio::task::spawn_blocking(move || {
            leader.into_iter().for_each(tree::kill_session);
            // A folder that cannot be removed does no harm: no other program can read it.
            let _ = folder::remove(&work);
        });
        let _ = clear.await;
    }
}

impl Reports {
    /// Waits for the next message. A cancelled call loses nothing.
    ///
    /// # Errors
    /// When the launcher has ended.
    pub(crate) async fn next(&mut self) -> io::Result<LauncherReport> {
        loop {
            if let Some(body) = wire::body(&self.taken)?.filter(|body| body.end <= self.taken.len()) {
                let report = wire::message(&self.taken[body.clone()])?;
                self.taken.drain(..body.end);
                return Ok(report);
            }
            if self.socket.read_buf(&mut self.taken).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// How much an empty pipe takes at once, in bytes (pipe(7), `PIPE_BUF`).
const MAX_SHORT_INPUT: usize = 4096;

/// The gateway's ends of the pipes to a program.
#[derive(Debug)]
pub(crate) struct Ends {
    /// The program's standard input.
    pub(crate) stdin: PipeWriter,
    /// The program's standard output. Reading never blocks.
    pub(crate) stdout: PipeReader,
    /// The program's standard error. Reading never blocks.
    pub(crate) stderr: PipeReader,
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
