//! Regular expressions of a configuration.

use regex::Regex;

/// `source` as an expression that matches a whole text.
///
/// # Errors
/// When `source` is not a regular expression. The text shows it as it is in the configuration.
pub fn whole(source: &str) -> Result<Regex, String> {
    anywhere(source)?;
    Regex::new(&format!("^(?:{source})$")).map_err(|error| explain(source, &error))
}

/// `source` as an expression that matches anywhere in a text.
///
/// # Errors
/// As [`whole`].
pub fn anywhere(source: &str) -> Result<Regex, String> {
    Regex::new(source).map_err(|error| explain(source, &error))
}

/// What is wrong with `source`, in one line. The message of a syntax error has several, and ends with the cause.
fn explain(source: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let cause = text.lines().last().unwrap_or_default().trim();
    format!("`{source}` is not a regular expression: {}", cause.strip_prefix("error: ").unwrap_or(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_the_expression_as_written() {
        assert_eq!(whole("a(b").unwrap_err(), "`a(b` is not a regular expression: unclosed group");
        assert!(!whole("a|b").unwrap().is_match("ab"));
        assert!(whole("a)(?:b").is_err(), "it must be valid by itself");
        assert!(anywhere("b").unwrap().is_match("abc"));
    }
}
