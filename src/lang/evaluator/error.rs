//! What is told when an evaluation brings nothing.

use crate::{
    domain::error::{BackendError, ErrorKind},
    lang::template::{Misfit, Refusal},
};

/// Why an evaluation brought nothing.
#[derive(Debug, Clone)]
pub struct EvaluationError {
    /// Nothing where it is up to the expression or template itself.
    kind: Option<ErrorKind>,
    message: String,
    misfit: Option<Misfit>,
}

/// What ended an evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// The deadline.
    Time,
    /// Other routes waited, and it had taken its share.
    Share,
    /// Other evaluations were under way until the deadline.
    NoTurn,
    /// It wanted more memory than there is, which is so many MiB.
    Memory(u64),
    /// The evaluator ended.
    Crashed(String),
    /// No evaluator could be started.
    NotStarted(String),
    /// There are no evaluators here.
    None,
}

impl Cause {
    /// The name in metrics.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Time => "timeout",
            Self::Share => "share",
            Self::NoTurn => "no_turn",
            Self::Memory(_) => "memory",
            Self::Crashed(_) => "crashed",
            Self::NotStarted(_) | Self::None => "unavailable",
        }
    }

    /// The error, of an expression or a template that is written `source`.
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
            Self::NoTurn => {
                let why = "it had no turn before the deadline: other evaluations were under way all the while";
                (Some(ErrorKind::Timeout), why.to_owned())
            }
            Self::Memory(most) => {
                (None, format!("its evaluation needs more than {most} MiB of memory, and was ended; {less}"))
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
        let message = format!("`{shown}`: {why}").replace(char::is_control, " ");
        EvaluationError { kind, message, misfit: None }
    }
}

impl EvaluationError {
    /// The backend's error, as `wrong` makes it of a text; but for what has nothing to do with the input.
    pub(crate) fn told(self, wrong: impl FnOnce(String) -> BackendError) -> BackendError {
        let error = wrong(self.message);
        BackendError { kind: self.kind.unwrap_or(error.kind), ..error }
    }

    /// What is wrong with a value in an image's name, if that is the cause.
    #[must_use]
    pub(crate) const fn misfit(&self) -> Option<Misfit> {
        self.misfit
    }

    /// The same, told as part of something larger.
    #[must_use]
    pub(crate) fn within(self, context: impl std::fmt::Display) -> Self {
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

impl std::fmt::Display for EvaluationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}
