//! The outcome of one exchange: why no answer arrived, and how replies of files stand for it.

use super::{Call, Reply, breaker::End, reply::is_failure};
use domain::{
    error::{BackendError, ErrorKind},
    replay::{HttpFault, HttpReply},
    secret::Secrets,
};

/// The reason why no complete answer arrived.
#[derive(Debug)]
pub(crate) struct ExchangeFailure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// The failure in words, without the destination.
    pub message: String,
}

/// The kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// The connection failed, so nothing was sent.
    Connect,
    /// The host has only addresses to which no request may go.
    Refused,
    /// The server's certificate is not trusted.
    Untrusted,
    /// The exchange took too long.
    Timeout,
    /// The answer broke off, or was not HTTP.
    Broken,
    /// The answer is too large.
    TooLarge,
}

impl ExchangeFailure {
    /// The error for the caller. The message has no number of attempts, so the same cause always has the same message.
    pub(crate) fn into_error(self) -> BackendError {
        let kind = match self.kind {
            FailureKind::Connect | FailureKind::Untrusted | FailureKind::Broken => ErrorKind::Unavailable,
            FailureKind::Timeout => ErrorKind::Timeout,
            FailureKind::Refused => ErrorKind::Denied,
            FailureKind::TooLarge => ErrorKind::InvalidOutput,
        };
        BackendError::new(kind, self.message)
    }
}

/// The part of an exchange that a file can hold. A refused address and a reply that is too large have no form there.
pub(super) fn recorded(exchanged: &Result<Reply, ExchangeFailure>) -> Option<Result<HttpReply, HttpFault>> {
    let failure = match exchanged {
        Ok(Reply { status, headers, body, .. }) => {
            return Some(Ok(HttpReply { status: *status, headers: headers.clone(), body: body.clone() }));
        }
        Err(failure) => failure,
    };
    match failure.kind {
        FailureKind::Connect | FailureKind::Untrusted => Some(Err(HttpFault::Connect)),
        FailureKind::Timeout => Some(Err(HttpFault::Timeout)),
        FailureKind::Broken => Some(Err(HttpFault::Broken)),
        FailureKind::Refused | FailureKind::TooLarge => None,
    }
}

/// A reply from a file, as if it had come over the network.
pub(super) fn replayed(
    reply: Result<HttpReply, HttpFault>,
    call: &Call,
    secrets: &Secrets,
) -> Result<Reply, ExchangeFailure> {
    let failure = |kind, message: &str| Err(ExchangeFailure { kind, message: message.to_owned() });
    match reply {
        Ok(HttpReply { body, .. }) if body.len() > call.max_bytes => {
            failure(FailureKind::TooLarge, &format!("the answer is larger than {} bytes", call.max_bytes))
        }
        Ok(HttpReply { status, headers, body }) => {
            Ok(Reply { status, headers, body, secrets: secrets.clone(), retry_after: None, attempts: 1 })
        }
        Err(HttpFault::Connect) => failure(FailureKind::Connect, "cannot connect: Connection refused"),
        Err(HttpFault::Timeout) => failure(FailureKind::Timeout, "no whole answer in time"),
        Err(HttpFault::Broken) => failure(FailureKind::Broken, "the answer broke off: connection closed"),
        Err(HttpFault::Missing(why)) => failure(FailureKind::Refused, &why),
    }
}

/// The outcome of a call, as evidence about its destination. All callers of that destination may read the text, so it holds
/// nothing of the answer's body.
pub(crate) fn end_of(outcome: &Result<Reply, ExchangeFailure>) -> End {
    match outcome {
        Ok(reply) if is_failure(reply.status) => {
            let why = format!("it answered {}", reply.status);
            reply.retry_after.map_or_else(|| End::Failed(why.clone()), |pause| End::RetryAfter(why.clone(), pause))
        }
        Ok(_) => End::Well,
        Err(failure) => match failure.kind {
            FailureKind::Connect | FailureKind::Untrusted | FailureKind::Timeout => {
                End::Failed(failure.message.clone())
            }
            FailureKind::Broken | FailureKind::Refused => End::Unclear(failure.message.clone()),
            FailureKind::TooLarge => End::Well,
        },
    }
}
