//! Secrets in recorded replies: taken out when they are written, and refused when they are read.

use serde_json::{Map, Value};

use super::case::ReplyConfig;
use crate::domain::{
    problem::{Path, Problems},
    secret::{REDACTED, Secrets, literal::is_secret},
};

/// Notes a problem for each parameter that seems to be a secret.
pub(crate) fn check_parameters(parameters: &Map<String, Value>, path: &Path, problems: &mut Problems) {
    find(&Value::Object(parameters.clone()), "", path, problems);
}

/// Notes a problem for each place of `reply` that seems to hold a secret.
pub(crate) fn check_reply(reply: &ReplyConfig, path: &Path, problems: &mut Problems) {
    for (name, value) in &reply.headers {
        if holds_secret(name, value) {
            refuse(&path.key("headers").key(name), problems);
        }
    }
    if let Some(url) = reply.request.as_deref().and_then(|request| request.split_once(' ')).map(|(_, url)| url)
        && redact_query(url) != url
    {
        refuse(&path.key("request"), problems);
    }
    if let Some(body) = &reply.body {
        find(body, "", &path.key("body"), problems);
    }
    for (index, item) in reply.items.iter().flatten().enumerate() {
        find(&Value::Object(item.clone()), "", &path.key("items").index(index), problems);
    }
}

fn find(value: &Value, name: &str, path: &Path, problems: &mut Problems) {
    match value {
        Value::String(text) if holds_secret(name, text) => refuse(path, problems),
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

/// Whether `value` under `name` seems to hold a secret.
fn holds_secret(name: &str, value: &str) -> bool {
    // Names such as `nextPageToken` are about pages.
    let name = if name.to_ascii_lowercase().contains("page") { "" } else { name };
    !value.contains(REDACTED) && value.split_whitespace().any(|word| is_secret("", word))
        || !value.contains(REDACTED) && is_secret(name, value)
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

/// `text`, which stands under `name`, without `secrets`, and without what seems to be one.
pub(crate) fn redact_text(text: &str, name: &str, secrets: &Secrets) -> String {
    let text = secrets.redact(text);
    if !holds_secret(name, &text) {
        return text;
    }
    let words: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
    if words.len() == 1 || is_secret(name, &text) {
        return REDACTED.to_owned();
    }
    let hidden = words.iter().map(|word| {
        let end = &word[word.trim_end().len()..];
        if is_secret("", word.trim_end()) { format!("{REDACTED}{end}") } else { (*word).to_owned() }
    });
    hidden.collect()
}

/// `url` without the values of its query that seem to be secrets.
pub(crate) fn redact_query(url: &str) -> String {
    let Some((before, query)) = url.split_once('?') else { return url.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, value)) if holds_secret(name, value) && !value.contains("%5Bredacted%5D") => {
            format!("{name}=%5Bredacted%5D")
        }
        _ => pair.to_owned(),
    });
    format!("{before}?{}", pairs.collect::<Vec<_>>().join("&"))
}
