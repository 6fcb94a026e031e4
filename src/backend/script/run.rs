//! One run of a program: fed, read within limits, and over in time with all that it started.

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

/// What of stderr is kept: its end.
pub(crate) const STDERR_TAIL: usize = 64 * 1024;
/// What of stderr is shown, in characters.
const LONGEST_TAIL: usize = 600;
/// What most programs write to stdout fits into it, in bytes.
const OUTPUT: usize = 4 * 1024;
/// When a program that runs is looked at, each after the one before. What ends sooner, and writes no more than its pipes hold,
/// spares the watching of them, which costs as much as all the rest of reading.
const LOOKS: [Duration; 2] = [Duration::from_millis(15), Duration::from_millis(20)];
/// How long the rest of the output is awaited when the program has ended, and with it all that held its pipes.
const AFTER_EXIT: Duration = Duration::from_millis(250);

/// What a program is given, and its limits.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// Where it runs.
    pub(crate) bay: &'a LauncherPool,
    /// What it reads on stdin.
    pub(crate) input: Vec<u8>,
    /// The most it may write to stdout, in bytes.
    pub(crate) most: usize,
    /// What no message may repeat of its stderr.
    pub(crate) secrets: &'a Secrets,
    /// When it must be done.
    pub(crate) until: Instant,
    /// What ends it then, in words.
    pub(crate) limit: Cow<'static, str>,
    /// Who wants to see its stderr.
    pub(crate) watch: Option<&'a Watch>,
}

/// A run that ended by itself.
#[derive(Debug)]
pub(crate) struct Run {
    /// What it wrote to stdout.
    pub(crate) output: Bytes,
    /// Whether that is all: nothing was ended that could have written more.
    pub(crate) is_whole: bool,
    /// The end of what it wrote to stderr.
    pub(crate) told: Stderr,
    /// How it ended.
    pub(crate) ended: Ended,
}

/// The end of what a program wrote to stderr.
#[derive(Debug, Default)]
pub(crate) struct Stderr(Vec<u8>);

impl Stderr {
    /// What ends with `bytes`.
    #[must_use]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// All that is kept of it, without `secrets`.
    #[must_use]
    pub(crate) fn whole(&self, secrets: &Secrets) -> String {
        secrets.redact(&String::from_utf8_lossy(&self.0))
    }

    /// The end of it in one line for a message, without `secrets`: `; stderr: …`, or nothing.
    #[must_use]
    pub(crate) fn tail(&self, secrets: &Secrets) -> String {
        let text = self.whole(secrets);
        let tail = excerpt(last(&text, LONGEST_TAIL).as_bytes(), LONGEST_TAIL);
        if tail.is_empty() { String::new() } else { format!("; stderr: {tail}") }
    }

    /// Whether it speaks of something that was not allowed.
    #[must_use]
    pub(crate) fn is_about_permission(&self) -> bool {
        let text = String::from_utf8_lossy(&self.0);
        ["Permission denied", "EACCES", "PermissionError"].iter().any(|words| text.contains(words))
    }

    /// Its last line that is not blank, without `secrets`.
    #[must_use]
    pub(crate) fn last_line(&self, secrets: &Secrets) -> Option<String> {
        let text = self.whole(secrets);
        let line = text.lines().rfind(|line| !line.trim().is_empty())?;
        Some(excerpt(line.as_bytes(), LONGEST_TAIL))
    }
}

/// Runs `program` with `environment` for `job` until it has ended, whatever its status.
///
/// # Errors
/// When it cannot start, writes too much or takes too long.
pub(crate) async fn run(program: &Program, environment: &Environment<'_>, job: Job<'_>) -> Result<Run, LaunchError> {
    let running = job.bay.start(program, environment, &job.input, job.until).await?;
    let Running { stdin, stdout, stderr, mut charge, .. } = running;
    let mut output = Capture::new(stdout, OUTPUT, Keep::AtMost(job.most));
    let mut errors = Capture::new(stderr, 0, Keep::Last(STDERR_TAIL));
    let watched = async {
        let mut over = None;
        for patience in LOOKS.into_iter().filter(|_| stdin.is_none()) {
            over = timeout(patience, charge.over()).await.ok();
            let (is_read, is_told) = (output.look(), errors.look());
            let is_read = is_read? & is_told?;
            if is_read && let Some(ended) = over {
                return Ok((ended, true));
            }
            if over.is_some() || !output.bytes.is_empty() || !errors.bytes.is_empty() {
                break;
            }
        }
        let feed = async move {
            if let Some(mut stdin) = stdin {
                // A program may end without reading its input; that is its own business.
                let _ = stdin.write_all(&job.input).await;
            }
        };
        let reading = async {
            match select(pin!(output.read()), pin!(errors.read())).await {
                Either::Left((Ok(()), telling)) => telling.await,
                Either::Left((lost, telling)) => {
                    // Whoever writes too much may have said why, and need not end.
                    let _ = timeout(AFTER_EXIT, telling).await;
                    lost
                }
                Either::Right((is_told, reading)) => reading.await.and(is_told),
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
                    // At once: a program that is cut off ends by a signal that says nothing of why.
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
    let ended = timeout_at(job.until, watched).await;
    if ended.is_err() {
        // It may have said more since it was looked at.
        let _ = errors.look();
    }
    let (output, told) = (output.bytes, Stderr(errors.bytes));
    if let Some(watch) = job.watch {
        watch.note(|step| {
            step.stderr = Some(told.whole(job.secrets));
            if let Ok(Ok((Ok(ended), _))) = &ended {
                step.cpu = Some(ended.cpu);
                step.peak_memory = Some(ended.peak);
            }
        });
    }
    match ended {
        Err(_) => {
            let (limit, tail) = (job.limit, told.tail(job.secrets));
            Err(BackendError::timeout(format!("not done in time, stopped by {limit}{tail}")).into())
        }
        Ok(Err(Lost::Unread(error))) => {
            let tail = told.tail(job.secrets);
            Err(BackendError::unavailable(format!("its output cannot be read: {error}{tail}")).into())
        }
        Ok(Err(Lost::TooMuch)) => {
            let why = format!("wrote more than {} bytes to stdout, stopped{}", job.most, told.tail(job.secrets));
            Err(BackendError::invalid_output(why).into())
        }
        Ok(Ok((ended, is_read))) => {
            let ended = ended?;
            Ok(Run { output: output.into(), is_whole: is_read && !ended.is_cut, told, ended })
        }
    }
}

/// About the last `most` bytes.
fn last(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}
