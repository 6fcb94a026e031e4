//! Runs a command of a plugin in a copy of a tree, within its limits.

mod ended;
mod environment;
mod program;

use std::{ffi::OsString, fmt, io, io::PipeReader, sync::Arc};

use tokio::{
    io::AsyncReadExt,
    net::unix::pipe::Receiver,
    time::{Duration, Instant, timeout, timeout_at},
};

pub(crate) use self::{
    ended::{RunEnd, RunError},
    environment::RunEnvironment,
    program::find as find_program,
};
use crate::{
    config::{Files, Limits, PluginSettings},
    grpc::status::Status,
    kept::{KeptFolders, RunFolder, RunSubject},
    plugin::Command,
    queue::Queue,
    trees::Tree,
};
use domain::error::BackendError;
use launcher::{
    Copied, Ended, First, LaunchError, LaunchOptions, LauncherPool, Launchers, ProcessLimits, Program, Running,
};
use telemetry::trace::{self, SpanKind};

/// How much of the end of stderr is kept, in bytes.
const STDERR: usize = 64 * 1024;
/// How long the rest of the output may take when the program and its descendants have ended. Only a machine without a free processor takes
/// so long: what is left is in the pipe.
const AFTER_EXIT: Duration = Duration::from_secs(10);

/// The variable with the ids of the trace, for programs that make spans.
const TRACEPARENT: &str = "TRACEPARENT";

/// Runs the commands of one plugin.
#[derive(Debug)]
pub(crate) struct Runner {
    launchers: Arc<Launchers>,
    pub(crate) queue: Arc<Queue>,
    settings: PluginSettings,
    concurrency: usize,
    /// Set if folders of failed runs are kept.
    kept: Option<Arc<KeptFolders>>,
}

/// What to run, and where.
#[derive(Debug)]
pub(crate) struct Job<'a> {
    /// The plugin, which has launchers of its own.
    pub(crate) plugin: &'a str,
    /// Runs first.
    pub(crate) init: Option<&'a Command>,
    /// The command.
    pub(crate) command: &'a Command,
    /// The files.
    pub(crate) tree: &'a Tree,
    /// The folder within the tree.
    pub(crate) folder: &'a [u8],
    /// The variables.
    pub(crate) environment: &'a RunEnvironment,
    /// When the caller gives up, if it says so.
    pub(crate) deadline: Option<Instant>,
}

/// A run that ended well.
#[derive(Debug)]
pub(crate) struct RunOutput {
    /// What it wrote to stdout.
    pub(crate) stdout: Vec<u8>,
    /// The end of its stderr, without secrets.
    pub(crate) stderr: String,
    /// How long it waited for its turn.
    pub(crate) queued: Duration,
    /// How long it ran.
    pub(crate) took: Duration,
    /// The processor time of all its processes.
    pub(crate) cpu: Duration,
    /// The most memory that one of them took, or one of an earlier run of the same launcher, in bytes.
    pub(crate) peak: u64,
    /// Its work folder, for who reads the output.
    pub(crate) folder: RunFolder,
}

impl Runner {
    /// Runs with `settings`, at most `concurrency` at once.
    pub(crate) fn new(
        launchers: &Arc<Launchers>,
        settings: PluginSettings,
        concurrency: usize,
        kept: Option<Arc<KeptFolders>>,
    ) -> Self {
        Self { launchers: Arc::clone(launchers), queue: Queue::new(concurrency), settings, concurrency, kept }
    }

    /// The plugin's rights and limits.
    pub(crate) const fn settings(&self) -> &PluginSettings {
        &self.settings
    }

    /// Runs `job` as soon as it is its turn, within a span.
    ///
    /// # Errors
    /// When it does not start, fails, or breaks a limit. The text names the limit and has the last lines of stderr, without secrets.
    pub(crate) async fn run(&self, job: Job<'_>) -> Result<RunOutput, RunError> {
        let span = trace::begin(SpanKind::Internal, || format!("run {}", job.command.program));
        let run = span.instrument(self.run_within(job)).await;
        span.note(|record| match &run {
            Ok(output) => {
                record.set("cmp_gateway.run.queued_ms", millis(output.queued));
                record.set("cmp_gateway.run.cpu_ms", millis(output.cpu));
            }
            Err(error) => record.fail(error.end.label().into_owned()),
        });
        run
    }

