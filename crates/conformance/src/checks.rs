//! Checks single replies against the rules.

use serde_json::{Map, Value};

use super::{
    cases::Case,
    evaluate::Verdict,
    kept::Kept,
    rules::{self, Results, Rule},
    target::Answered,
};

/// Keys that Argo CD overwrites.
const RESERVED: [&str; 2] = ["generator", "values"];

/// Checks the reply to a good question.
pub(crate) fn check_answer(case: &Case, answered: &Answered, results: &mut Results) {
    let name = &case.name;
    check_reply(name, answered, results);
    let sets = match &answered.verdict {
        Verdict::Parameters(sets) => sets.as_slice(),
        Verdict::ExplicitlyEmpty => &[],
        Verdict::AccidentallyEmpty { why } => {
            results.check(rules::ANSWERS, Some(format!("{name}: {why}")));
            return;
        }
        Verdict::Error { condition, .. } if answered.is_beyond => {
            results.unknown(rules::ANSWERS, &format!("{name}: {condition}"));
            return;
        }
        Verdict::Error { condition, .. } => {
            results.check(rules::ANSWERS, Some(format!("{name}: {condition}")));
            return;
        }
    };
    results.check(rules::ANSWERS, None);
    if case.expect.is_some() || case.sets.is_some() {
        let is_other = case
            .expect
            .as_ref()
            .is_some_and(|expected| Kept::of_sets(expected).difference(&answered.verdict).is_some());
        let is_count = case.sets.is_some_and(|count| count != sets.len());
        let what = (is_other || is_count).then(|| format!("{name}: {} sets: {}", sets.len(), shown(sets)));
        results.check(rules::EXPECTED, what);
    }
    let unclear = match (answered.has_end(), answered.is_broken) {
        (false, _) => Some(format!("{name}: neither a `Content-Length` nor chunks")),
        (_, true) => Some(format!("{name}: it broke off after its list, which Argo CD takes for a whole answer")),
        _ => None,
    };
    results.check(rules::WHOLE, unclear);
    check_sets(name, sets, results);
}

/// Checks the keys and values of `sets`.
fn check_sets(name: &str, sets: &[Map<String, Value>], results: &mut Results) {
    let reserved = sets.iter().flat_map(Map::keys).find(|key| RESERVED.contains(&key.as_str()));
    results.check(rules::NO_RESERVED, reserved.map(|key| format!("{name}: `{key}`")));
    let number = path_of(sets, Value::is_number);
    results.check(rules::TEXT, number.map(|path| format!("{name}: a number is at {path}")));
    let null = path_of(sets, Value::is_null);
    results.check(rules::NO_NULL, null.map(|path| format!("{name}: null is at {path}")));
}

/// Checks the rules for each reply, for any question. Without a reply, these rules are unknown.
fn check_reply(what: &str, answered: &Answered, results: &mut Results) {
    let timeout = results.timeout;
    if answered.is_late {
        results.check(rules::IN_TIME, Some(format!("{what}: no whole answer within {timeout:?}")));
    }
    let Some(status) = answered.status else { return };
    if !answered.is_late {
        results.check(rules::IN_TIME, None);
    }
    let is_redirect = (300..400).contains(&status);
    results.check(rules::NO_REDIRECT, is_redirect.then(|| format!("{what}: status {status}")));
    if answered.is_beyond {
        return;
    }
    let why = match &answered.verdict {
        Verdict::AccidentallyEmpty { why } => {
            Some(format!("{what}: status {status}, {why}; Argo CD deletes all Applications of the set"))
        }
        _ => None,
    };
    results.check(rules::EXPLICIT, why);
}

/// Checks that a reply is a refusal as operators and Argo CD need it. Only a status is one: no reply may be a crash.
pub(crate) fn check_refusal(rule: Rule, name: &str, answered: &Answered, results: &mut Results) {
    check_reply(name, answered, results);
    let status = shown_status(answered);
    let why = match &answered.verdict {
        Verdict::Error { condition, .. } if answered.status.is_none() => Some(format!("{name}: no reply: {condition}")),
        Verdict::Error { .. } if !answered.is_success() => None,
        Verdict::Error { .. } => Some(format!("{name}: status {status}, which is not a refusal")),
        _ => Some(format!("{name}: status {status}, which Argo CD takes for a success")),
    };
    let is_error = answered.status.is_none() || why.is_none();
    results.check(rule, why);
    if !is_error {
        return;
    }
    let is_4xx = answered.status.is_some_and(|status| (400..500).contains(&status));
    results.check(rules::CLIENT_ERROR, (!is_4xx).then(|| format!("{name}: status {status}")));
    if answered.status.is_none() {
        return;
    }
    let document: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
    let has_message =
        document["message"].as_str().or_else(|| document["error"].as_str()).is_some_and(|text| !text.is_empty());
    results.check(rules::MESSAGE, (!has_message).then(|| format!("{name}: the operator sees no reason")));
}

/// Checks that a second answer is equal to the first. Two errors are not compared.
pub(crate) fn check_equal(rule: Rule, name: &str, before: Option<&Kept>, answered: &Answered, results: &mut Results) {
    let Some(before) = before.filter(|_| !answered.is_beyond) else { return };
    let is_error = matches!(answered.verdict, Verdict::Error { .. });
    if before.count.is_some() || !is_error {
        results.check(rule, before.difference(&answered.verdict).map(|why| format!("{name}: {why}")));
    }
}

/// The path of the first value in `sets` that `is_meant`.
fn path_of(sets: &[Map<String, Value>], is_meant: fn(&Value) -> bool) -> Option<String> {
    let path = |set: &Map<String, Value>| members(set, is_meant);
    sets.iter().enumerate().find_map(|(index, set)| Some(format!("parameters[{index}]{}", path(set)?)))
}

fn members(object: &Map<String, Value>, is_meant: fn(&Value) -> bool) -> Option<String> {
    object.iter().find_map(|(key, value)| Some(format!(".{key}{}", find(value, is_meant)?)))
}

fn find(value: &Value, is_meant: fn(&Value) -> bool) -> Option<String> {
    match value {
        _ if is_meant(value) => Some(String::new()),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| Some(format!("[{index}]{}", find(item, is_meant)?)))
        }
        Value::Object(object) => members(object, is_meant),
        _ => None,
    }
}

fn shown(sets: &[Map<String, Value>]) -> String {
    serde_json::to_string(sets).unwrap_or_default()
}

/// The status in a report.
pub(crate) fn shown_status(answered: &Answered) -> String {
    answered.status.map_or_else(|| "none".to_owned(), |status| status.to_string())
}
