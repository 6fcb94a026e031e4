//! The report: for people, for CI, for programs, and as a table for a page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rules::{Judged, Level, Results};
use crate::domain::junit::{self, Outcome, TestCase};

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
    let cases = results.all().iter().map(|judged| {
        let (rule, said) = (judged.rule, judged.failures.join("\n"));
        let outcome = match outcome(judged) {
            "fail" if rule.level != Level::Should => Outcome::Failed(rule.asks.to_owned(), said),
            "skipped" => Outcome::Skipped,
            _ => Outcome::Passed(said),
        };
        TestCase { class: rule.level.as_str().to_owned(), name: rule.id.to_owned(), outcome }
    });
    junit::write("plugin generator", &cases.collect::<Vec<_>>())
}
