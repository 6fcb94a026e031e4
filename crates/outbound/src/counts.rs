//! Counts attempts, and the calls that were not sent.

use super::{Outcome, exchange::FailureKind, reply::is_failure};
use domain::error::{BackendError, ErrorKind};
use telemetry::trace::Record;

/// The result of an attempt, as a label of metrics.
pub(crate) fn sent(outcome: &Outcome) -> &'static str {
    match outcome {
        Ok(reply) if reply.is_limit() => "limited",
        Ok(reply) if is_failure(reply.status) => "failed",
        Ok(reply) if reply.status.is_client_error() => "refused",
        Ok(_) => "ok",
        Err(failure) => match failure.kind {
            FailureKind::Connect => "connect",
            FailureKind::Refused => "forbidden",
            FailureKind::Untrusted => "untrusted",
            FailureKind::Timeout => "timeout",
            FailureKind::Broken => "broken",
            FailureKind::TooLarge => "too_large",
        },
    }
}

/// Writes the result of an attempt into a span.
pub(crate) fn note(outcome: &Outcome, record: &mut Record) {
    match outcome {
        Ok(reply) => {
            record.set("http.response.status_code", reply.status.as_u16());
            if reply.status.as_u16() >= 400 {
                record.fail(reply.status.as_str().to_owned());
            }
        }
        Err(_) => record.fail(sent(outcome)),
    }
}

/// The reason why a call was not sent, as a label of metrics.
pub(crate) const fn spared(error: &BackendError) -> &'static str {
    match error.kind {
        ErrorKind::Throttled { .. } => "throttled",
        ErrorKind::Timeout => "no_permit",
        _ => "backoff",
    }
}
