//! Secrets in test cases: taken out when a case is recorded, and refused when it is read.

use serde_json::{Map, Value};

use super::{ask::Answered, case::ReplyConfig};
use domain::{
    document,
    problem::{Path, Problems},
    secret::{
        REDACTED, Secrets, forms,
        names::{Named, is_value, named},
        walk,
    },
};

/// Shorter numbers under the name of a secret are settings, and counts.
const SHORTEST_NUMBER: usize = 4;

/// Notes a problem for each of `values` that seems to be a secret.
pub(crate) fn check_values(values: &Map<String, Value>, path: &Path, problems: &mut Problems) {
    find_in_fields(values, "", path, problems);
}

/// Notes a problem if `text` seems to hold a secret.
pub(crate) fn check_text(text: &str, path: &Path, problems: &mut Problems) {
    if holds_secret(text, "") {
        refuse(path, "it seems to hold a secret", problems);
    }
}

/// Notes a problem for each place of `reply` that seems to hold a secret.
pub(crate) fn check_reply(reply: &ReplyConfig, path: &Path, problems: &mut Problems) {
    for (name, value) in &reply.headers {
        find(&Value::from(&**value), name, &path.key("headers").key(name), problems);
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
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| find(item, name, &path.index(index), problems));
        }
        Value::Object(fields) => find_in_fields(fields, name, path, problems),
        other => {
            if redact_scalar(name, other.clone(), &Secrets::default()) != *other {
                refuse(path, "it seems to hold a secret", problems);
            }
        }
    }
}

fn find_in_fields(fields: &Map<String, Value>, name: &str, path: &Path, problems: &mut Problems) {
    let name = walk::name_of(fields).unwrap_or(name);
    for (key, value) in fields {
        if holds_secret(key, "") {
            // The message must not repeat the key.
            refuse(path, "a key in it seems to hold a secret", problems);
        } else {
            find(value, walk::name_within(name, key), &path.key(key), problems);
        }
    }
}

fn holds_secret(text: &str, name: &str) -> bool {
    redact_text(text, name, &Secrets::default()) != text
}

fn refuse(path: &Path, what: &str, problems: &mut Problems) {
    let help = "replace it by `[redacted]`, which counts as no secret; `appset-gateway record` does so by itself";
    problems.error_with_help(path, format!("{what}, which must not be in a file of test cases"), help);
}

/// `value` without `secrets`, and without texts that seem to be secrets.
pub(crate) fn redact(value: Value, name: &str, secrets: &Secrets) -> Value {
    walk::each(value, name, &|name, value| redact_scalar(name, value, secrets))
}

/// `answer` without `secrets`, and without texts that seem to be secrets.
pub(crate) fn redact_answer(answer: Answered, secrets: &Secrets) -> Answered {
    match answer {
        Answered::Sets { sets, cache, because } => {
            let sets = sets.into_iter().map(|set| redact(Value::Object(set), "", secrets));
            let sets = sets.filter_map(|set| if let Value::Object(set) = set { Some(set) } else { None }).collect();
            Answered::Sets { sets, cache, because }
        }
        Answered::Error(code, message) => Answered::Error(code, redact_text(&message, "", secrets)),
    }
}

fn redact_scalar(name: &str, value: Value, secrets: &Secrets) -> Value {
    match value {
        Value::String(text) => redact_text(&text, name, secrets).into(),
        Value::Number(number) if named(name) == Some(Named::Always) && number.to_string().len() >= SHORTEST_NUMBER => {
            REDACTED.into()
        }
        other => secrets.redact_scalar(other),
    }
}

/// `text`, the value of `name`, without `secrets`, and without parts that seem to be secrets. A text that is JSON is searched value by
/// value, as its reader would see them, and stays JSON.
pub(crate) fn redact_text(text: &str, name: &str, secrets: &Secrets) -> String {
    if named(name).is_some_and(|named| is_value(named, &secrets.redact(text))) {
        return REDACTED.to_owned();
    }
    if let Some(redacted) = redact_json(text, name, secrets) {
        return secrets.redact(&redacted);
    }
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    if lines().nth(1).is_some() && lines().all(is_json_like) {
        // One value in each line.
        let redacted = |line| redact_json(line, name, secrets).unwrap_or_else(|| forms::redact(&secrets.redact(line)));
        return secrets.redact(&text.split_inclusive('\n').map(redacted).collect::<String>());
    }
    forms::redact(&secrets.redact(text))
}

/// `text`, if it is a list or an object in JSON. It stays as it is unless it holds a secret.
fn redact_json(text: &str, name: &str, secrets: &Secrets) -> Option<String> {
    let value: Value = if is_json_like(text) { serde_json::from_str(text).ok()? } else { return None };
    let redacted = redact(value.clone(), name, secrets);
    // Of keys that repeat, `value` has only the last one.
    let is_whole = document::read(text.as_bytes()).is_ok();
    let may_hide = || text.contains("\\u") || forms::holds_secret(text) || secrets.redact(text) != text;
    let end = &text[text.trim_end().len()..];
    let is_clean = redacted == value && (is_whole || !may_hide());
    Some(if is_clean { text.to_owned() } else { format!("{redacted}{end}") })
}

fn is_json_like(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

#[cfg(test)]
mod tests;
