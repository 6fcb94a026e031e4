//! Regular expressions of a configuration.

use regex::Regex;

/// Why a text is not a regular expression. It shows the text as it is in the configuration.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a regular expression: {}", explain(cause))]
pub struct PatternError {
    pattern: String,
    #[source]
    cause: regex::Error,
}

impl From<PatternError> for String {
    fn from(error: PatternError) -> Self {
        error.to_string()
    }
}

/// `source` as an expression that matches a whole text.
///
/// # Errors
/// When `source` is not a regular expression. The text shows it as it is in the configuration.
pub fn whole(source: &str) -> Result<Regex, PatternError> {
    // By itself first: `a)(?:b` would be valid within the group.
    anywhere(source)?;
    compile(source, &format!("^(?:{source})$"))
}

/// `source` as an expression that matches anywhere in a text.
///
/// # Errors
/// As [`whole`].
pub fn anywhere(source: &str) -> Result<Regex, PatternError> {
    compile(source, source)
}

fn compile(source: &str, expression: &str) -> Result<Regex, PatternError> {
    Regex::new(expression).map_err(|cause| PatternError { pattern: source.to_owned(), cause })
}

/// The mistake in one line. The message of a syntax error has several lines, and ends with the mistake.
fn explain(error: &regex::Error) -> String {
    let text = error.to_string();
    let mistake = text.lines().last().unwrap_or_default().trim();
    mistake.strip_prefix("error: ").unwrap_or(mistake).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_expression_as_written() {
        assert_eq!(whole("a(b").unwrap_err().to_string(), "`a(b` is not a regular expression: unclosed group");
        assert!(!whole("a|b").unwrap().is_match("ab"));
        assert!(whole("a)(?:b").is_err(), "it must be valid by itself");
        assert!(anywhere("b").unwrap().is_match("abc"));
    }
}
