//! The report: for people, for CI, for programs, and as a table for a page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rules::{Judged, Level, Results};

/// `pass`, `fail` or `skipped`.
fn outcome(judged: &Judged) -> &'static str {
    match (judged.is_broken(), judged.checks) {
        (true, _) => "fail",
        (false, 0) => "skipped",
        (false, _) => "pass",
    }
}

/// For people.
pub(crate) fn text(results: &Results) -> String {
    let mut text = String::new();
    for judged in results.all() {
        let rule = judged.rule;
        let _ = writeln!(text, "{:<7} {:<6} {:<18} {}", outcome(judged), rule.level.as_str(), rule.id, rule.asks);
        for failure in &judged.failures {
            let _ = writeln!(text, "                {failure}");
        }
    }
    let broken = |level| results.all().iter().filter(|judged| judged.rule.level == level && judged.is_broken()).count();
    let (musts, shoulds, hazards) = (broken(Level::Must), broken(Level::Should), broken(Level::Hazard));
    let _ = writeln!(
        text,
        "{}: {musts} MUST, {shoulds} SHOULD and {hazards} HAZARD broken",
        if results.conforms() { "conforms" } else { "does not conform" }
    );
    text
}

/// A table in Markdown.
pub(crate) fn markdown(results: &Results) -> String {
    let mut text = "| rule | level | result | |\n|---|---|---|---|\n".to_owned();
    let cell = |text: &str| text.replace('|', "\\|");
    for judged in results.all() {
        let rule = judged.rule;
        let failures = judged.failures.iter().map(|failure| cell(failure)).collect::<Vec<_>>().join("<br>");
        let said = if failures.is_empty() { cell(rule.asks) } else { failures };
        let _ = writeln!(text, "| `{}` | {} | {} | {said} |", rule.id, rule.level.as_str(), outcome(judged));
    }
    text
}

/// For programs.
pub(crate) fn json(results: &Results) -> Value {
    let rules: Vec<Value> = results
        .all()
        .iter()
        .map(|judged| {
            let mut value = json!(judged);
            value["result"] = json!(outcome(judged));
            value
        })
        .collect();
    json!({"conforms": results.conforms(), "rules": rules})
}

/// `JUnit` XML, for CI. A broken SHOULD is no failure there.
pub(crate) fn junit(results: &Results) -> String {
    let all = results.all();
    let is_failure = |judged: &Judged| judged.is_broken() && judged.rule.level != Level::Should;
    let failures = all.iter().filter(|judged| is_failure(judged)).count();
    let skipped = all.iter().filter(|judged| outcome(judged) == "skipped").count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"plugin generator\" tests=\"{}\" \
         failures=\"{failures}\" skipped=\"{skipped}\">\n",
        all.len()
    );
    for judged in all {
        let rule = judged.rule;
        let _ = write!(text, "<testcase classname=\"{}\" name=\"{}\">", rule.level.as_str(), rule.id);
        let said = escape(&judged.failures.join("\n"));
        if is_failure(judged) {
            let _ = write!(text, "<failure message=\"{}\">{said}</failure>", escape(rule.asks));
        } else if judged.is_broken() {
            let _ = write!(text, "<system-out>{said}</system-out>");
        } else if outcome(judged) == "skipped" {
            text.push_str("<skipped/>");
        }
        text.push_str("</testcase>\n");
    }
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

/// `text` without characters that mean something in XML, or that XML forbids.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
