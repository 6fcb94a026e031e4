//! Errors of evaluations.

use crate::template::{JsonError, Misfit, Refusal};
use domain::{
    error::{BackendError, ErrorKind},
    visible::one_line,
};

/// Why an evaluation has no result.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct EvaluationError {
    /// `None` if the expression or template itself is the cause.
    kind: Option<ErrorKind>,
    message: String,
    #[source]
    misfit: Option<Misfit>,
}

/// Why an evaluation ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The deadline passed.
    Time,
    /// It had its share of time, and other routes waited.
    Share,
    /// No evaluator was free before the deadline.
    NoSlot,
    /// It needed more memory than these MiB.
    Memory(u64),
    /// The evaluator ended.
    Crashed(String),
    /// No evaluator could be started.
    NotStarted(String),
    /// There are no evaluators.
    None,
}

impl Cause {
    /// The outcome in metrics.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Time => "timeout",
            Self::Share => "share",
            Self::NoSlot => "no_permit",
            Self::Memory(_) => "memory",
            Self::Crashed(_) => "crashed",
            Self::NotStarted(_) | Self::None => "unavailable",
        }
    }

    /// The error for the expression or template `source`.
    pub(super) fn of(self, source: &str) -> EvaluationError {
        let less = "simplify it, or let the source send less";
        let (kind, why) = match self {
            Self::Time => (
                Some(ErrorKind::Timeout),
                format!("its evaluation took longer than the deadline, and was ended; {less}"),
            ),
            Self::Share => {
                let why = format!("its evaluation took more than 2 s while other routes waited, and was ended; {less}");
                (Some(ErrorKind::Timeout), why)
            }
            Self::NoSlot => {
                let why = "it had no free slot: other evaluations were under way until the deadline";
                (Some(ErrorKind::Timeout), why.to_owned())
            }
            Self::Memory(max) => {
                (None, format!("its evaluation needs more than {max} MiB of memory, and was ended; {less}"))
            }
            Self::Crashed(how) => (
                Some(ErrorKind::Unavailable),
                format!("its evaluator has ended ({how}); the next call has another one"),
            ),
            Self::NotStarted(why) => {
                (Some(ErrorKind::Unavailable), format!("no evaluator can be started for it: {why}"))
            }
            Self::None => (None, format!("it takes too much time or memory here; {less}")),
        };
        let shown: String = source.trim().chars().take(300).collect();
        let message = one_line(&format!("`{shown}`: {why}"));
        EvaluationError { kind, message, misfit: None }
    }
}

impl EvaluationError {
    /// The backend's error. `wrong` makes it from the message, unless the cause has its own kind.
    pub fn into_backend_error(self, wrong: impl FnOnce(String) -> BackendError) -> BackendError {
        let error = wrong(self.message);
        BackendError { kind: self.kind.unwrap_or(error.kind), ..error }
    }

    /// The mistake of a value in an image's name, if that is the cause.
    #[must_use]
    pub const fn misfit(&self) -> Option<Misfit> {
        self.misfit
    }

    /// The error with `context` before it.
    #[must_use]
    pub fn within(self, context: impl std::fmt::Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }
}

impl From<String> for EvaluationError {
    fn from(message: String) -> Self {
        Self { kind: None, message, misfit: None }
    }
}

impl From<Refusal> for EvaluationError {
    fn from(Refusal { message, misfit }: Refusal) -> Self {
        Self { kind: None, message, misfit }
    }
}

impl From<JsonError> for EvaluationError {
    fn from(error: JsonError) -> Self {
        Self::from(error.to_string())
    }
}
