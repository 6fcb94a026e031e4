//! A commit's full name. A shortened name is refused: APIs answer it with an empty list, which would delete Applications.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Building;
use domain::error::BackendError;
use lang::{evaluator::Context, template::Template};

/// The fewest digits of a shortened commit in a label.
const SHORTEST_LABEL: usize = 7;

/// 40 hexadecimal digits (SHA-1) or 64 (SHA-256), in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Commit(String);

impl Commit {
    /// Reads a full commit, in either case.
    ///
    /// # Errors
    /// When `text` is empty, shortened, or not a commit at all; the text has an alternative.
    pub fn parse(text: &str) -> Result<Self, String> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match text.len() {
            40 | 64 if is_hex => Ok(Self(text.to_ascii_lowercase())),
            0 => Err("the commit is empty; is the parameter that names it set?".to_owned()),
            1..40 if is_hex => Err(format!(
                "`{text}` is a shortened commit, which several may share; use the full one, such as the pull request generator's \
                 `head_sha`"
            )),
            _ => {
                let shown: String = text.chars().take(80).collect();
                Err(format!("`{}` is not a commit: 40 or 64 hexadecimal digits", shown.escape_debug()))
            }
        }
    }

    /// The template `source` of a commit. Notes what is wrong with it, or with the commit if that is written out.
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
        let parsed = text.and_then(|text| Ok(Self::parse(text.trim())?));
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
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
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
            assert!(Commit::parse(bad).unwrap_err().contains(says), "{bad}");
        }
    }
}
