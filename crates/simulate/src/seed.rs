//! A seed: the number from which a whole history follows.

use std::{fmt, hash::Hash, str::FromStr};

use fastrand::Rng;
use foldhash::quality::FixedState;

/// The version of the simulation. A change of the course that follows from a seed makes another one, so that no seed is misread.
pub const VERSION: u32 = 4;

/// A seed of this version. It is written as `VERSION-NUMBER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seed(pub u64);

/// Why a text is not a seed of this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoSeed {
    /// It has another form.
    Form(String),
    /// Another version of the simulation made it.
    Version(String),
}

impl fmt::Display for NoSeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(text) => {
                write!(f, "`{text}` is not a seed: write the version and a number, such as `{VERSION}-42`")
            }
            Self::Version(text) => write!(
                f,
                "the seed `{text}` is of another version: this simulation is version {VERSION}, in which the same number is another \
                 history; check out the commit that printed the seed"
            ),
        }
    }
}

impl std::error::Error for NoSeed {}

impl FromStr for Seed {
    type Err = NoSeed;

    fn from_str(text: &str) -> Result<Self, NoSeed> {
        let parts = text
            .split_once('-')
            .and_then(|(version, number)| Some((version.parse::<u32>().ok()?, number.parse().ok()?)));
        match parts {
            Some((VERSION, number)) => Ok(Self(number)),
            Some(_) => Err(NoSeed::Version(text.to_owned())),
            None => Err(NoSeed::Form(text.to_owned())),
        }
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}-{}", self.0)
    }
}

impl Seed {
    /// Random numbers for one purpose. They depend on the seed and `of` alone, so that a part that draws more numbers changes no other part.
    pub fn dice(self, of: impl Hash) -> Rng {
        use std::hash::BuildHasher as _;
        Rng::with_seed(FixedState::with_seed(self.0).hash_one(of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_of_another_version_is_refused() {
        assert_eq!(format!("{VERSION}-42").parse(), Ok(Seed(42)));
        let other = "0-42".parse::<Seed>().unwrap_err();
        assert!(other.to_string().contains("another version"), "{other}");
        for text in ["", "42", "1-", "1-x", "one-42"] {
            assert_eq!(text.parse::<Seed>(), Err(NoSeed::Form(text.to_owned())));
        }
    }

    #[test]
    fn numbers_depend_on_the_seed_and_the_purpose() {
        let number = |seed: u64, of: &str| Seed(seed).dice(of).u64(..);
        assert_eq!(number(1, "a"), number(1, "a"));
        assert_ne!(number(1, "a"), number(1, "b"));
        assert_ne!(number(1, "a"), number(2, "a"));
    }
}
