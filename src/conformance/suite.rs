//! Runs the suite: asks the questions, and checks the rules.

use futures_util::future::join_all;
use serde_json::{Map, Value};

use super::{
    cases::Case,
    judge::Verdict,
    rules::{self, Results},
    target::{Answered, Asker, Target},
    upstream::{FAULTS, Upstream},
};

/// How often each question is asked in all, to find answers that differ.
const ROUNDS: usize = 3;
/// How many questions are asked at once. Argo CD reconciles up to ten ApplicationSets at a time.
const AT_ONCE: usize = 10;
/// How many sets are compared one by one to name one that is gone.
const MAX_COMPARED: usize = 1000;
/// Keys that Argo CD overwrites.
const RESERVED: [&str; 2] = ["generator", "values"];

/// Runs all rules against `target`. With `upstream`, also plays faults of the plugin's source.
///
/// # Errors
/// When the suite itself cannot ask.
pub(crate) async fn run(target: &Target, cases: &[Case], upstream: Option<&Upstream>) -> anyhow::Result<Results> {
    let mut results = Results::default();
    let good: Vec<&Case> = cases.iter().filter(|case| !case.error).collect();
    let mut healthy = Vec::new();
    for case in &good {
        let first = target.ask(Asker::ArgoCd, case.body()).await?;
        check_answer(case, &first, target, &mut results);
        for _ in 1..ROUNDS {
            let again = target.ask(Asker::ArgoCd, case.body()).await?;
            let what = difference(&first.verdict, &again.verdict).map(|why| format!("{}: {why}", case.name));
            results.check(rules::EQUAL, what);
        }
        healthy.push(first);
    }
    check_concurrency(target, &good, &healthy, &mut results).await?;
    if target.has_token() {
        check_tokens(target, good[0], &mut results).await?;
    }
    for case in cases.iter().filter(|case| case.error) {
        let refused = target.ask(Asker::ArgoCd, case.body()).await?;
        check_refusal(rules::REFUSES, &case.name, &refused, &mut results);
    }
    let broken = target.ask(Asker::ArgoCd, "{\"applicationSetName\":".to_owned()).await?;
    check_refusal(rules::REFUSES, "a body that is half a JSON document", &broken, &mut results);
    if let Some(upstream) = upstream {
        check_source(target, &good, &healthy, upstream, &mut results).await?;
    }
    Ok(results)
}

/// Checks the reply to a good question.
fn check_answer(case: &Case, answered: &Answered, target: &Target, results: &mut Results) {
    let name = &case.name;
    let is_redirect = answered.status.is_some_and(|status| (300..400).contains(&status));
    results.check(rules::NO_REDIRECT, is_redirect.then(|| format!("{name}: status {}", shown_status(answered))));
    let late = answered.is_late.then(|| format!("{name}: no whole answer within {:?}", target.timeout));
    results.check(rules::IN_TIME, late);
    check_explicit(name, answered, results);
    let sets = match &answered.verdict {
        Verdict::Parameters(sets) => sets.as_slice(),
        Verdict::ExplicitlyEmpty => &[],
        Verdict::AccidentallyEmpty { why } => {
            results.check(rules::ANSWERS, Some(format!("{name}: {why}")));
            return;
        }
        Verdict::Error { condition, .. } => {
            results.check(rules::ANSWERS, Some(format!("{name}: {}", shorten(condition))));
            return;
        }
    };
    results.check(rules::ANSWERS, None);
    let is_other = case.expect.as_ref().is_some_and(|expected| !is_same(expected, sets));
    let is_count = case.sets.is_some_and(|count| count != sets.len());
    if case.expect.is_some() || case.sets.is_some() {
        let what = (is_other || is_count).then(|| format!("{name}: {} sets: {}", sets.len(), shorten(&shown(sets))));
        results.check(rules::EXPECTED, what);
    }
    results
        .check(rules::WHOLE, (!answered.has_end()).then(|| format!("{name}: neither a `Content-Length` nor chunks")));
    check_sets(name, answered, sets, results);
}

/// Checks the keys and values of `sets`.
fn check_sets(name: &str, answered: &Answered, sets: &[Map<String, Value>], results: &mut Results) {
    let reserved = sets.iter().flat_map(Map::keys).find(|key| RESERVED.contains(&key.as_str()));
    results.check(rules::NO_RESERVED, reserved.map(|key| format!("{name}: `{key}`")));
    // Numbers are looked for in the reply itself: the judge keeps only what a float64 keeps.
    let written: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
    let parameters = &written["output"]["parameters"];
    let number = find(parameters, &|value| value.is_number());
    results.check(rules::TEXT, number.map(|path| format!("{name}: parameters{path} is a number")));
    let null = find(parameters, &|value| value.is_null());
    results.check(rules::NO_NULL, null.map(|path| format!("{name}: parameters{path} is null")));
}

/// Checks that a 2xx has a list, whatever was asked.
fn check_explicit(what: &str, answered: &Answered, results: &mut Results) {
    let why = match &answered.verdict {
        Verdict::AccidentallyEmpty { why } => Some(format!(
            "{what}: status {}, {why}; Argo CD deletes all Applications of the set",
            shown_status(answered)
        )),
        _ => None,
    };
    results.check(rules::EXPLICIT, why);
}

