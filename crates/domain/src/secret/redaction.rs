//! Removes secrets from messages.

use std::ops::Range;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderMap;
use regex::Regex;
use serde_json::Value;
use zeroize::Zeroizing;

use super::{REDACTED, Secret, views, walk};
use crate::{document::excerpt, error::BackendError};

/// Secrets with fewer characters are not searched for: such texts are everywhere.
pub(super) const SHORTEST: usize = 4;

/// A message quotes only the beginning of a text. No more than this is searched for it, in bytes.
const QUOTED: usize = 32 * 1024;

/// Whether a secret is too short to be redacted.
pub(crate) fn is_too_short(secret: &str) -> bool {
    secret.chars().count() < SHORTEST
}

/// The secrets of one request. Everything that is reported about the request is redacted with them.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    known: Vec<Secret>,
    hidden: Option<&'static Regex>,
}

impl FromIterator<Secret> for Secrets {
    fn from_iter<I: IntoIterator<Item = Secret>>(secrets: I) -> Self {
        Self { known: secrets.into_iter().collect(), hidden: None }
    }
}

impl Secrets {
    /// The values of the headers that are marked as sensitive.
    #[must_use]
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let sensitive = headers.values().filter(|value| value.is_sensitive());
        let texts = sensitive.filter_map(|value| value.to_str().ok());
        texts.map(|text| Secret::from(text.to_owned())).collect()
    }

    /// Adds a secret.
    pub fn push(&mut self, secret: Secret) {
        self.known.push(secret);
    }

    /// Also hides the matches of `pattern`, except their first group: secrets that are found by their place, not by their text.
    pub const fn hide(&mut self, pattern: &'static Regex) {
        self.hidden = Some(pattern);
    }

    /// Adds the secrets of `others`.
    pub fn extend(&mut self, others: Self) {
        self.known.extend(others.known);
        self.hidden = self.hidden.or(others.hidden);
    }

    /// `text` with every secret replaced by [`REDACTED`]. Secrets are found whole, line by line, without the scheme of an `Authorization`
    /// header, as the password of a `Basic` one, and in all the forms of [`views`]. Overlapping secrets become one. A secret of fewer than
    /// [`SHORTEST`] characters stays: the gaps would reveal it, and spoil the text. Redact before a text is cut, since half a secret is not
    /// recognised. The cost grows with the length of the text, so this is for failures, records and the pages of operators.
    #[must_use]
    pub fn redact(&self, text: &str) -> String {
        let mut redacted = String::with_capacity(text.len());
        let mut end = 0;
        for place in self.places(text) {
            redacted.push_str(&text[end..place.start]);
            redacted.push_str(REDACTED);
            end = place.end;
        }
        redacted + &text[end..]
    }

    /// `value` with every secret in its texts and keys replaced.
    #[must_use]
    pub fn redact_json(&self, value: Value) -> Value {
        walk::each(value, "", &|_, value| self.redact_scalar(value))
    }

    /// `value`, which is not a list or object, without secrets. A number may be one, too.
    #[must_use]
    pub fn redact_scalar(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(&text)),
            Value::Number(number) => {
                let text = number.to_string();
                if self.redact(&text) == text { Value::Number(number) } else { REDACTED.into() }
            }
            other => other,
        }
    }

    /// The ranges of secrets in `text`, in order and without overlaps.
    fn places(&self, text: &str) -> Vec<Range<usize>> {
        let mut places: Vec<Range<usize>> = self.by_pattern(text).collect();
        if !self.known.is_empty() {
            let needles: Vec<Zeroizing<String>> = self.known.iter().flat_map(needles).collect();
            places.extend(views::places(text, &needles));
        }
        places.sort_unstable_by_key(|place| place.start);
        // Sorted by their begin, so each one can overlap only with the one before.
        places.dedup_by(|later, earlier| {
            let overlaps = later.start < earlier.end;
            if overlaps {
                earlier.end = earlier.end.max(later.end);
            }
            overlaps
        });
        places
    }

    /// The ranges that the hidden pattern matches in `text`, without its first group.
    fn by_pattern<'t>(&self, text: &'t str) -> impl Iterator<Item = Range<usize>> + use<'t> {
        let captures = self.hidden.into_iter().flat_map(move |pattern| pattern.captures_iter(text));
        captures.filter_map(|captures| {
            let all = captures.get(0)?;
            let start = captures.get(1).map_or(all.start(), |shown| shown.end());
            Some(start..all.end())
        })
    }

    /// `error` with a redacted message.
    #[must_use]
    pub fn clean(&self, error: &BackendError) -> BackendError {
        BackendError { message: self.redact(&error.message), ..error.clone() }
    }

    /// The first `max` characters of `bytes` for a message, redacted.
    #[must_use]
    pub fn excerpt(&self, bytes: &[u8], max: usize) -> String {
        excerpt(self.redact(&String::from_utf8_lossy(&bytes[..bytes.len().min(QUOTED)])).as_bytes(), max)
    }
}

