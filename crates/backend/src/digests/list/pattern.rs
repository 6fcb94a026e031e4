//! Patterns: `*` stands for any text, `?` for one character. Every other character matches only itself.

use regex::Regex;

/// Why a text is not a pattern, or fits no tag. The texts are beginnings of it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GlobPatternError {
    /// It is empty.
    #[error("the pattern is empty, and fits no tag")]
    Empty,
    /// It has a character that no tag has.
    #[error(
        "`{}` fits no tag: tags have no `{}`; a pattern has only `*` and `?`, otherwise use `regex`",
        .text.escape_debug(), .character.escape_debug()
    )]
    Character {
        /// Its beginning.
        text: String,
        /// The character.
        character: char,
    },
    /// It starts as no tag does.
    #[error("`{0}` fits no tag: a tag starts with none of `.` and `-`")]
    Start(String),
    /// It is too long.
    #[error(transparent)]
    TooLong(#[from] regex::Error),
}

/// A pattern for a whole text, with a group for each wildcard.
#[derive(Debug)]
pub(super) struct GlobPattern(Regex);

impl GlobPattern {
    /// Parses a pattern of any text.
    ///
    /// # Errors
    /// When it is too long.
    pub(super) fn parse(text: &str) -> Result<Self, GlobPatternError> {
        let parts = text.chars().map(|c| match c {
            '*' => "(.*)".to_owned(),
            '?' => "(.)".to_owned(),
            c => regex::escape(c.encode_utf8(&mut [0; 4])),
        });
        Ok(Self(Regex::new(&format!("(?s)^{}$", parts.collect::<String>()))?))
    }

    /// Parses a pattern of tags.
    ///
    /// # Errors
    /// When no tag can fit it.
    pub(crate) fn of_tags(text: &str) -> Result<Self, GlobPatternError> {
        if text.is_empty() {
            return Err(GlobPatternError::Empty);
        }
        check_tag_part(text)?;
        if text.starts_with(['.', '-']) {
            return Err(GlobPatternError::Start(text.chars().take(80).collect()));
        }
        Self::parse(text)
    }

    /// Whether `text` fits.
    pub(super) fn fits(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// The texts that the wildcards match, if `text` fits.
    pub(super) fn captures<'a>(&self, text: &'a str) -> Option<Vec<&'a str>> {
        let found = self.0.captures(text)?;
        Some(found.iter().skip(1).map(|part| part.map_or("", |part| part.as_str())).collect())
    }
}

/// Checks a part of a pattern of tags. A character that no tag can have would select nothing, and so delete Applications.
///
/// # Errors
/// When it has such a character.
pub(super) fn check_tag_part(text: &str) -> Result<(), GlobPatternError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | '?');
    match text.chars().find(|c| !fits(*c)) {
        None => Ok(()),
        Some(character) => Err(GlobPatternError::Character { text: text.chars().take(80).collect(), character }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_and_capture() {
        for (pattern, text, captures) in [
            ("pr-*-?", "pr-12-a", Some(vec!["12", "a"])),
            ("*", "", Some(vec![""])),
            ("1.2", "1.2", Some(vec![])),
            ("1.2", "1x2", None),
            ("1.2", "1.2.3", None),
            ("a*", "ba", None),
            ("*b", "a\nb", Some(vec!["a\n"])),
            ("[a]+(b)", "[a]+(b)", Some(vec![])),
            ("?", "ü", Some(vec!["ü"])),
        ] {
            let pattern = GlobPattern::parse(pattern).unwrap();
            assert_eq!(pattern.captures(text), captures, "{pattern:?} {text}");
            assert_eq!(pattern.fits(text), captures.is_some());
        }
        for bad in ["", "[ab]", "a/b", "{a,b}", "a\\*", "ü"] {
            assert!(GlobPattern::of_tags(bad).unwrap_err().to_string().contains("no tag"), "{bad}");
        }
        assert!(GlobPattern::parse(&"*".repeat(200_000)).is_err());
    }
}
