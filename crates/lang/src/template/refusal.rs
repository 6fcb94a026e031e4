//! Why a template makes no text, and whether a value in an image's name is the cause.

use std::error::Error as _;

use minijinja::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// The mistake of a value in an image's name. It is the source of minijinja's error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Misfit {
    /// No tag can be made of it.
    #[error("no tag can be made of it")]
    NoTag,
    /// It has characters that no part of an image reference may have.
    #[error("no image reference can hold it")]
    NotInReference,
}

impl Misfit {
    /// minijinja's error with `message` about `value`. An empty value is an unset parameter, and no misfit.
    pub(super) fn error(self, value: &str, message: String) -> Error {
        let error = Error::new(ErrorKind::InvalidOperation, message);
        if value.trim().is_empty() { error } else { error.with_source(self) }
    }

    /// The misfit that caused `error`.
    pub(super) fn of(error: &Error) -> Option<Self> {
        let mut cause = error.source();
        while let Some(found) = cause {
            if let Some(misfit) = found.downcast_ref() {
                return Some(*misfit);
            }
            cause = found.source();
        }
        None
    }
}

/// Why a template makes no text. Evaluators send it to the gateway, so of its causes only the misfit is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct Refusal {
    /// The reason, for a message.
    pub message: String,
    /// The mistake of a value in an image's name, if that is the cause.
    #[source]
    pub misfit: Option<Misfit>,
}
