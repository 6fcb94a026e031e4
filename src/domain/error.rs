//! What a backend says when it does not know: what failed, for whom, and whether asking again may help.

use std::{fmt, time::Duration};

use crate::domain::generator::Evidence;

/// A backend that does not know the answer. Never turned into an empty list (invariant I2).
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// The class of the failure, which decides the status that the caller sees.
    pub kind: ErrorKind,
    /// For the operator who reads it on an ApplicationSet's condition: what failed, where, what to do.
    /// Holds no secret (invariant I6).
    pub message: String,
    /// What was learned of each item, where there are several.
    pub evidence: Vec<Evidence>,
}

/// Classes of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The source cannot be reached or failed.
    Unavailable,
    /// The source did not answer in time.
    Timeout,
    /// The source asks to be left alone.
    Throttled {
        /// For how long, if it said so.
        retry_after: Option<Duration>,
    },
    /// The source refuses our credential. Does not heal alone.
    Denied,
    /// The call's parameters cannot be used.
    InvalidInput,
    /// The source answered something that cannot be believed.
    InvalidOutput,
}

impl ErrorKind {
    /// Whether the same question may find an answer soon.
    #[must_use]
    pub(crate) const fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::Timeout | Self::Throttled { .. })
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Throttled { .. } => "throttled",
            Self::Denied => "denied",
            Self::InvalidInput => "invalid_input",
            Self::InvalidOutput => "invalid_output",
        }
    }
}

impl BackendError {
    /// An error of the given kind.
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), evidence: Vec::new() }
    }

    /// The source cannot be reached or failed.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The source did not answer in time.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Timeout, message)
    }

    /// The call's parameters cannot be used.
    pub(crate) fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// The source answered something that cannot be believed.
    pub(crate) fn invalid_output(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidOutput, message)
    }

    /// Whether the call's parameters cannot be used.
    #[must_use]
    pub(crate) fn is_invalid_input(&self) -> bool {
        self.kind == ErrorKind::InvalidInput
    }

    /// The kind of `errors` together: where the parameters cannot be used, that, since it heals with another call only;
    /// else the first one's. `None` without errors.
    #[must_use]
    pub(crate) fn kind_of_all(errors: &[Self]) -> Option<ErrorKind> {
        let invalid = errors.iter().find(|error| error.is_invalid_input());
        invalid.or_else(|| errors.first()).map(|error| error.kind)
    }

    /// The same error, told as part of something larger: `image front: …`.
    #[must_use]
    pub(crate) fn within(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}
