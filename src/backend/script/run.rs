//! Runs a program once: writes its input, reads its output within limits, and ends it in time with all its descendants.

use std::{borrow::Cow, pin::pin};

use bytes::Bytes;
use futures_util::future::{Either, select};
use tokio::{
    io::AsyncWriteExt,
    time::{Duration, Instant, timeout, timeout_at},
};

use super::capture::{Capture, Keep, Lost};
use crate::{
    clients::launcher::{Ended, Environment, LaunchError, LauncherPool, Program, Running},
    domain::{document::excerpt, error::BackendError, generator::watch::Watch, secret::Secrets},
};

/// How much of the end of stderr is kept, in bytes.
pub(crate) const STDERR_TAIL: usize = 64 * 1024;
/// How much of stderr a message shows, in characters.
const SHOWN_TAIL: usize = 600;
/// The initial buffer for stdout, in bytes. The output of most programs fits.
const USUAL_OUTPUT: usize = 4 * 1024;
/// How long the gateway waits for a program before it starts to watch the pipes: once, and once more. A program that ends sooner
/// and fills no pipe needs no watching. Watching the pipes costs as much as all the rest of reading.
const WAITS: [Duration; 2] = [Duration::from_millis(15), Duration::from_millis(20)];
/// How long the rest of the output may take when the program and its descendants have ended.
const AFTER_EXIT: Duration = Duration::from_millis(250);

/// The input of a program, and its limits.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// Starts the program.
    pub(crate) launchers: &'a LauncherPool,
    /// The program's stdin.
    pub(crate) input: Vec<u8>,
    /// The most that the program may write to stdout, in bytes.
    pub(crate) max_output: usize,
    /// Secrets that no message may repeat from stderr.
    pub(crate) secrets: &'a Secrets,
    /// When the program must be done.
    pub(crate) deadline: Instant,
    /// What sets the deadline, in words.
    pub(crate) limit: Cow<'static, str>,
    /// Records stderr and usage, if somebody watches the request.
    pub(crate) watch: Option<&'a Watch>,
}

/// A run that ended within its limits.
#[derive(Debug)]
pub(crate) struct Run {
    /// The program's stdout.
    pub(crate) output: Bytes,
    /// Whether the output is whole: no process was killed that could have written more.
    pub(crate) is_whole: bool,
    /// The end of the program's stderr.
    pub(crate) stderr: Stderr,
    /// How the program ended.
    pub(crate) ended: Ended,
}

/// The end of a program's stderr.
#[derive(Debug, Default)]
pub(crate) struct Stderr(Vec<u8>);

impl Stderr {
    /// A stderr that ends with `bytes`.
    #[must_use]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// All kept text, without `secrets`.
    #[must_use]
    pub(crate) fn whole(&self, secrets: &Secrets) -> String {
        secrets.redact(&String::from_utf8_lossy(&self.0))
    }

    /// The end of the text in one line for a message, without `secrets`: `; stderr: …`, or nothing.
    #[must_use]
    pub(crate) fn tail(&self, secrets: &Secrets) -> String {
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
pub(crate) async fn run(program: &Program, environment: &Environment<'_>, job: Job<'_>) -> Result<Run, LaunchError> {
    let running = job.launchers.start(program, environment, &job.input, job.deadline).await?;
    let Running { stdin, stdout, stderr, mut charge, .. } = running;
    let mut output = Capture::new(stdout, USUAL_OUTPUT, Keep::AtMost(job.max_output));
    let mut errors = Capture::new(stderr, 0, Keep::Last(STDERR_TAIL));
    let watched = async {
        let mut over = None;
        for wait in WAITS.into_iter().filter(|_| stdin.is_none()) {
            over = timeout(wait, charge.over()).await.ok();
            let (is_read, is_stderr_read) = (output.read_available(), errors.read_available());
            let is_read = is_read? & is_stderr_read?;
            if is_read && let Some(ended) = over {
                return Ok((ended, true));
            }
            if over.is_some() || !output.bytes.is_empty() || !errors.bytes.is_empty() {
                break;
            }
        }
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // A program need not read its input.
                let _ = stdin.write_all(&job.input).await;
            }
        };
        let reading = async {
            match select(pin!(output.read()), pin!(errors.read())).await {
                Either::Left((Ok(()), reading_stderr)) => reading_stderr.await,
                Either::Left((lost, reading_stderr)) => {
                    // The program may have explained the long output on stderr. It need not end by itself.
                    let _ = timeout(AFTER_EXIT, reading_stderr).await;
                    lost
                }
                Either::Right((is_stderr_read, reading)) => reading.await.and(is_stderr_read),
            }
        };
        tokio::pin!(reading, feed);
        let (mut is_read, mut is_fed) = (false, false);
        let ended = loop {
            if let Some(over) = over {
                break over;
            }
            tokio::select! {
                ended = charge.over() => over = Some(ended),
                whole = &mut reading, if !is_read => {
                    // Fail at once: a later end by a signal would hide the reason.
                    whole?;
                    is_read = true;
                }
                () = &mut feed, if !is_fed => is_fed = true,
            }
        };
        if !is_read && let Ok(whole) = timeout(AFTER_EXIT, &mut reading).await {
            whole?;
            is_read = true;
        }
        Ok::<_, Lost>((ended, is_read))
    };
    let ended = timeout_at(job.deadline, watched).await;
    if ended.is_err() {
        // The program may have written more since the last read.
        let _ = errors.read_available();
    }
    let (output, stderr) = (output.bytes, Stderr(errors.bytes));
    if let Some(watch) = job.watch {
        watch.note(|step| {
            step.stderr = Some(stderr.whole(job.secrets));
            if let Ok(Ok((Ok(ended), _))) = &ended {
                step.cpu = Some(ended.cpu);
                step.peak_memory = Some(ended.peak);
            }
        });
    }
    match ended {
        Err(_) => {
            let (limit, tail) = (job.limit, stderr.tail(job.secrets));
            Err(BackendError::timeout(format!("not done in time, stopped by {limit}{tail}")).into())
        }
        Ok(Err(Lost::Unread(error))) => {
            let tail = stderr.tail(job.secrets);
            Err(BackendError::unavailable(format!("its output cannot be read: {error}{tail}")).into())
        }
        Ok(Err(Lost::TooMuch)) => {
            let why =
                format!("wrote more than {} bytes to stdout, stopped{}", job.max_output, stderr.tail(job.secrets));
            Err(BackendError::invalid_output(why).into())
        }
        Ok(Ok((ended, is_read))) => {
            let ended = ended?;
            Ok(Run { output: output.into(), is_whole: is_read && !ended.is_cut, stderr, ended })
        }
    }
}

/// About the last `max_bytes` bytes.
fn last(text: &str, max_bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max_bytes))..]
}
