//! One worker: a process that is asked.

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
use crate::{
    backend::{
        mapping::{self, Load},
        script::{
            capture::watched,
            exit,
            run::{Job, Run, Stderr},
        },
    },
    clients::launcher::{Ended, KillOnDrop, LaunchError, LauncherPool, Meter, Running, StartFailure},
    domain::{error::BackendError, secret::Secrets},
    telemetry::trace,
};

/// The largest number that every language's JSON keeps as it is.
const LARGEST_ID: u64 = (1 << 53) - 1;
/// How long is waited for the end of a worker that wrote its last, and for the rest of its stderr.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long is waited for what a worker that lost step wrote to stderr.
const REASONS: Duration = Duration::from_millis(100);

/// What a worker that brought no line may lack.
const FLUSH_HINT: &str = "if it did answer, it must flush its output after each line";

/// Why a worker is of no use any more, and its question has no answer.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It was gone before it wrote a byte: another may know.
    Silent(LaunchError),
    /// Anything else.
    Other(LaunchError),
}

/// A worker. Dropped, it is ended with all that it started.
#[derive(Debug)]
pub(crate) struct Worker {
    /// How many questions it was asked.
    pub(crate) asked: u64,
    /// What it uses.
    pub(crate) meter: Meter,
    basis: Basis<'static>,
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: Tail,
    ended: Option<oneshot::Receiver<Result<Ended, LaunchError>>>,
    _leash: KillOnDrop,
    _place: WorkerPermit,
}

impl Worker {
    /// Starts one.
    ///
    /// # Errors
    /// When it cannot be before `deadline`.
    pub(crate) async fn start(
        bay: &LauncherPool,
        basis: Basis<'_>,
        place: WorkerPermit,
        deadline: Instant,
    ) -> Result<Self, LaunchError> {
        let running = bay.start_staying(basis.program(), basis.environment(), deadline).await?;
        let Running { stdin: Some(stdin), stdout, stderr, meter, charge } = running else {
            return Err(StartFailure::from("it has no stdin".to_owned()).into());
        };
        let stdout = watched(stdout).map_err(StartFailure::from)?;
        let stderr = Tail::of(watched(stderr).map_err(StartFailure::from)?);
        let (ended, leash) = charge.watched();
        let basis = basis.into_owned();
        Ok(Self { asked: 0, meter, basis, stdin, stdout, stderr, ended: Some(ended), _leash: leash, _place: place })
    }

    /// Why it must not be asked, if it has ended, wrote unasked, or is not what would be started now.
    pub(crate) fn why_not(&self, basis: &Basis<'_>) -> Option<&'static str> {
        if self.basis != *basis {
            return Some("outdated");
        }
        (!is_quiet(&self.stdout)).then_some("fault")
    }

    /// Asks it. After a fault it must not be asked again.
    ///
    /// # Errors
    /// When it does not do as a worker should.
    pub(crate) async fn ask(&mut self, job: &Job<'_>) -> Result<WorkerAnswer, Fault> {
        if self.asked > 0 {
            self.stderr.clear();
        }
        self.asked += 1;
        // Nobody guesses it: a line that was written before the question is no answer to it.
        let id = fastrand::u64(1..=LARGEST_ID);
        let mut question = format!("{{\"id\":{id},\"request\":").into_bytes();
        question.extend_from_slice(job.input.trim_ascii_end());
        if let Some(place) = trace::current() {
            question.extend_from_slice(format!(",\"traceparent\":\"{}\"", place.context()).as_bytes());
        }
        question.extend_from_slice(b"}\n");
        let exchanging = exchange(&mut self.stdin, &mut self.stdout, &question, job.most);
        let why = match timeout_at(job.until, exchanging).await {
            Ok(Ok(line)) => {
                let secrets = job.secrets.clone();
                match mapping::work_on(Load::Bytes(line.len()), move || answer::read(&line, id, &secrets)).await {
                    Ok(said) => return Ok(said),
                    Err(error) => error,
                }
            }
            Err(_) => {
                let why = format!("not done in time, stopped by {}; {FLUSH_HINT}", job.limit);
                return Err(Fault::Other(self.explain(BackendError::timeout(why), job.secrets).into()));
            }
            Ok(Err(Broken::TooMuch)) => {
                let why = format!("wrote more than {} bytes without an end of line, stopped", job.most);
                BackendError::invalid_output(why)
            }
            Ok(Err(Broken::Unasked(what))) => BackendError::invalid_output(format!("lost step: {what}; stopped")),
            Ok(Err(Broken::Gone { is_silent })) => {
                let error = self.last_words(job).await;
                return Err(if is_silent {
                    Fault::Silent(error)
                } else {
                    Fault::Other(BackendError::from(error).within("it ended in the middle of its answer").into())
                });
            }
        };
        self.stderr.settle(job.until.min(Instant::now() + REASONS)).await;
        Err(Fault::Other(self.explain(why, job.secrets).into()))
    }

    /// Why the worker has ended.
    async fn last_words(&mut self, job: &Job<'_>) -> LaunchError {
        let (secrets, until) = (job.secrets, job.until.min(Instant::now() + LAST_WORDS));
        let Some(ended) = &mut self.ended else {
            return BackendError::unavailable("it has ended").into();
        };
        let ended = timeout_at(until, ended).await;
        if ended.is_ok() {
            self.ended = None;
        }
        self.stderr.settle(until).await;
        let error = match ended {
            Err(_) => self.explain(BackendError::unavailable("it closed its stdin or stdout, stopped"), secrets),
            Ok(Err(_)) => BackendError::unavailable("its launcher has gone"),
            Ok(Ok(Err(error))) => return error,
            Ok(Ok(Ok(ended))) => {
                let run = Run { output: Bytes::new(), is_whole: true, told: self.told(), ended };
                let ended_well = || BackendError::unavailable("it ended without an answer (exit status: 0)");
                exit::check(&run, secrets).err().unwrap_or_else(|| self.explain(ended_well(), secrets))
            }
        };
        error.into()
    }

    /// Ends it; what is given is over when nothing is left of it.
    pub(crate) fn end(mut self) -> impl Future<Output = ()> + 'static {
        let ended = self.ended.take();
        drop(self);
        async move {
            if let Some(ended) = ended {
                let _ = ended.await;
            }
        }
    }

    /// What it wrote to stderr since it was asked.
    pub(crate) fn told(&self) -> Stderr {
        self.stderr.told()
    }

    fn explain(&self, error: BackendError, secrets: &Secrets) -> BackendError {
        let message = secrets.redact(&error.message) + &self.told().tail(secrets);
        BackendError { message, ..error }
    }
}
