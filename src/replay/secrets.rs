//! Secrets in test cases: taken out when a case is recorded, and refused when it is read.

use serde_json::{Map, Value};

use super::case::ReplyConfig;
use crate::domain::{
    problem::{Path, Problems},
    secret::{REDACTED, Secrets, literal::is_secret},
};

/// [`REDACTED`] in a URL.
const REDACTED_IN_URL: &str = "%5Bredacted%5D";
/// Names of parameters with signatures, which open what they sign, in lower case.
const SIGNATURES: [&str; 4] = ["sig", "signature", "x-amz-signature", "x-goog-signature"];

/// Notes a problem for each of `values` that seems to be a secret.
pub(crate) fn check_values(values: &Map<String, Value>, path: &Path, problems: &mut Problems) {
    values.iter().for_each(|(name, value)| find(value, name, &path.key(name), problems));
}

/// Notes a problem if `text` seems to hold a secret.
pub(crate) fn check_text(text: &str, path: &Path, problems: &mut Problems) {
    find(&Value::from(text), "", path, problems);
}

/// Notes a problem for each place of `reply` that seems to hold a secret.
pub(crate) fn check_reply(reply: &ReplyConfig, path: &Path, problems: &mut Problems) {
    for (name, value) in &reply.headers {
        if redact_text(value, name, &Secrets::default()) != *value {
            refuse(&path.key("headers").key(name), problems);
        }
    }
    for (key, text) in [("request", &reply.request), ("script", &reply.script), ("fails", &reply.fails)] {
        if let Some(text) = text {
            check_text(text, &path.key(key), problems);
        }
    }
    if let Some(body) = &reply.body {
        find(body, "", &path.key("body"), problems);
    }
    for (index, item) in reply.items.iter().flatten().enumerate() {
        check_values(item, &path.key("items").index(index), problems);
    }
}

fn find(value: &Value, name: &str, path: &Path, problems: &mut Problems) {
    match value {
        Value::String(text) if redact_text(text, name, &Secrets::default()) != *text => refuse(path, problems),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| find(item, name, &path.index(index), problems));
        }
        Value::Object(fields) => fields.iter().for_each(|(key, value)| find(value, key, &path.key(key), problems)),
        _ => {}
    }
}

fn refuse(path: &Path, problems: &mut Problems) {
    let help = "replace it by `[redacted]`, which counts as no secret; `appset-gateway record` does so by itself";
    problems.error_with_help(path, "it seems to hold a secret, which must not be in a file of test cases", help);
}

/// `value` without `secrets`, and without what seems to be one.
pub(crate) fn redact(value: &mut Value, name: &str, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = redact_text(text, name, secrets),
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, name, secrets)),
        Value::Object(fields) => fields.iter_mut().for_each(|(key, value)| redact(value, key, secrets)),
        _ => {}
    }
}

/// `text`, which stands under `name`, without `secrets`, and without what seems to be one. A text that is JSON is looked through.
pub(crate) fn redact_text(text: &str, name: &str, secrets: &Secrets) -> String {
    let text = secrets.redact(text);
    if text.starts_with(['{', '['])
        && let Ok(mut value) = serde_json::from_str::<Value>(&text)
    {
        let before = value.clone();
        redact(&mut value, name, secrets);
        return if value == before { text } else { value.to_string() };
    }
    // Names such as `nextPageToken` are about pages.
    let name = if name.to_ascii_lowercase().contains("page") { "" } else { name };
    if !text.contains(REDACTED) && is_whole_secret(name, &text) {
        return REDACTED.to_owned();
    }
    text.split_inclusive(char::is_whitespace).map(redact_word).collect()
}

/// Whether all of `text` seems to be a secret: by its name, or since it has the form of one.
fn is_whole_secret(name: &str, text: &str) -> bool {
    let is_named = !text.is_empty() && is_secret(name, "any-other-text");
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        [_] => is_secret(name, text),
        // `Bearer …`, but not `Basic business`.
        [_, credential] => is_named || credential.len() >= 16 && is_secret(name, text),
        _ => is_named,
    }
}

/// A word, with the white space after it.
fn redact_word(word: &str) -> String {
    let (word, end) = word.split_at(word.trim_end().len());
    if is_secret("", word) {
        return format!("{REDACTED}{end}");
    }
    // A header has `<…>` around a URL.
    let begin = word.find("http").filter(|at| word[*at..].contains("://")).unwrap_or(word.len());
    let (before, url) = word.split_at(begin);
    let (url, after) = url.split_at(url.find(['>', '"']).unwrap_or(url.len()));
    format!("{before}{}{after}{end}", redact_url(url))
}

/// `url` without a user and a password, and without the values of its query that seem to be secrets.
pub(crate) fn redact_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let rest = match rest[..host_end].rfind('@') {
        Some(at) if &rest[..at] != REDACTED_IN_URL => format!("{REDACTED_IN_URL}{}", &rest[at..]),
        _ => rest.to_owned(),
    };
    let Some((before, query)) = rest.split_once('?') else { return format!("{scheme}://{rest}") };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) if is_secret_pair(name, value) => format!("{name}={REDACTED_IN_URL}"),
        _ => pair.to_owned(),
    });
    format!("{scheme}://{before}?{}", pairs.collect::<Vec<_>>().join("&"))
}

fn is_secret_pair(name: &str, value: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_signature = SIGNATURES.contains(&lower.as_str()) && !value.is_empty();
    let name = if lower.contains("page") { "" } else { name };
    value != REDACTED_IN_URL && (is_signature || is_secret(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_seems_to_be_a_secret_is_taken_out() {
        for (name, text, expected) in [
            ("", "plain text", "plain text"),
            ("plan", "Basic business", "Basic business"),
            ("", "token expired: ask again", "token expired: ask again"),
            ("auth", "Bearer 0123456789abcdef", "[redacted]"),
            ("token", "", ""),
            ("password", "hunter2", "[redacted]"),
            ("nextPageToken", "abc", "abc"),
            ("", "use ghp_0123456789abcdef now\n", "use [redacted] now\n"),
            (
                "link",
                "<https://a/b?access_token=abc&page=2>; rel=\"next\"",
                "<https://a/b?access_token=%5Bredacted%5D&page=2>; rel=\"next\"",
            ),
            (
                "location",
                "https://u:p@s3.example.com/x?X-Amz-Signature=00ff",
                "https://%5Bredacted%5D@s3.example.com/x?X-Amz-Signature=%5Bredacted%5D",
            ),
            ("", r#"{ "a": { "token": "abc" } }"#, r#"{"a":{"token":"[redacted]"}}"#),
            ("", r#"{ "a": 1 }"#, r#"{ "a": 1 }"#),
            ("", "GET https://a/b?sig=abc", "GET https://a/b?sig=%5Bredacted%5D"),
        ] {
            let once = redact_text(text, name, &Secrets::default());
            assert_eq!(once, expected);
            assert_eq!(redact_text(&once, name, &Secrets::default()), once, "what is redacted is no secret");
        }
    }
}
