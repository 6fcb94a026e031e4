//! Why a text is not a template.

use super::{mistakes, one_line};
use crate::scope::NameScope;

/// Why a text is not a template.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// Its constants alone make too long a text.
    #[error("it repeats a text too often: only its constants make more than 16 MiB")]
    TooLong,
    /// It cannot be parsed.
    #[error("{}{hint}", one_line(.cause))]
    Syntax {
        /// The parser's error.
        #[source]
        cause: minijinja::Error,
        /// The text to write instead, if it is known.
        hint: String,
    },
    /// It uses a name that does not exist where it stands.
    #[error("unknown name `{name}`; {help}")]
    UnknownName {
        /// The name, or several.
        name: String,
        /// The name to write instead, or all names.
        help: String,
    },
}

impl TemplateError {
    /// The parser's error for `source`.
    pub(super) fn of_syntax(cause: minijinja::Error, source: &str, scope: Option<&NameScope>) -> Self {
        Self::Syntax { cause, hint: mistakes::of_syntax(source, scope) }
    }
}

/// Why a value of a template cannot be written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// An item of it has no value.
    #[error(transparent)]
    Item(#[from] minijinja::Error),
    /// JSON cannot express it.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}
