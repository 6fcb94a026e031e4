//! A commit's full name. A shortened name is refused: APIs answer it with an empty list, which would delete Applications.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Building;
use domain::error::BackendError;
use lang::{evaluator::Context, template::Template};

/// The fewest digits of a shortened commit in a label.
const SHORTEST_LABEL: usize = 7;

/// Why a text is not a full commit.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// It is empty.
    #[error("the commit is empty; is the parameter that names it set?")]
    Empty,
    /// It is this shortened commit.
    #[error(
        "`{0}` is a shortened commit, which several may share; use the full one, such as the pull request generator's `head_sha`"
    )]
    Shortened(String),
    /// It begins like this, and is something else.
    #[error("`{}` is not a commit: 40 or 64 hexadecimal digits", .0.escape_debug())]
    Other(String),
}

/// 40 hexadecimal digits (SHA-1) or 64 (SHA-256), in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Commit(String);

impl Commit {
    /// Reads a full commit, in either case.
    ///
    /// # Errors
    /// When `text` is empty, shortened, or not a commit at all; the text has an alternative.
    pub fn parse(text: &str) -> Result<Self, CommitError> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.len() {
            40 | 64 if is_hex => Ok(Self(text.to_ascii_lowercase())),
            0 => Err(CommitError::Empty),
            1..40 if is_hex => Err(CommitError::Shortened(text.to_owned())),
            _ => Err(CommitError::Other(text.chars().take(80).collect())),
        }
    }

    /// The template `source` of a commit. Notes its mistakes, or those of the commit if that is written out.
    pub(super) fn template(source: &str, building: &mut Building<'_>) -> Option<Template> {
        let template = building.template(source)?;
        if template.fixed_prefix() == source {
            building.note(Self::parse(source))?;
        }
        Some(template)
    }

    /// The full commit that `template` makes with the values of `context`.
    ///
    /// # Errors
    /// When a value is missing, or the result is not a full commit.
    pub async fn render(template: &Template, context: &Context) -> Result<Self, BackendError> {
        let text = context.render(template).await;
        let parsed = text.and_then(|text| Self::parse(text.trim()).map_err(|error| error.to_string().into()));
        parsed.map_err(|error| error.into_backend_error(BackendError::invalid_input))
    }

    /// All its digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `label` names this commit, in whichever case.
    #[must_use]
    pub fn is(&self, label: &str) -> bool {
        label.trim().eq_ignore_ascii_case(&self.0)
    }

    /// Whether `label` names something else. A shortened commit does not.
    #[must_use]
    pub(crate) fn is_contradicted_by(&self, label: &str) -> bool {
        label.len() < SHORTEST_LABEL || !self.0.starts_with(&label.to_ascii_lowercase())
    }

    /// Its first 8 digits, for messages.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..8]
    }
}

impl TryFrom<String> for Commit {
    type Error = CommitError;

    fn try_from(text: String) -> Result<Self, CommitError> {
        Self::parse(&text)
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_full_commits_are_accepted() {
        let full = "Fee1dead".repeat(5);
        assert_eq!(Commit::parse(&full).unwrap().as_str(), full.to_lowercase());
        assert_eq!(Commit::parse(&"a".repeat(64)).unwrap().short(), "aaaaaaaa");
        for (bad, says) in [
            ("", "is empty"),
            ("fee1dead", "shortened"),
            (&full[..39], "shortened"),
            (&format!("{full}0"), "is not a commit"),
            ("main", "is not a commit"),
            (&"g".repeat(40), "is not a commit"),
        ] {
            assert!(Commit::parse(bad).unwrap_err().to_string().contains(says), "{bad}");
        }
    }
}
