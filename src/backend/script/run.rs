//! One run of a program: fed, read within limits, and never outliving its time with its whole
//! process group.

use std::{ffi::OsString, path::Path, process::Stdio, time::Duration};

use bytes::{Bytes, BytesMut};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    document::excerpt,
    error::{BackendError, ErrorKind},
    secret::Secrets,
};

/// What of stderr is kept: its end.
const STDERR_TAIL: usize = 64 * 1024;
/// How long output is awaited after the program has ended: a grandchild may hold the pipe for ever.
const AFTER_EXIT: Duration = Duration::from_millis(250);
/// Between the polite and the final signal.
const GRACE: Duration = Duration::from_secs(2);

/// A program, its surroundings and its limits.
#[derive(Debug)]
pub struct Job<'a> {
    /// An absolute path: with it, a cleared environment still allows the fast spawn.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [String],
    /// Its whole environment.
    pub environment: Vec<(String, OsString)>,
    /// Where it runs.
    pub folder: &'a Path,
    /// What it reads on stdin.
    pub input: Vec<u8>,
    /// The most it may write to stdout, in bytes.
    pub most: usize,
    /// What no message may repeat of its stderr.
    pub secrets: &'a Secrets,
    /// When it must be done.
    pub until: Instant,
}

/// Runs `job`; its stdout when it ended well.
///
/// # Errors
/// When it cannot start, ends with another status than 0, writes too much or takes too long.
pub async fn run(job: Job<'_>) -> Result<Bytes, BackendError> {
    let started = Instant::now();
    let mut child = Command::new(job.program)
        .args(job.arguments)
        .env_clear()
        .envs(job.environment)
        .current_dir(job.folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| BackendError::unavailable(format!("cannot start: {error}")))?;
    let group = Group::of(&child);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());

    let feed = async move {
        if let Some(mut stdin) = stdin {
            // A program may end without reading its input; that is its own business.
            let _ = stdin.write_all(&job.input).await;
        }
    };
    let (mut output, mut errors) = (Captured::default(), Captured::default());
    let watched = async {
        let reading = async { tokio::try_join!(output.read(stdout, job.most), errors.read_tail(stderr, STDERR_TAIL)) };
        tokio::pin!(reading, feed);
        let (mut is_read, mut is_fed) = (false, false);
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                ended = &mut reading, if !is_read => {
                    // At once: a program that is cut off ends by a signal that says nothing of why.
                    ended.ok()?;
                    is_read = true;
                }
                () = &mut feed, if !is_fed => is_fed = true,
            }
        };
        if !is_read && matches!(timeout(AFTER_EXIT, &mut reading).await, Ok(Err(TooMuch))) {
            return None;
        }
        Some(status)
    };
    let ended = timeout_at(job.until, watched).await;
    let told = || {
        let text = job.secrets.redact(&String::from_utf8_lossy(&errors.bytes));
        let tail = excerpt(last(&text, 600).as_bytes(), 600);
        if tail.is_empty() { String::new() } else { format!("; stderr: {tail}") }
    };
    match ended {
        Err(_) => {
            let after = started.elapsed().as_secs_f32();
            let error = BackendError::timeout(format!("not done after {after:.1} s, stopped{}", told()));
            group.end_politely(child);
            Err(error)
        }
        Ok(None) => {
            let error = BackendError::invalid_output(format!("wrote more than {} bytes to stdout, stopped", job.most));
            group.end_politely(child);
            Err(error)
        }
        Ok(Some(Err(error))) => Err(BackendError::unavailable(format!("cannot wait for it: {error}"))),
        Ok(Some(Ok(status))) if status.success() => Ok(output.bytes.freeze()),
        Ok(Some(Ok(status))) => Err(BackendError::new(ErrorKind::Unavailable, format!("{status}{}", told()))),
    }
}

/// The program's process group: ended with it, however the run ends.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw))
    }

    /// TERM now, KILL after a grace; in the background, since no caller waits for it.
    fn end_politely(self, mut child: Child) {
        self.signal(Signal::SIGTERM);
        tokio::spawn(async move {
            let _ = timeout(GRACE, child.wait()).await;
            sleep(Duration::from_millis(50)).await;
            drop(self);
        });
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // Fails when nobody is left, which is the aim.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// A pipe delivered more than it may.
#[derive(Debug)]
struct TooMuch;

/// What a pipe delivered so far; kept outside the reading future, which may be dropped.
#[derive(Default)]
struct Captured {
    bytes: BytesMut,
}

impl Captured {
    /// Reads to the end, or until there is more than `most`.
    async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>, most: usize) -> Result<(), TooMuch> {
        let Some(mut pipe) = pipe else { return Ok(()) };
        while matches!(pipe.read_buf(&mut self.bytes).await, Ok(1..)) {
            if self.bytes.len() > most {
                return Err(TooMuch);
            }
        }
        Ok(())
    }

    /// Reads to the end and keeps about the last `most` bytes.
    async fn read_tail(&mut self, pipe: Option<impl AsyncRead + Unpin>, most: usize) -> Result<(), TooMuch> {
        let Some(mut pipe) = pipe else { return Ok(()) };
        while matches!(pipe.read_buf(&mut self.bytes).await, Ok(1..)) {
            if self.bytes.len() > 2 * most {
                let _ = self.bytes.split_to(self.bytes.len() - most);
            }
        }
        Ok(())
    }
}

/// About the last `most` bytes.
fn last(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}