    async fn run_within(&self, job: Job<'_>) -> Result<RunOutput, RunError> {
        let shown = shown(job.command);
        let not_started = |why: &dyn fmt::Display| {
            let status = Status::unknown(format!("`{shown}` did not run: {why}"));
            RunError { end: RunEnd::NotStarted, status }
        };
        let (began, allowed) = (Instant::now(), self.settings.timeout());
        let _place =
            self.queue.place(job.deadline.unwrap_or(began + allowed)).await.map_err(|error| not_started(&error))?;
        let queued = began.elapsed();
        let program = Self::program(&job).map_err(|why| not_started(&why))?;
        let pool = job.tree.pool(job.plugin, || self.pool(job.tree));
        let began = Instant::now();
        let (at, limit) = match job.deadline {
            Some(at) if at < began + allowed => (at, "the caller's deadline".to_owned()),
            _ => (began + allowed, format!("its limit of {} s (`timeout`)", allowed.as_secs_f64())),
        };
        let started = self.start(&pool, &program, &job, at).await;
        let (running, folder) = started.map_err(|error| not_started(&BackendError::from(error)))?;
        let mut streams = Streams::default();
        let ended = timeout_at(at, streams.read_to_end(running, self.settings.max_output.as_usize())).await;
        let took = began.elapsed();
        // With those that git got in the run.
        let secrets = &job.environment.secrets();
        let failed = |end, why: String| {
            let status = Status::unknown(format!("`{shown}` {why}{}", ended::tail(&streams.errors, secrets)));
            RunError { end, status }
        };
        let Ok(ended) = ended else {
            return Err(failed(RunEnd::Timeout, format!("was not done in time, stopped by {limit}")));
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(RunFailure::TooMuch) => {
                let max = self.settings.max_output;
                return Err(failed(RunEnd::Output, format!("wrote more than {max} to stdout (`maxOutput`), stopped")));
            }
            Err(RunFailure::Unread(error)) => {
                return Err(failed(RunEnd::Output, format!("has an output that cannot be read: {error}")));
            }
            Err(RunFailure::Launcher(error)) => return Err(failed(RunEnd::Unknown, format!("failed: {error}"))),
        };
        let checked = ended::check(&ended, job.init, &self.settings.limits, &streams.errors);
        checked.map_err(|why| failed(RunEnd::of(&ended), why))?;
        let stderr = ended::text(&streams.errors, secrets);
        Ok(RunOutput { stdout: streams.output, stderr, queued, took, cpu: ended.cpu, peak: ended.peak, folder })
    }

    /// Starts `program`. Its work folder is kept if folders of failed runs are, unless the run turns out to be good.
    async fn start(
        &self,
        pool: &LauncherPool,
        program: &Program,
        job: &Job<'_>,
        until: Instant,
    ) -> Result<(Running, RunFolder), LaunchError> {
        let mut variables = job.environment.variables();
        if let Some(span) = trace::current()
            && job.environment.get(TRACEPARENT).is_none()
        {
            variables.push((TRACEPARENT.into(), OsString::from(span.context().to_string()).into()));
        }
        let Some(kept) = &self.kept else {
            return Ok((pool.start(program, &variables, &[], until).await?, RunFolder::unwatched()));
        };
        let (running, left) = pool.start_handing_over(program, &variables, &[], until).await?;
        let subject = RunSubject {
            plugin: job.plugin.to_owned(),
            application: job.environment.get("ARGOCD_APP_NAME").unwrap_or_default().to_owned(),
            path: String::from_utf8_lossy(job.folder).into_owned(),
            program: job.command.program.clone(),
        };
        Ok((running, kept.watch(left, subject)))
    }

