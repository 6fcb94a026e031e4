//! Runs a program once: writes its input, reads its output within limits, and ends it in time with all its descendants.

use std::borrow::Cow;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::{
    capture::{Capture, Keep, Lost},
    pipes::{Exit, Pipes},
};
use domain::{document::excerpt, error::BackendError, generator::watch::Watch, secret::Secrets};
use launcher::{Ended, Environment, LaunchError, LauncherPool, Program, Running};

/// How much of the end of stderr is kept, in bytes.
pub(crate) const STDERR_TAIL: usize = 64 * 1024;
/// How much of stderr a message shows, in characters.
const SHOWN_TAIL: usize = 600;
/// The initial buffer for stdout, in bytes. The output of most programs fits.
const USUAL_OUTPUT: usize = 4 * 1024;

/// The input of a program, and its limits.
#[derive(Debug)]
pub(super) struct Job<'a> {
    /// Starts the program.
    pub launchers: &'a LauncherPool,
    /// The program's stdin.
    pub input: Vec<u8>,
    /// The most that the program may write to stdout, in bytes.
    pub max_output: usize,
    /// Secrets that no message may repeat from stderr.
    pub secrets: &'a Secrets,
    /// When the program must be done.
    pub deadline: Instant,
    /// The limit that sets the deadline, in words.
    pub limit: Cow<'static, str>,
    /// Records stderr and usage, if the request is watched.
    pub watch: Option<&'a Watch>,
}

/// A run that ended within its limits.
#[derive(Debug)]
pub(super) struct Run {
    /// The program's stdout.
    pub output: Bytes,
    /// Whether the output is whole: no process was killed that could have written more.
    pub is_whole: bool,
    /// The end of the program's stderr.
    pub stderr: Stderr,
    /// How the program ended.
    pub ended: Ended,
}

/// The end of a program's stderr.
#[derive(Debug, Default)]
pub(super) struct Stderr(Vec<u8>);

impl Stderr {
    /// A stderr that ends with `bytes`.
    #[must_use]
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// All kept text, without `secrets`.
    #[must_use]
    pub(super) fn whole(&self, secrets: &Secrets) -> String {
        secrets.redact(&String::from_utf8_lossy(&self.0))
    }

    /// The end of the text in one line for a message, without `secrets`: `; stderr: …`, or nothing.
    #[must_use]
    pub(super) fn tail(&self, secrets: &Secrets) -> String {
        let text = self.whole(secrets);
        let tail = excerpt(last(&text, SHOWN_TAIL).as_bytes(), SHOWN_TAIL);
        if tail.is_empty() { String::new() } else { format!("; stderr: {tail}") }
    }

    /// Whether the text mentions a denied permission.
    #[must_use]
    pub(crate) fn is_about_permission(&self) -> bool {
        let text = String::from_utf8_lossy(&self.0);
        ["Permission denied", "EACCES", "PermissionError"].iter().any(|words| text.contains(words))
    }

    /// The last line that is not blank, without `secrets`.
    #[must_use]
    pub(crate) fn last_line(&self, secrets: &Secrets) -> Option<String> {
        let text = self.whole(secrets);
        let line = text.lines().rfind(|line| !line.trim().is_empty())?;
        Some(excerpt(line.as_bytes(), SHOWN_TAIL))
    }
}

/// Runs `program` with `environment` for `job` until it has ended, whatever its status.
///
/// # Errors
/// When the program cannot start, writes too much or takes too long.
pub(super) async fn run(program: &Program, environment: &Environment<'_>, job: Job<'_>) -> Result<Run, LaunchError> {
    let running = job.launchers.start(program, environment, &job.input, job.deadline).await?;
    let Running { stdin, stdout, stderr, mut charge, .. } = running;
    let mut pipes = Pipes {
        output: Capture::new(stdout, USUAL_OUTPUT, Keep::AtMost(job.max_output)),
        errors: Capture::new(stderr, 0, Keep::Last(STDERR_TAIL)),
    };
    let exit = timeout_at(job.deadline, pipes.read_to_exit(&mut charge, stdin, &job.input)).await;
    if exit.is_err() {
        // The program may have written more since the last read.
        let _ = pipes.errors.read_available();
    }
    let (output, stderr) = (pipes.output.bytes, Stderr(pipes.errors.bytes));
    if let Some(watch) = job.watch {
        watch.note(|step| {
            step.stderr = Some(stderr.whole(job.secrets));
            if let Ok(Ok(Exit { ended: Ok(ended), .. })) = &exit {
                step.cpu = Some(ended.cpu);
                step.peak_memory = Some(ended.peak);
            }
        });
    }
    let tail = || stderr.tail(job.secrets);
    let error = match exit {
        Ok(Ok(Exit { ended, is_read })) => {
            let ended = ended?;
            return Ok(Run { output: output.into(), is_whole: is_read && !ended.is_cut, stderr, ended });
        }
        Ok(Err(Lost::Unread(error))) => {
            BackendError::unavailable(format!("its output cannot be read: {error}{}", tail()))
        }
        Ok(Err(Lost::TooMuch)) => BackendError::invalid_output(format!(
            "wrote more than {} bytes to stdout, stopped{}",
            job.max_output,
            tail()
        )),
        Err(_) => BackendError::timeout(format!("not done in time, stopped by {}{}", job.limit, tail())),
    };
    Err(error.into())
}

/// About the last `max_bytes` bytes.
fn last(text: &str, max_bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max_bytes))..]
}
