//! What is counted of each attempt, and of the calls that were not made.

use super::{Outcome, client::How, reply::is_failure};
use crate::error::{BackendError, ErrorKind};

/// How an attempt ended.
pub fn sent(outcome: &Outcome) -> &'static str {
    match outcome {
        Ok(reply) if reply.is_limit() => "limited",
        Ok(reply) if is_failure(reply.status) => "failed",
        Ok(reply) if reply.status.is_client_error() => "refused",
        Ok(_) => "ok",
        Err(failure) => match failure.how {
            How::Connect => "connect",
            How::Refused => "forbidden",
            How::Untrusted => "untrusted",
            How::Timeout => "timeout",
            How::Broken => "broken",
            How::TooLarge => "too_large",
        },
    }
}

/// Why there was no attempt.
pub const fn spared(error: &BackendError) -> &'static str {
    match error.kind {
        ErrorKind::Throttled { .. } => "throttled",
        ErrorKind::Timeout => "no_turn",
        _ => "resting",
    }
}
