//! Why an event cannot be read, and why a delivery cannot be signed.

use domain::secret::SecretError;

/// Why an event has no subjects. No text repeats anything of the body.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// The body is not JSON.
    #[error("the body is not JSON: {} at line {}, column {}", category(.0), .0.line(), .0.column())]
    Json(#[source] serde_json::Error),
    /// The body is not what this kind of sender sends.
    #[error("{0}")]
    Body(&'static str),
    /// The hook's `subjects` cannot be evaluated for the event.
    #[error("{0}")]
    Unmapped(String),
    /// The hook's `subjects` is not a list.
    #[error("the hook's `subjects` must give a list")]
    NoList,
    /// The hook's `subjects` is too long a list.
    #[error("the hook's `subjects` gives more than {0} items")]
    TooMany(usize),
    /// An item of the hook's `subjects` is too large.
    #[error("an item of the hook's `subjects` has more than {0} bytes")]
    TooLarge(usize),
    /// An item of the hook's `subjects` names nothing.
    #[error("an item of the hook's `subjects` has no valid `image`, `commit`, `url`, `route` or `parameters`")]
    NoSubject,
}

/// Why a delivery cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The hook's secret cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The hook has no secret.
    #[error("it has no secret")]
    NoSecret,
    /// A caller's token proves a delivery.
    #[error("its senders prove themselves by a token: give it with --sender-token-file")]
    ByToken,
}

fn category(error: &serde_json::Error) -> &'static str {
    if error.is_eof() { "it ends too early" } else { "a syntax error" }
}
