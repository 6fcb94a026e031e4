//! Names that a gate requires: exact, or as a regular expression between slashes.

use regex::Regex;

use domain::{
    pattern::{self, PatternError},
    problem::{Path, Problems},
};

/// Why a text is not a required name.
#[derive(Debug, thiserror::Error)]
pub enum NamePatternError {
    /// It is empty.
    #[error("a name is empty")]
    Empty,
    /// There is nothing between its slashes.
    #[error("the expression between the slashes is empty, and would match everything")]
    EmptyExpression,
    /// The text between its slashes is not a regular expression.
    #[error(transparent)]
    Expression(#[from] PatternError),
}

/// A required name.
#[derive(Debug, Clone)]
pub enum NamePattern {
    /// Exactly this.
    Exact(String),
    /// `/…/`: the expression matches anywhere in a name, unless it has `^` and `$`.
    Regex(Regex),
}

impl NamePattern {
    /// Reads `build` or `/^build-/`.
    ///
    /// # Errors
    /// When the text is empty or not a regular expression.
    pub fn parse(text: &str) -> Result<Self, NamePatternError> {
        if text.trim().is_empty() {
            return Err(NamePatternError::Empty);
        }
        match text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')) {
            Some("") => Err(NamePatternError::EmptyExpression),
            Some(source) => Ok(Self::Regex(pattern::anywhere(source)?)),
            None => Ok(Self::Exact(text.to_owned())),
        }
    }

    /// Reads the list at `path`, and notes the problems of each entry there.
    pub(crate) fn parse_all(texts: &[String], path: &Path, problems: &mut Problems) -> Vec<Self> {
        let parsed = texts.iter().enumerate().map(|(index, text)| problems.note(&path.index(index), Self::parse(text)));
        parsed.collect::<Vec<_>>().into_iter().flatten().collect()
    }

    /// Whether `name` matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Regex(regex) => regex.is_match(name),
        }
    }
}

impl NamePattern {
    /// The name among `names` that is meant if none matches: it differs in its case, or in white space around it. Such a check is not missing.
    #[must_use]
    pub fn misspelt<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
        let Self::Exact(exact) = self else { return None };
        names.find(|name| name.trim().eq_ignore_ascii_case(exact.trim()) && name != exact)
    }

    /// The error for [`Self::misspelt`].
    pub(crate) fn differs_from(&self, name: &str) -> String {
        let shown: String = name.chars().take(80).collect();
        format!("there is no `{self}`, but `{}`; names are compared with their case", shown.escape_debug())
    }
}

impl std::fmt::Display for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(exact) => f.write_str(exact),
            Self::Regex(regex) => write!(f, "/{regex}/"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_another_case_is_misspelt() {
        let misspelt = |pattern: &str, name| NamePattern::parse(pattern).unwrap().misspelt([name].into_iter());
        assert_eq!(misspelt("build", "Build "), Some("Build "));
        for (pattern, name) in [("build", "build"), ("build", "build-2"), ("/build/", "Build")] {
            assert_eq!(misspelt(pattern, name), None, "{pattern} {name}");
        }
    }

    #[test]
    fn exact_or_between_slashes() {
        let matches = |pattern: &str, name: &str| NamePattern::parse(pattern).unwrap().matches(name);
        assert!(matches("build", "build") && !matches("build", "build-2") && !matches("build.", "build2"));
        assert!(matches("/^build( \\(.*\\))?$/", "build (linux)") && !matches("/^build$/", "rebuild"));
        assert!(matches("/build/", "rebuild"), "anchored as written");
        assert!(matches("ci/build", "ci/build") && matches("/", "/"));
        for (bad, says) in [("", "empty"), ("//", "match everything"), ("/(/", "unclosed group")] {
            let error = NamePattern::parse(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
