//! How a call ended.

use std::fmt::Write as _;

/// The longest message, in bytes. It is a header field, and Argo CD shows it to users.
const MAX_MESSAGE: usize = 4 * 1024;

/// Codes of gRPC (statuscodes.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The code of all errors of a plugin, as of argocd-cmp-server.
    Unknown = 2,
    /// The deadline has passed.
    DeadlineExceeded = 4,
    /// There is no such plugin.
    NotFound = 5,
    /// The caller has as many calls under way as it may.
    ResourceExhausted = 8,
    /// A call names a tree that is not there.
    FailedPrecondition = 9,
    /// What the caller knows of the plugin is old.
    Aborted = 10,
    /// There is no such method.
    Unimplemented = 12,
    /// The server ends, or cannot be reached. Another one may answer.
    Unavailable = 14,
    /// The caller shows nothing that is accepted.
    Unauthenticated = 16,
}

impl Code {
    /// The code that a server sent as `number`. Others than these say nothing that matters here.
    pub(crate) fn of(number: u16) -> Self {
        use Code::{
            Aborted, DeadlineExceeded, FailedPrecondition, NotFound, ResourceExhausted, Unauthenticated, Unavailable,
            Unimplemented, Unknown,
        };
        let all = [
            DeadlineExceeded,
            NotFound,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            Unimplemented,
            Unavailable,
            Unauthenticated,
        ];
        all.into_iter().find(|code| *code as u16 == number).unwrap_or(Unknown)
    }
}

/// Why a call has no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Status {
    /// The kind of failure.
    pub(crate) code: Code,
    /// What failed, where, and what to do. A user of Argo CD reads it. Holds no secret.
    pub(crate) message: String,
}

impl Status {
    /// A failure of a plugin or of its input.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self { code: Code::Unknown, message: message.into() }
    }

    /// A failure of this kind.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The same failure, in `context`.
    pub(crate) fn within(self, context: &str) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }

    /// The message as `grpc-message` has it: percent-encoded, at most [`MAX_MESSAGE`] bytes of it (PROTOCOL-HTTP2.md).
    pub(crate) fn encoded(&self) -> String {
        let end = self.message.floor_char_boundary(MAX_MESSAGE);
        self.message[..end].bytes().fold(String::new(), |mut encoded, byte| {
            match byte {
                b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
                // Writing to a string cannot fail.
                _ => drop(write!(encoded, "%{byte:02X}")),
            }
            encoded
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_encoded_and_cut_between_characters() {
        assert_eq!(Status::unknown("50 %\nä").encoded(), "50 %25%0A%C3%A4");
        let long = "ä".repeat(MAX_MESSAGE);
        assert_eq!(Status::unknown(format!("x{long}")).encoded().len(), 1 + (MAX_MESSAGE - 2) / 2 * 6);
    }
}
