//! How a run ended, in words for a user of Argo CD.

use std::{borrow::Cow, time::Duration};

use nix::sys::signal::Signal;

use crate::{config::Limits, grpc::status::Status, plugin::Command};
use domain::{secret::Secrets, visible::visible};
use launcher::{Ended, ExitKind};

/// How much of the end of stderr a message shows: lines, and characters.
const LINES: usize = 20;
const CHARACTERS: usize = 2000;

/// A run that failed.
#[derive(Debug)]
pub(crate) struct RunError {
    /// How it ended.
    pub(crate) end: RunEnd,
    /// What a user of Argo CD reads of it.
    pub(crate) status: Status,
}

/// How a run ended, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunEnd {
    /// By itself.
    Code(i32),
    /// By a signal, such as one of a limit.
    Signal,
    /// It left processes behind.
    LeftBehind,
    /// Its time was over.
    Timeout,
    /// Its output is too large, or cannot be read.
    Output,
    /// It did not start: no place in time, no program, no launcher.
    NotStarted,
    /// The system did not say how.
    Unknown,
}

impl RunEnd {
    /// How the processes of a run ended.
    pub(super) fn of(ended: &Ended) -> Self {
        match ended.how {
            ExitKind::Code(0) if ended.is_cut => Self::LeftBehind,
            ExitKind::Code(code) => Self::Code(code),
            ExitKind::Signal(_) => Self::Signal,
            ExitKind::Unknown => Self::Unknown,
        }
    }

    /// The value of the metrics' label. Exit codes are 0 to 255.
    pub(crate) fn label(self) -> Cow<'static, str> {
        match self {
            Self::Code(code) => code.to_string().into(),
            Self::Signal => "signal".into(),
            Self::LeftBehind => "left_behind".into(),
            Self::Timeout => "timeout".into(),
            Self::Output => "output".into(),
            Self::NotStarted => "not_started".into(),
            Self::Unknown => "unknown".into(),
        }
    }
}

/// Checks that a run ended well.
///
/// # Errors
/// The end of a sentence that begins with the command.
pub(super) fn check(ended: &Ended, init: Option<&Command>, limits: &Limits, stderr: &[u8]) -> Result<(), String> {
    let why = match ended.how {
        ExitKind::Code(0) if ended.is_cut => {
            "left processes behind that were killed, so its output may be cut off".to_owned()
        }
        ExitKind::Code(0) => return Ok(()),
        // A shell reports the signal of its program so.
        ExitKind::Code(code) if code > 128 => {
            let of_signal = reason(code - 128, ended.cpu, limits);
            let why = if of_signal.is_empty() { reason_in(stderr, limits) } else { of_signal };
            format!("failed exit status {code}{why}")
        }
        ExitKind::Code(code) => format!("failed exit status {code}{}", reason_in(stderr, limits)),
        ExitKind::Signal(signal) => of_signal(signal, ended.cpu, limits),
        ExitKind::Unknown => "ended, and the system did not say how".to_owned(),
    };
    match init {
        Some(init) if ended.is_first => Err(format!("did not run, since its `init` `{}` {why}", init.program)),
        _ => Err(why),
    }
}

fn of_signal(number: i32, cpu: Duration, limits: &Limits) -> String {
    let signal = Signal::try_from(number).map_or_else(|_| number.to_string(), |signal| signal.to_string());
    format!("was ended by {signal}{}", reason(number, cpu, limits))
}

/// The limit behind a signal: `: …`, or nothing.
fn reason(signal: i32, cpu: Duration, limits: &Limits) -> String {
    // The kernel kills at once a process whose soft and hard limits are equal. It counts whole ticks, so its count may be much larger.
    let is_over = limits.cpu.is_some_and(|max| cpu * 2 >= max.0);
    match Signal::try_from(signal) {
        Ok(Signal::SIGXFSZ) => format!(": it wrote a file larger than {} (`limits.fileSize`)", limits.file_size),
        Ok(Signal::SIGXCPU) => ": it used more processor time than `limits.cpu`".to_owned(),
        // The time is that of all processes, and the limit one for each.
        Ok(Signal::SIGKILL) if is_over => {
            ": perhaps it used more processor time than `limits.cpu`, or the container has no more memory".to_owned()
        }
        Ok(Signal::SIGKILL) => ": perhaps the container has no more memory".to_owned(),
        Ok(Signal::SIGSYS) => ": it made a system call that plugins may not make".to_owned(),
        Ok(Signal::SIGSEGV | Signal::SIGABRT | Signal::SIGBUS) if limits.memory.is_some() => {
            ": perhaps it needs more memory than `limits.memory`".to_owned()
        }
        _ => String::new(),
    }
}

/// The limit that the system's errors in stderr point to: `: …`, or nothing. A program that gets such an error ends by itself.
fn reason_in(stderr: &[u8], limits: &Limits) -> String {
    let text = String::from_utf8_lossy(stderr);
    let errors = [
        ("memory", limits.memory.is_some(), &["annot allocate memory", "MemoryError", "ut of memory"][..]),
        ("openFiles", limits.open_files.is_some(), &["oo many open files"]),
        ("processes", limits.processes.is_some(), &["esource temporarily unavailable", "annot fork", "an't fork"]),
        ("fileSize", true, &["ile too large"]),
    ];
    let found = errors.iter().find(|(_, is_set, texts)| *is_set && texts.iter().any(|error| text.contains(error)));
    found.map_or_else(String::new, |(limit, ..)| format!(": perhaps by `limits.{limit}`"))
}

/// The last lines of stderr for a message: `: …`, or nothing. Usage texts and logs are long, and their end has the reason.
pub(super) fn tail(stderr: &[u8], secrets: &Secrets) -> String {
    let text = text(stderr, secrets);
    let lines: Vec<&str> = text.trim().lines().collect();
    let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let last = &last[last.ceil_char_boundary(last.len().saturating_sub(CHARACTERS))..];
    if last.is_empty() { String::new() } else { format!(": {last}") }
}

/// All kept text of stderr, without secrets, and with hidden characters but line breaks shown by their code.
pub(super) fn text(stderr: &[u8], secrets: &Secrets) -> String {
    let redacted = secrets.redact(&String::from_utf8_lossy(stderr));
    redacted.lines().map(visible).collect::<Vec<_>>().join("\n")
}
