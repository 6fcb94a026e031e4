//! A repository on GitHub.

use std::fmt;

/// `owner/name`.
#[derive(Debug, Clone)]
pub(super) struct GithubRepository {
    pub(super) owner: String,
    pub(super) name: String,
}

/// A text, of which this is the beginning, is not a repository.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is not a repository; write it as `owner/name`", .0.escape_debug())]
pub(super) struct RepositoryError(String);

impl GithubRepository {
    pub(super) fn parse(text: &str) -> Result<Self, RepositoryError> {
        let fits = |part: &str| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            !part.is_empty() && !matches!(part, "." | "..") && part.chars().all(is_name)
        };
        match text.split_once('/') {
            Some((owner, name)) if fits(owner) && fits(name) => {
                Ok(Self { owner: owner.to_owned(), name: name.to_owned() })
            }
            _ => Err(RepositoryError(text.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for GithubRepository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}
