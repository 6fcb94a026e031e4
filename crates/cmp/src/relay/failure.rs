//! Why a replica has not answered.

use crate::grpc::status::{Code, Status};

/// Why a replica has not answered.
#[derive(Debug)]
pub(super) enum Failure {
    /// The call has not reached it.
    Unreached(String),
    /// The connection broke when the call was under way.
    Broken(String),
    /// It answered so.
    Status(Status),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreached(why) | Self::Broken(why) => f.write_str(why),
            Self::Status(status) if status.code == Code::Unknown => f.write_str(&status.message),
            Self::Status(status) => write!(f, "{} ({:?})", status.message, status.code),
        }
    }
}

/// An error with its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
