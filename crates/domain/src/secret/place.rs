//! A place in a text that seems to hold a secret.

use std::ops::Range;

use regex::Regex;

/// A place in a text that seems to hold a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretPlace {
    pub(super) range: Range<usize>,
    /// Whether it is a part of a URL, in which brackets are encoded.
    pub(super) is_in_url: bool,
}

impl SecretPlace {
    pub(super) const fn new(range: Range<usize>) -> Self {
        Self { range, is_in_url: false }
    }
}

/// The first `max` bytes of `text`, or a few less.
pub(super) fn start_of(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[expect(clippy::expect_used, reason = "the patterns are constants, and tests use each")]
pub(super) fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}
