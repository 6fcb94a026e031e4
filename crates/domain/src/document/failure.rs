//! Why a text is not a document. The parser's own error is the cause.

use super::MAX_VALUES;

/// Why a text is not the JSON document that is expected.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It has no value.
    #[error("it is blank")]
    Blank,
    /// It has more values than are accepted.
    #[error("it holds more than {MAX_VALUES} values")]
    TooManyValues,
    /// It has this whole number, which would lose digits.
    #[error("the number {0} is too long to be kept to the digit; its source must write it as a text")]
    NumberTooLong(String),
    /// It is a value of this kind.
    #[error("expected an object, found {0}")]
    NotAnObject(&'static str),
    /// It is not JSON, has a repeated key, or does not fit its type. The text has line and column.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

impl From<DocumentError> for String {
    fn from(error: DocumentError) -> Self {
        error.to_string()
    }
}
