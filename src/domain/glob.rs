//! Globs over names, such as those of ApplicationSets. One without a wildcard is compared as text: as a regular expression, which `globset`
//! makes of it, it takes a millisecond to build and 30 KiB to keep.

use globset::{Glob, GlobMatcher};

/// What globs treat in a special way.
const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];

/// A compiled glob.
#[derive(Debug, Clone)]
pub(crate) enum NameGlob {
    /// Only this name.
    Name(String),
    /// All names that it matches.
    Glob(GlobMatcher),
}

impl NameGlob {
    /// Compiles `glob`.
    ///
    /// # Errors
    /// When it is no glob.
    pub(crate) fn parse(glob: &str) -> Result<Self, globset::Error> {
        if glob.contains(SPECIAL) {
            Glob::new(glob).map(|glob| Self::Glob(glob.compile_matcher()))
        } else {
            Ok(Self::Name(glob.to_owned()))
        }
    }

    /// Whether it matches `name`.
    #[must_use]
    pub(crate) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Glob(glob) => glob.is_match(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
