//! Why an expression has no value.

use cel::ExecutionError;

use domain::{document::DocumentError, visible::one_line};

/// Why an expression has no value. The text shows the expression, in one line. It is not shortened here: redaction could not recognise half
/// a secret.
#[derive(Debug, thiserror::Error)]
#[error("{}", text(.expression, .cause))]
pub struct ExpressionError {
    /// The expression.
    expression: String,
    /// Why it has no value.
    #[source]
    cause: ExpressionCause,
}

/// Why an expression does not fit its variables.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpressionCause {
    /// CEL cannot evaluate it.
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    /// A part of it is an object, whose keys CEL would iterate.
    #[error("an object, where a list is expected")]
    Object,
    /// A variable cannot be read, or the result cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The result is not a document.
    #[error(transparent)]
    Document(#[from] DocumentError),
}

fn text(expression: &str, cause: &ExpressionCause) -> String {
    one_line(&format!("`{}`: {cause}", expression.trim()))
}

impl ExpressionCause {
    /// The error of `expression`.
    pub(super) fn of(self, expression: &str) -> ExpressionError {
        ExpressionError { expression: expression.to_owned(), cause: self }
    }
}
