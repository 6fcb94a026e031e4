//! One evaluator, from the gateway's side.

use std::{io, os::unix::process::ExitStatusExt, path::Path, process::Stdio};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};

use super::{
    ARGUMENT,
    error::Cause,
    wire::{self, EvaluatorAnswer, HEAD, START_FAILED},
};

/// jemalloc's options: one heap that returns free memory at once, so that more fits into little memory.
const ALLOCATOR: (&str, &str) =
    ("_RJEM_MALLOC_CONF", "narenas:1,oversize_threshold:0,dirty_decay_ms:0,muzzy_decay_ms:0");
/// The most tasks for one process.
const MAX_TASKS: usize = 1000;
/// How much of its last output to stderr is read, in bytes.
const LAST_WORDS: u64 = 4096;

/// An evaluator. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    tasks: ChildStdin,
    answers: ChildStdout,
    words: ChildStderr,
    memory: u64,
    /// How many tasks it has had.
    tasks_done: usize,
}

impl Process {
    /// Starts an evaluator with `memory` bytes.
    pub(super) fn start(program: &Path, memory: u64) -> Result<Self, Cause> {
        let child = Command::new(program)
            .arg(ARGUMENT)
            .arg(memory.to_string())
            .env_clear()
            .env(ALLOCATOR.0, ALLOCATOR.1)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.map_err(|error| Cause::NotStarted(error.to_string()))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(tasks), Some(answers), Some(words)) = pipes else {
            return Err(Cause::NotStarted("it has no pipes".to_owned()));
        };
        Ok(Self { child, tasks, answers, words, memory, tasks_done: 0 })
    }

    /// The evaluator, if it may get another task.
    pub(super) fn if_fit(mut self) -> Option<Self> {
        (self.tasks_done < MAX_TASKS && matches!(self.child.try_wait(), Ok(None))).then_some(self)
    }

    /// The answer to the task in `frame`.
    pub(super) async fn answer(&mut self, frame: &[u8]) -> Result<EvaluatorAnswer, Cause> {
        self.tasks_done += 1;
        match self.exchange(frame).await {
            Ok(EvaluatorAnswer::TooLarge) => Err(Cause::Memory(self.memory >> 20)),
            Ok(EvaluatorAnswer::Panicked) => Err(Cause::Crashed("a bug in the evaluation".to_owned())),
            Ok(answer) => Ok(answer),
            Err(_) => Err(self.cause().await),
        }
    }

    async fn exchange(&mut self, frame: &[u8]) -> io::Result<EvaluatorAnswer> {
        self.tasks.write_all(frame).await?;
        let mut head = [0; HEAD];
        self.answers.read_exact(&mut head).await?;
        let mut body = vec![0; wire::length(head)?];
        self.answers.read_exact(&mut body).await?;
        wire::message(&body)
    }

    /// Why the process has ended.
    async fn cause(&mut self) -> Cause {
        let mut words = Vec::new();
        let status = self.child.wait().await;
        let _ = (&mut self.words).take(LAST_WORDS).read_to_end(&mut words).await;
        let words = String::from_utf8_lossy(&words);
        if words.contains("memory allocation of") {
            return Cause::Memory(self.memory >> 20);
        }
        if let Some((_, why)) = words.split_once(START_FAILED) {
            return Cause::NotStarted(why.trim().to_owned());
        }
        let signal = status.as_ref().ok().and_then(ExitStatusExt::signal);
        Cause::Crashed(match (signal.map(Signal::try_from), status) {
            (Some(Ok(signal)), _) => format!("{signal}"),
            (_, Ok(status)) => status.to_string(),
            (_, Err(error)) => error.to_string(),
        })
    }

    /// Kills the process and waits until it is gone, so that its memory is free.
    pub(super) async fn end(mut self) {
        let _ = self.child.kill().await;
    }
}
