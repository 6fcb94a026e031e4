//! Globs over names, such as those of ApplicationSets, and over paths. One without a wildcard is compared as text, and a name not at all
//! with `*`: as regular expressions, which `globset` makes of them, they take a millisecond to build and 30 KiB to keep.

use globset::GlobBuilder;
use regex::bytes::{Regex, RegexBuilder};

/// The characters that globs treat in a special way.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// A compiled glob.
#[derive(Debug, Clone)]
pub enum NameGlob {
    /// Every name.
    Any,
    /// Only this name.
    Name(String),
    /// All names that it matches.
    Glob(Regex),
}

/// Why a text is not a glob that can be used.
#[derive(Debug, thiserror::Error)]
pub enum GlobError {
    /// It is not a glob.
    #[error("{0}")]
    Syntax(#[from] globset::Error),
    /// Its regular expression would be too large.
    #[error("the glob is too large")]
    TooLarge(#[source] regex::Error),
}

impl From<GlobError> for String {
    fn from(error: GlobError) -> Self {
        error.to_string()
    }
}

/// The glob that matches only `text`.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.chars().flat_map(|c| SPECIAL.contains(&c).then_some('\\').into_iter().chain([c])).collect()
}

impl NameGlob {
    /// Compiles `glob`, in which `*` also matches `/`.
    ///
    /// # Errors
    /// When it is not a glob, or too large.
    pub fn parse(glob: &str) -> Result<Self, GlobError> {
        if glob == "*" { Ok(Self::Any) } else { Self::compile(glob, false) }
    }

    /// Compiles `glob` for paths: `*` and `?` do not match `/`, and `**` does.
    ///
    /// # Errors
    /// When it is not a glob, or too large.
    pub fn parse_path(glob: &str) -> Result<Self, GlobError> {
        Self::compile(glob, true)
    }

    fn compile(glob: &str, is_path: bool) -> Result<Self, GlobError> {
        if !glob.contains(SPECIAL) {
            return Ok(Self::Name(glob.to_owned()));
        }
        let parsed = GlobBuilder::new(glob).literal_separator(is_path).build()?;
        // As `Glob::compile_matcher`, which panics if the glob is too large.
        let compiled = RegexBuilder::new(parsed.regex()).dot_matches_new_line(true).build();
        compiled.map(Self::Glob).map_err(GlobError::TooLarge)
    }

    /// Whether it matches `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.matches_bytes(name.as_bytes())
    }

    /// Whether it matches `name`, which need not be text: a path may hold any bytes.
    #[must_use]
    pub fn matches_bytes(&self, name: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Name(own) => own.as_bytes() == name,
            Self::Glob(glob) => glob.is_match(name),
        }
    }
}

/// Some globs. Without any they match no name.
#[derive(Debug, Clone)]
pub struct NameGlobs(Vec<NameGlob>);

impl NameGlobs {
    /// Whether one of them matches `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|glob| glob.matches(name))
    }
}

impl FromIterator<NameGlob> for NameGlobs {
    fn from_iter<T: IntoIterator<Item = NameGlob>>(globs: T) -> Self {
        Self(globs.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_glob_that_is_too_large_is_an_error() {
        let large = "?".repeat(200_000);
        assert!(NameGlob::parse(&large).is_err() && NameGlob::parse_path(&large).is_err());
    }

    #[test]
    fn a_byte_of_a_path_that_is_no_text_is_one_character() {
        let glob = NameGlob::parse_path("a?/*").unwrap();
        assert!(glob.matches_bytes(b"a\xff/b") && !glob.matches_bytes(b"a\xff\xff/b"));
    }

    proptest! {
        #[test]
        fn an_escaped_text_matches_only_itself(text in "[ab*?!,/.{}\\[\\]\\\\-]{0,8}", other in "[ab*?!,/.{}\\[\\]\\\\-]{0,8}") {
            let glob = NameGlob::parse(&escaped(&text)).unwrap();
            prop_assert!(glob.matches(&text));
            prop_assert_eq!(glob.matches(&other), text == other);
        }

        /// A name is compared as the glob would be.
        #[test]
        fn names_and_globs_agree(glob in "[ab*?!,/.{}\\[\\]\\\\-]{0,5}", name in "[ab!,/.{}*-]{0,5}") {
            for (is_path, parsed) in [(false, NameGlob::parse(&glob)), (true, NameGlob::parse_path(&glob))] {
                match (parsed, GlobBuilder::new(&glob).literal_separator(is_path).build()) {
                    (Ok(own), Ok(other)) => {
                        let other = other.compile_matcher();
                        prop_assert_eq!(own.matches(&name), other.is_match(&name));
                        prop_assert_eq!(own.matches(&glob), other.is_match(&glob));
                    }
                    (own, other) => prop_assert_eq!(own.is_err(), other.is_err()),
                }
            }
        }
    }
}