/// The texts to search for, for one secret: all of it, and its parts.
fn needles(secret: &Secret) -> Vec<Zeroizing<String>> {
    let whole = secret.expose();
    let mut needles: Vec<Zeroizing<String>> = Vec::new();
    let mut add = |part: &str| {
        if !is_too_short(part) {
            needles.push(Zeroizing::new(part.to_owned()));
            // In a form of a web page, a space is a `+`.
            if part.contains(' ') {
                needles.push(Zeroizing::new(part.replace(' ', "+")));
            }
        }
    };
    add(whole);
    whole.lines().map(str::trim).filter(|line| *line != whole).for_each(&mut add);
    if let Some((scheme, rest)) = whole.split_once(' ') {
        add(rest);
        if scheme.eq_ignore_ascii_case("basic")
            && let Ok(decoded) = STANDARD.decode(rest).map(Zeroizing::new)
            && let Ok(pair) = str::from_utf8(&decoded)
            && let Some((_, password)) = pair.split_once(':')
        {
            add(pair);
            add(password);
        }
    }
    needles
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    fn redact(secrets: &[&str], text: &str) -> String {
        secrets.iter().map(|secret| Secret::from((*secret).to_owned())).collect::<Secrets>().redact(text)
    }

    #[test]
    fn secrets_do_not_print() {
        let secrets = Secrets::from_iter([Secret::from("hunter2".to_owned())]);
        assert_eq!(secrets.redact("the password is hunter2."), "the password is [redacted].");
        assert_eq!(format!("{secrets:?}"), "Secrets { known: [[redacted]], hidden: None }");
    }

    #[test]
    fn what_was_redacted_is_not_redacted_again() {
        assert_eq!(redact(&["redacted", "hunter2"], "hunter2 was redacted"), "[redacted] was [redacted]");
        assert_eq!(redact(&["acte", "[red", "hunter2"], "hunter2"), "[redacted]");
    }

    #[test]
    fn secrets_that_overlap_are_one() {
        assert_eq!(redact(&["abcd", "cdef"], "x abcdef y"), "x [redacted] y");
        assert_eq!(redact(&["cdef", "abcd"], "x abcdef y"), "x [redacted] y");
        assert_eq!(redact(&["abcd", "abcdef", "bcde"], "abcdef"), "[redacted]");
        assert_eq!(redact(&["abcab"], "abcabcab"), "[redacted]", "with itself");
        assert_eq!(redact(&["abcd"], "abcdabcd"), "[redacted][redacted]", "beside each other they are two");
        assert_eq!(redact(&["äöüß", "üßab"], "äöüßab."), "[redacted].");
    }

    #[test]
    fn short_secrets_are_left() {
        for short in ["t", "te", "red", "äöü"] {
            let text = format!("Unauthorized: {short}");
            assert_eq!(redact(&[short], &text), text);
            assert_eq!(redact(&[&format!("Bearer {short}")], &text), text);
        }
        // `ci:abc`
        assert_eq!(redact(&["Basic Y2k6YWJj"], "abc Y2k6YWJj"), "abc [redacted]");
        assert_eq!(redact(&["a\nabcd"], "a abcd"), "a [redacted]");
    }

    #[test]
    fn a_pattern_hides_what_follows_its_first_group() {
        static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new("(token=)[a-z0-9]+").unwrap());
        let mut secrets = Secrets::from_iter([Secret::from("hunter2".to_owned())]);
        secrets.hide(&PATTERN);
        assert_eq!(secrets.redact("token=hunter23 token=abc hunter2"), "token=[redacted] token=[redacted] [redacted]");
    }

    #[test]
    fn a_secret_is_recognised_in_parts() {
        let redact = |secret, text| redact(&[secret], text);
        assert_eq!(redact("Bearer abcd", "not abcd"), "not [redacted]");
        assert_eq!(redact("Basic Y2k6aHVudGVyMg==", "Y2k6aHVudGVyMg== is hunter2"), "[redacted] is [redacted]");
        assert_eq!(redact("line one\nline two", "line two, line one"), "[redacted], [redacted]");
        assert_eq!(redact("ab\"c", r#"the key `ab\"c`"#), "the key `[redacted]`");
        for (secret, encoded) in [
            ("hunter2", "aHVudGVyMg=="),
            ("hunter2", "aHVudGVyMgo="),
            ("hunter2", "aHVudGVyMg"),
            ("hunter2", "68756e74657232"),
            ("hunter/2 ", "hunter%2F2%20"),
            ("hunter/2 ", "hunter%2F2+"),
        ] {
            assert_eq!(redact(secret, encoded), REDACTED, "{encoded}");
        }
    }
}
