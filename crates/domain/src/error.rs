//! Errors of backends: the failure, and whether another attempt may help.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::generator::Evidence;

/// Why a backend has no answer. Never turned into an empty list (invariant I2).
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct BackendError {
    /// The kind of failure, which decides the status for the caller.
    pub kind: ErrorKind,
    /// The failure, its place, and the remedy. The operator reads it in a condition of the ApplicationSet. Holds no secret
    /// (invariant I6).
    pub message: String,
    /// The evidence for each item, if there are several.
    pub evidence: Vec<Evidence>,
    /// When another attempt may help, if that is known, such as when a destination gets requests again. `None`: after the usual backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_in: Option<Duration>,
}

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorKind {
    /// The source cannot be reached or failed.
    Unavailable,
    /// The source did not answer in time.
    Timeout,
    /// The source demands a pause.
    Throttled {
        /// The length of the pause, if the source named one.
        retry_after: Option<Duration>,
    },
    /// The source refuses the credential. This does not heal by itself.
    Denied,
    /// The parameters of the request are unusable.
    InvalidInput,
    /// The source gave an answer that cannot be trusted.
    InvalidOutput,
}

impl ErrorKind {
    /// Whether the same request may soon succeed.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
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
    /// An error of the kind `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), evidence: Vec::new(), retry_in: None }
    }

    /// The source cannot be reached or failed.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The source did not answer in time.
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Timeout, message)
    }

    /// The parameters of the request are unusable.
    pub fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// The source gave an answer that cannot be trusted.
    pub fn invalid_output(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidOutput, message)
    }

    /// Whether the parameters of the request are unusable.
    #[must_use]
    pub fn is_invalid_input(&self) -> bool {
        self.kind == ErrorKind::InvalidInput
    }

    /// Several `errors` as one, without their evidence, which becomes `evidence`. `None` without errors. Its kind is `InvalidInput` if one
    /// has it, since only another request can help then; else that of the first.
    #[must_use]
    pub fn of_all(errors: &[Self], evidence: Vec<Evidence>) -> Option<Self> {
        let decider = errors.iter().find(|error| error.is_invalid_input()).or_else(|| errors.first())?;
        let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
        // All of them must be over.
        let retry_in = errors.iter().map(|error| error.retry_in).collect::<Option<Vec<_>>>();
        let retry_in = retry_in.and_then(|all| all.into_iter().max());
        Some(Self { kind: decider.kind, message: messages.join("; "), evidence, retry_in })
    }

    /// The error, after which another attempt may help in `time`.
    #[must_use]
    pub fn retried_in(mut self, time: Option<Duration>) -> Self {
        self.retry_in = time;
        self
    }

    /// The error with `context` before its message: `image front: …`.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_errors_are_over_when_all_are() {
        let after = |seconds| BackendError::unavailable("x").retried_in(Some(Duration::from_secs(seconds)));
        let all = |errors: &[BackendError]| BackendError::of_all(errors, Vec::new());
        assert_eq!(all(&[after(2), after(5)]).unwrap().retry_in, Some(Duration::from_secs(5)));
        let failed = BackendError::timeout("y");
        let both = all(&[failed, after(5)]).unwrap();
        assert_eq!((both.kind, &*both.message, both.retry_in), (ErrorKind::Timeout, "y; x", None));
        assert!(all(&[]).is_none());
    }
}
