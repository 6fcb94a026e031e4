//! Globs over names, such as those of ApplicationSets. One without a wildcard is compared as text, and `*` not at all: as regular
//! expressions, which `globset` makes of them, they take a millisecond to build and 30 KiB to keep.

use globset::{Glob, GlobSet, GlobSetBuilder};

/// What globs treat in a special way.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// A compiled glob.
#[derive(Debug, Clone)]
pub(crate) enum NameGlob {
    /// Every name.
    Any,
    /// Only this name.
    Name(String),
    /// All names that it matches.
    Glob(GlobSet),
}

impl NameGlob {
    /// Compiles `glob`.
    ///
    /// # Errors
    /// When it is no glob, or too large.
    pub(crate) fn parse(glob: &str) -> Result<Self, globset::Error> {
        if glob == "*" {
            Ok(Self::Any)
        } else if glob.contains(SPECIAL) {
            // A set of one: `Glob::compile_matcher` panics if the glob is too large.
            GlobSetBuilder::new().add(Glob::new(glob)?).build().map(Self::Glob)
        } else {
            Ok(Self::Name(glob.to_owned()))
        }
    }

    /// Whether it matches `name`.
    #[must_use]
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Name(own) => own == name,
            Self::Glob(glob) => glob.is_match(name),
        }
    }
}

/// Some globs. Without any they match no name.
#[derive(Debug, Clone)]
pub(crate) struct NameGlobs(Vec<NameGlob>);

impl NameGlobs {
    /// Whether one of them matches `name`.
    #[must_use]
    pub(crate) fn matches(&self, name: &str) -> bool {
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
        assert!(NameGlob::parse(&"?".repeat(1_000_000)).is_err());
    }

    proptest! {
        /// A name is compared as the glob would be.
        #[test]
        fn names_and_globs_agree(glob in "[ab*?!,/.{}\\[\\]\\\\-]{0,5}", name in "[ab!,/.{}*-]{0,5}") {
            match (NameGlob::parse(&glob), Glob::new(&glob)) {
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
