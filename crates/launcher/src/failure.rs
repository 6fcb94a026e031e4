//! Why a program did not run. The type separates a program that did not start from all other failures.

use std::{fmt, io};

use serde::{Deserialize, Serialize};

use domain::error::BackendError;

/// Why a program has no result.
#[derive(Debug, Clone)]
pub enum LaunchError {
    /// The program was not started.
    NotStarted(StartFailure),
    /// All other failures.
    Other(BackendError),
}

/// Why a program was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailure {
    /// The reason, in words.
    pub why: String,
    /// The number of the system's error, if there was one.
    pub errno: Option<i32>,
    /// Whether [`super::Program::first`] was not started.
    pub is_first: bool,
}

impl StartFailure {
    /// The same failure, of [`super::Program::first`] if `is_first`.
    pub(super) fn of_first(self, is_first: bool) -> Self {
        Self { is_first, ..self }
    }
}

impl fmt::Display for StartFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let program = if self.is_first { "init: " } else { "" };
        write!(f, "cannot start: {program}{}", self.why)
    }
}

impl From<String> for StartFailure {
    fn from(why: String) -> Self {
        Self { why, errno: None, is_first: false }
    }
}

impl From<io::Error> for StartFailure {
    fn from(error: io::Error) -> Self {
        Self { why: error.to_string(), errno: error.raw_os_error(), is_first: false }
    }
}

impl From<StartFailure> for LaunchError {
    fn from(failure: StartFailure) -> Self {
        Self::NotStarted(failure)
    }
}

impl From<BackendError> for LaunchError {
    fn from(error: BackendError) -> Self {
        Self::Other(error)
    }
}

impl From<LaunchError> for BackendError {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::NotStarted(failure) => Self::unavailable(failure.to_string()),
            LaunchError::Other(error) => error,
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(failure) => failure.fmt(f),
            Self::Other(error) => error.fmt(f),
        }
    }
}