/// Checks that a reply is an error as operators and Argo CD need it.
fn check_refusal(rule: rules::Rule, name: &str, answered: &Answered, results: &mut Results) {
    check_explicit(name, answered, results);
    let Verdict::Error { .. } = &answered.verdict else {
        results
            .check(rule, Some(format!("{name}: status {}, which Argo CD takes for a success", shown_status(answered))));
        return;
    };
    results.check(rule, None);
    let is_4xx = answered.status.is_some_and(|status| (400..500).contains(&status));
    results.check(rules::CLIENT_ERROR, (!is_4xx).then(|| format!("{name}: status {}", shown_status(answered))));
    let document: Value = serde_json::from_slice(&answered.body).unwrap_or_default();
    let has_message =
        document["message"].as_str().or_else(|| document["error"].as_str()).is_some_and(|text| !text.is_empty());
    results.check(rules::MESSAGE, (!has_message).then(|| format!("{name}: the operator sees no reason")));
}

async fn check_tokens(target: &Target, case: &Case, results: &mut Results) -> anyhow::Result<()> {
    for (asker, rule, name) in [
        (Asker::NoToken, rules::NO_TOKEN, "a question without a token"),
        (Asker::WrongToken, rules::WRONG_TOKEN, "a question with a wrong token"),
    ] {
        let refused = target.ask(asker, case.body()).await?;
        check_refusal(rule, name, &refused, results);
    }
    Ok(())
}

async fn check_concurrency(
    target: &Target,
    cases: &[&Case],
    healthy: &[Answered],
    results: &mut Results,
) -> anyhow::Result<()> {
    let asked = (0..AT_ONCE).map(|number| number % cases.len());
    let answers = join_all(asked.clone().map(|index| target.ask(Asker::ArgoCd, cases[index].body()))).await;
    for (index, answered) in asked.zip(answers) {
        let why = difference(&healthy[index].verdict, &answered?.verdict);
        results.check(rules::CONCURRENT, why.map(|why| format!("{}: {why}", cases[index].name)));
    }
    Ok(())
}

/// Plays each fault of the source, and checks that no answer loses sets.
async fn check_source(
    target: &Target,
    cases: &[&Case],
    healthy: &[Answered],
    upstream: &Upstream,
    results: &mut Results,
) -> anyhow::Result<()> {
    for fault in FAULTS {
        upstream.play(Some(fault));
        for (case, before) in cases.iter().zip(healthy) {
            let (had, asked) = (count(&before.verdict), upstream.asked());
            if had.is_none_or(|had| had == 0) {
                continue;
            }
            let answered = target.ask(Asker::ArgoCd, case.body()).await?;
            if upstream.asked() == asked {
                // It did not ask its source here, so nothing was broken.
                continue;
            }
            let has = count(&answered.verdict);
            let why = match (had, has) {
                (Some(had), Some(has)) if has < had => Some(format!(
                    "the source {}: {} has {has} sets instead of {had}, with status {}; Argo CD deletes {}",
                    fault.does,
                    case.name,
                    shown_status(&answered),
                    had - has,
                )),
                _ => None,
            };
            results.check(rules::BROKEN_SOURCE, why);
        }
    }
    upstream.play(None);
    Ok(())
}

/// How many Applications Argo CD makes; `None` if it changes nothing.
fn count(verdict: &Verdict) -> Option<usize> {
    match verdict {
        Verdict::Parameters(sets) => Some(sets.len()),
        Verdict::ExplicitlyEmpty | Verdict::AccidentallyEmpty { .. } => Some(0),
        Verdict::Error { .. } => None,
    }
}

/// Whether these are the same sets. Their order is no matter to Argo CD.
fn is_same(one: &[Map<String, Value>], other: &[Map<String, Value>]) -> bool {
    let sorted = |sets: &[Map<String, Value>]| {
        let mut texts: Vec<String> = sets.iter().map(sorted_text).collect();
        texts.sort_unstable();
        texts
    };
    one == other || sorted(one) == sorted(other)
}

/// The set as text, with its keys in alphabetical order.
fn sorted_text(set: &Map<String, Value>) -> String {
    let mut entries: Vec<(&String, &Value)> = set.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    format!("{entries:?}")
}

/// How two replies to one question differ.
fn difference(one: &Verdict, other: &Verdict) -> Option<String> {
    match (one, other) {
        (Verdict::Parameters(one), Verdict::Parameters(other)) if one.len() != other.len() => {
            Some(format!("{} sets, then {}", one.len(), other.len()))
        }
        (Verdict::Parameters(one), Verdict::Parameters(other)) => {
            if is_same(one, other) {
                return None;
            }
            let gone = one.iter().take(MAX_COMPARED).find(|set| !other.contains(set))?;
            Some(format!("the next time there is no set {}", shorten(&Value::Object(gone.clone()).to_string())))
        }
        (one, other) if count(one) != count(other) => Some(format!("{}, then {}", kind(one), kind(other))),
        _ => None,
    }
}

fn kind(verdict: &Verdict) -> String {
    match count(verdict) {
        Some(count) => format!("{count} sets"),
        None => "an error".to_owned(),
    }
}

/// The path of the first value in `value` that `is_meant`.
fn find(value: &Value, is_meant: &dyn Fn(&Value) -> bool) -> Option<String> {
    if is_meant(value) {
        return Some(String::new());
    }
    match value {
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, item)| Some(format!("[{index}]{}", find(item, is_meant)?)))
        }
        Value::Object(object) => object.iter().find_map(|(key, item)| Some(format!(".{key}{}", find(item, is_meant)?))),
        _ => None,
    }
}

fn shown(sets: &[Map<String, Value>]) -> String {
    serde_json::to_string(sets).unwrap_or_default()
}

fn shown_status(answered: &Answered) -> String {
    answered.status.map_or_else(|| "none".to_owned(), |status| status.to_string())
}

/// One line of at most 200 characters. A reply may hold anything.
fn shorten(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    if text.chars().nth(200).is_some() { format!("{line}…") } else { line }
}
