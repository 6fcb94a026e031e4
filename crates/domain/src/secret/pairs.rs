//! Secrets that stand behind their name in a text: `password=…`, `token: …`, `--password …`, `"apiKey": "…"`, `<password>…`, `?sig=…`.

use std::{ops::Range, sync::LazyLock};

use regex::{Captures, Regex};

use super::{
    names::{Named, is_password, is_random, is_value, named},
    place::{SecretPlace, regex, start_of},
};

/// Names of parameters of a URL that open it, in lower case, with the shortest value that is a secret.
const IN_URLS: [(&str, usize); 6] =
    [("code", 4), ("key", 4), ("sig", 1), ("signature", 1), ("x-amz-signature", 1), ("x-goog-signature", 1)];

/// A longer value is not found as a whole, so that the time grows with the length of a text only.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The same for a header, of which all of the line is the value.
const MAX_LINE_BYTES: usize = 8 * 1024;

/// The values in `text` that stand behind the name of a secret.
pub(super) fn places(text: &str) -> Vec<SecretPlace> {
    static NAME: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r#"([A-Za-z][A-Za-z0-9_.-]*)(\[?\]|\\*["'])?(\s*(?:=>|:=|[=:>]|%3[ADad])\s*(?:[|>][+-]?\s*\n\s*|-[ \t]+)?|[ ]+)"#,
        )
    });
    let mut found: Vec<SecretPlace> = Vec::new();
    for captures in NAME.captures_iter(text) {
        let start = captures.get(0).map_or(0, |whole| whole.start());
        // A name within a secret is a part of it.
        if found.last().is_none_or(|last| last.range.end <= start) {
            found.extend(place(text, &captures));
        }
    }
    found
}

/// How a name and its value are written.
struct Written<'t> {
    name: &'t str,
    before: &'t str,
    separator: &'t str,
    /// The text after the separator.
    rest: &'t str,
    is_quoted_name: bool,
}

fn place(text: &str, captures: &Captures<'_>) -> Option<SecretPlace> {
    let (whole, name, separator) = (captures.get(0)?, captures.get(1)?, captures.get(3)?);
    let written = Written {
        name: name.as_str(),
        before: &text[..name.start()],
        separator: separator.as_str(),
        rest: start_of(&text[whole.end()..], MAX_VALUE_BYTES),
        is_quoted_name: captures.get(2).is_some(),
    };
    let is_in_url = written.before.ends_with(['?', '&', '#']) && written.separator == "=";
    let named = if is_in_url { named_in_url(written.name) } else { None }.or_else(|| named(written.name))?;
    let range = written.value()?;
    let value = &written.rest[range.clone()];
    let is_certain = written.is_certain() || is_password(written.name) || written.is_cookie() && value.contains('=');
    let is_secret = is_value(named, value) && (is_certain || is_random(value, 6) && !is_tag(value));
    let range = whole.end() + range.start..whole.end() + range.end;
    (is_secret && written.is_pair()).then_some(SecretPlace { range, is_in_url })
}

fn named_in_url(name: &str) -> Option<Named> {
    let name = name.to_ascii_lowercase();
    let (_, shortest) = IN_URLS.iter().find(|(known, _)| *known == name)?;
    Some(Named::IfLong(*shortest))
}

impl Written<'_> {
    /// Whether this is a name with a value at all.
    fn is_pair(&self) -> bool {
        match self.separator.trim() {
            "" => self.before.ends_with("--"),
            ">" => self.before.ends_with(['<', ':']),
            // An image in a repository called `token`, or a URL.
            ":" => (self.is_quoted_name || !self.before.ends_with('/')) && !self.rest.starts_with("//"),
            _ => true,
        }
    }

    /// Whether it is certainly a name with its value. In prose, `invalid token: expired` is none; `token:read` is a scope, and
    /// `token:v1` is an image.
    fn is_certain(&self) -> bool {
        self.separator.trim_matches(' ') != ":"
            || self.is_quoted_name
            || self.rest.starts_with(['"', '\'', '\\'])
            || self.separator.ends_with(' ') && self.begins_line()
    }

    fn is_cookie(&self) -> bool {
        self.name.to_ascii_lowercase().ends_with("cookie")
    }

    /// Whether only marks of a list or a quotation are before the name in its line.
    fn begins_line(&self) -> bool {
        let before = self.before.trim_end_matches([' ', '\t', '-', '>', '<']);
        before.is_empty() || before.ends_with('\n')
    }

    /// The range of the value in the rest.
    fn value(&self) -> Option<Range<usize>> {
        static QUOTE: LazyLock<Regex> = LazyLock::new(|| regex(r#"^\\*["'`]"#));
        static SCHEME: LazyLock<Regex> =
            LazyLock::new(|| regex(r"(?i)^(?:bearer|basic|token|digest|negotiate)(?:[ \t]+|%20)"));
        let rest = self.rest;
        if let Some(quote) = QUOTE.find(rest) {
            let inner = &rest[quote.end()..];
            let is_end = |(at, _): &(usize, &str)| quote.len() > 1 || !inner[..*at].ends_with('\\');
            let end = inner.match_indices(quote.as_str()).find(is_end).map_or(inner.len(), |(at, _)| at);
            return Some(quote.end()..quote.end() + end);
        }
        let is_header = self.separator.trim() == ":" && !self.separator.contains('\n');
        if is_header && (self.is_cookie() || self.separator.ends_with(' ') && self.begins_line()) {
            let line = start_of(rest, MAX_LINE_BYTES).lines().next().unwrap_or_default();
            if !line.contains(['"', '<', '{']) {
                return Some(0..line.trim_end().len());
            }
        }
        let scheme = SCHEME.find(rest).map_or(0, |scheme| scheme.end());
        let end = scheme + word_end(&rest[scheme..]);
        // `secret:` of a mapping in YAML is followed by another key.
        (end > 0 && !rest[..end].ends_with(':')).then_some(0..end)
    }
}

/// The end of a value without quotes. A `,` or `;` ends it if something else follows, such as another name.
fn word_end(text: &str) -> usize {
    static NEXT: LazyLock<Regex> = LazyLock::new(|| regex(r"^[,;](?:\s|$|[\w.-]+\s*[=:])"));
    static REFERENCE: LazyLock<Regex> =
        LazyLock::new(|| regex(r"^(?:\$\([^)\n]*\)|\$\{[^{}\n]*\}|\$?\{\{[^}\n]*\}\})"));
    let begin = REFERENCE.find(text).map_or(0, |reference| reference.end());
    let rest = &text[begin..];
    let is_end = |(at, c): &(usize, char)| {
        c.is_whitespace() || "\"'<>`&#".contains(*c) || ",;".contains(*c) && NEXT.is_match(start_of(&rest[*at..], 64))
    };
    let end = rest.char_indices().find(is_end).map_or(rest.len(), |(at, _)| at);
    without_end(&text[..begin + end]).len()
}

/// `value` without marks and brackets at its end that belong to the text around it.
fn without_end(value: &str) -> &str {
    let belongs = |c: char| match c {
        ')' => !value.contains('('),
        ']' => !value.contains('['),
        '}' => !value.contains('{'),
        _ => c == '.' || c == '\\',
    };
    value.trim_end_matches(belongs)
}

/// Whether `value` is a tag or digest of an image, or a version.
fn is_tag(value: &str) -> bool {
    static TAG: LazyLock<Regex> =
        LazyLock::new(|| regex(r"^(?:v?\d+(?:\.\d+)*(?:[-.+][\w.+-]*)?(?:@sha256.*)?|sha256:.*)$"));
    TAG.is_match(value)
}
