//! One worker: a process that answers requests.

use std::time::Duration;

use bytes::Bytes;
use tokio::{
    net::unix::pipe,
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    answer::{self, WorkerAnswer},
    basis::Basis,
    exchange::{Broken, exchange, is_quiet},
    permit::WorkerPermit,
    tail::Tail,
};
use crate::script::{
    capture::watch,
    exit,
    run::{Job, Run, Stderr},
};
use domain::{error::BackendError, secret::Secrets};
use launcher::{Ended, KillOnDrop, LaunchError, LauncherPool, Meter, Running, StartFailure};
use source::{Load, work_on};
use telemetry::trace;

/// The largest integer that JSON keeps exact in every language.
const LARGEST_ID: u64 = (1 << 53) - 1;
/// How long to wait for the end of a worker that closed its output, and for the rest of its stderr.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long to wait for the stderr of a worker that broke the protocol.
const REASONS: Duration = Duration::from_millis(100);

/// Advice for a worker that wrote no line.
const FLUSH_HINT: &str = "if it did answer, it must flush its output after each line";

/// Why a request has no answer, and its worker cannot be used any more.
#[derive(Debug)]
pub(super) enum Fault {
    /// The worker ended before it wrote a byte. Another worker may answer.
    Silent(LaunchError),
    /// All other failures.
    Other(LaunchError),
}

/// A worker. Dropping it ends the process and all its descendants.
#[derive(Debug)]
pub(super) struct Worker {
    /// How many requests the worker got.
    pub requests: u64,
    /// Measures the resources of the worker.
    pub meter: Meter,
    basis: Basis<'static>,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    tail: Tail,
    ended: Option<oneshot::Receiver<Result<Ended, LaunchError>>>,
    _kill_on_drop: KillOnDrop,
    _permit: WorkerPermit,
}

impl Worker {
    /// Starts a worker.
    ///
    /// # Errors
    /// When no worker can be started before `deadline`.
    pub(super) async fn start(
        launchers: &LauncherPool,
        basis: Basis<'_>,
        permit: WorkerPermit,
        deadline: Instant,
    ) -> Result<Self, LaunchError> {
        let running = launchers.start_staying(basis.program(), basis.environment(), deadline).await?;
        let Running { stdin: Some(stdin), stdout, stderr, meter, charge } = running else {
            return Err(StartFailure::from("it has no stdin".to_owned()).into());
        };
        let stdout = watch(stdout).map_err(StartFailure::from)?;
        let tail = Tail::of(watch(stderr).map_err(StartFailure::from)?);
        let (ended, kill_on_drop) = charge.watched();
        let basis = basis.into_owned();
        Ok(Self {
            requests: 0,
            meter,
            basis,
            stdin,
            stdout,
            tail,
            ended: Some(ended),
            _kill_on_drop: kill_on_drop,
            _permit: permit,
        })
    }

    /// Why the worker must not get a request: it ended, wrote without a request, or differs from the program that `basis` would start.
    pub(super) fn why_not(&self, basis: &Basis<'_>) -> Option<&'static str> {
        if self.basis != *basis {
            return Some("outdated");
        }
        (!is_quiet(&self.stdout)).then_some("fault")
    }

    /// Sends one request and reads the answer. After a fault the worker must not get another request.
    ///
    /// # Errors
    /// When the worker breaks the protocol.
    pub(super) async fn call(&mut self, job: &Job<'_>) -> Result<WorkerAnswer, Fault> {
        if self.requests > 0 {
            self.tail.clear();
        }
        self.requests += 1;
        // A random id, so that a line written before the request cannot match it.
        let id = fastrand::u64(1..=LARGEST_ID);
        let mut request = format!("{{\"id\":{id},\"request\":").into_bytes();
        request.extend_from_slice(job.input.trim_ascii_end());
        if let Some(span) = trace::current() {
            request.extend_from_slice(format!(",\"traceparent\":\"{}\"", span.context()).as_bytes());
        }
        request.extend_from_slice(b"}\n");
        let exchanging = exchange(&mut self.stdin, &mut self.stdout, &request, job.max_output);
        let why = match timeout_at(job.deadline, exchanging).await {
            Ok(Ok(line)) => {
                let secrets = job.secrets.clone();
                match work_on(Load::Bytes(line.len()), move || answer::read(&line, id, &secrets)).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                }
            }
            Err(_) => {
                let why = format!("not done in time, stopped by {}; {FLUSH_HINT}", job.limit);
                return Err(Fault::Other(self.explain(BackendError::timeout(why), job.secrets).into()));
            }
            Ok(Err(Broken::TooMuch)) => {
                let why = format!("wrote more than {} bytes without an end of line, stopped", job.max_output);
                BackendError::invalid_output(why)
            }
            Ok(Err(Broken::Unrequested(what))) => BackendError::invalid_output(format!("lost step: {what}; stopped")),
            Ok(Err(Broken::Gone { is_silent })) => {
                let error = self.last_words(job).await;
                return Err(if is_silent {
                    Fault::Silent(error)
                } else {
                    Fault::Other(BackendError::from(error).within("it ended in the middle of its answer").into())
                });
            }
        };
        self.tail.finish(job.deadline.min(Instant::now() + REASONS)).await;
        Err(Fault::Other(self.explain(why, job.secrets).into()))
    }

    /// Why the worker has ended.
    async fn last_words(&mut self, job: &Job<'_>) -> LaunchError {
        let (secrets, deadline) = (job.secrets, job.deadline.min(Instant::now() + LAST_WORDS));
        let Some(ended) = &mut self.ended else {
            return BackendError::unavailable("it has ended").into();
        };
        let ended = timeout_at(deadline, ended).await;
        if ended.is_ok() {
            self.ended = None;
        }
        self.tail.finish(deadline).await;
        let error = match ended {
            Err(_) => self.explain(BackendError::unavailable("it closed its stdin or stdout, stopped"), secrets),
            Ok(Err(_)) => BackendError::unavailable("its launcher has gone"),
            Ok(Ok(Err(error))) => return error,
            Ok(Ok(Ok(ended))) => {
                let run = Run { output: Bytes::new(), is_whole: true, stderr: self.stderr(), ended };
                let ended_well = || BackendError::unavailable("it ended without an answer (exit status: 0)");
                exit::check(&run, secrets).err().unwrap_or_else(|| self.explain(ended_well(), secrets))
            }
        };
        error.into()
    }

    /// Ends the worker. The returned future is done when nothing of the worker is left.
    pub(super) fn end(mut self) -> impl Future<Output = ()> + 'static {
        let ended = self.ended.take();
        drop(self);
        async move {
            if let Some(ended) = ended {
                let _ = ended.await;
            }
        }
    }

    /// The stderr since the last request began.
    pub(super) fn stderr(&self) -> Stderr {
        self.tail.stderr()
    }

    fn explain(&self, error: BackendError, secrets: &Secrets) -> BackendError {
        let message = secrets.redact(&error.message) + &self.stderr().tail(secrets);
        BackendError { message, ..error }
    }
}