    fn program(job: &Job<'_>) -> Result<Program, program::NoProgram> {
        let path = job.environment.path();
        // Programs name themselves in their messages: by the name that plugin.yaml gives them.
        let first = match job.init {
            Some(Command { program, arguments }) => Some(First {
                path: program::find(program, path)?,
                argv0: Some(program.clone()),
                arguments: arguments.clone(),
            }),
            None => None,
        };
        let copy = Copied {
            from: job.tree.folder.clone(),
            max_bytes: job.tree.bytes,
            max_files: job.tree.files,
            inside: program::relative(job.folder),
            is_fixed: true,
        };
        Ok(Program {
            path: program::find(&job.command.program, path)?,
            argv0: Some(job.command.program.clone()),
            arguments: job.command.arguments.clone(),
            folder: None,
            first,
            copy: Some(copy),
        })
    }

    /// Launchers whose programs may read `tree`, and what the settings permit.
    fn pool(&self, tree: &Tree) -> LauncherPool {
        let Limits { cpu, memory, file_size, open_files, processes } = self.settings.limits;
        let limits = ProcessLimits {
            cpu: cpu.map(|time| time.0.as_secs().max(1)),
            memory: memory.map(|size| size.0),
            file_size: Some(file_size.0),
            open_files,
            processes,
        };
        let Files { read, write } = &self.settings.files;
        let mut readable = read.clone();
        readable.push(tree.folder.clone());
        if self.settings.git_credentials
            && let Ok(program) = std::env::current_exe()
        {
            // Git starts it to ask for credentials.
            readable.push(program);
        }
        let network = self.settings.network;
        let options = LaunchOptions { limits, readable, writable: write.clone(), user: None, network };
        LauncherPool::passing(&self.launchers, options, self.concurrency)
    }
}

/// What a program writes.
#[derive(Debug, Default)]
struct Streams {
    output: Vec<u8>,
    /// The end of it.
    errors: Vec<u8>,
}

/// Why a run has no end.
#[derive(Debug)]
enum RunFailure {
    /// It wrote too much.
    TooMuch,
    /// The system could not read its output.
    Unread(io::Error),
    /// The launcher failed.
    Launcher(BackendError),
}

impl Streams {
    /// Reads what `running` writes until it has ended, with all that it started. Giving up ends it.
    async fn read_to_end(&mut self, running: Running, max: usize) -> Result<Ended, RunFailure> {
        let Running { stdout, stderr, mut charge, .. } = running;
        let reading = async {
            let errors = async {
                // A program with an unreadable stderr only lacks its text in messages.
                let _ = read_last(stderr, &mut self.errors).await;
                Ok(())
            };
            tokio::try_join!(read_all(stdout, &mut self.output, max), errors).map(drop)
        };
        tokio::pin!(reading);
        let ended = tokio::select! {
            ended = charge.over() => {
                // All processes have ended, and with them both pipes.
                let rest = timeout(AFTER_EXIT, &mut reading).await;
                rest.unwrap_or_else(|_| Err(RunFailure::Unread(io::ErrorKind::TimedOut.into())))?;
                ended
            }
            output = &mut reading => {
                // Fails at once: the program is ended then.
                output?;
                charge.over().await
            }
        };
        ended.map_err(|error| RunFailure::Launcher(error.into()))
    }
}

/// A command as messages show it.
fn shown(command: &Command) -> String {
    let words: Vec<&str> =
        [command.program.as_str()].into_iter().chain(command.arguments.iter().map(String::as_str)).collect();
    domain::document::excerpt(words.join(" ").as_bytes(), 200)
}

fn millis(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
}

fn watch(pipe: PipeReader) -> io::Result<Receiver> {
    Receiver::from_owned_fd_unchecked(pipe.into())
}

/// Reads all of `pipe`, up to `max` bytes.
async fn read_all(pipe: PipeReader, bytes: &mut Vec<u8>, max: usize) -> Result<(), RunFailure> {
    let mut pipe = watch(pipe).map_err(RunFailure::Unread)?;
    while pipe.read_buf(bytes).await.map_err(RunFailure::Unread)? > 0 {
        if bytes.len() > max {
            return Err(RunFailure::TooMuch);
        }
    }
    Ok(())
}

/// Reads all of `pipe`, and keeps at least the last [`STDERR`] bytes.
async fn read_last(pipe: PipeReader, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut pipe = watch(pipe)?;
    while pipe.read_buf(bytes).await? > 0 {
        if bytes.len() > 2 * STDERR {
            bytes.drain(..bytes.len() - STDERR);
        }
    }
    Ok(())
}
