//! The report: for people, for CI, for programs, and as a table for a page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rules::{Level, Results};
use domain::junit::{self, TestCase, TestResult};

/// Whether the plugin conforms, in words.
fn conclusion(results: &Results) -> &'static str {
    match (results.is_broken(), results.conforms()) {
        (true, _) => "does not conform",
        (_, true) => "conforms",
        _ => "not known",
    }
}

/// For people.
pub fn text(results: &Results) -> String {
    let mut text = String::new();
    for checked in results.all() {
        let rule = checked.rule;
        let _ = writeln!(text, "{:<7} {:<6} {:<18} {}", checked.result(), rule.level.as_str(), rule.id, rule.asks);
        for problem in checked.problems() {
            let _ = writeln!(text, "                {problem}");
        }
    }
    let broken =
        |level| results.all().iter().filter(|checked| checked.rule.level == level && checked.is_broken()).count();
    let (musts, shoulds, hazards) = (broken(Level::Must), broken(Level::Should), broken(Level::Hazard));
    let conclusion = conclusion(results);
    let _ = writeln!(text, "{conclusion}: {musts} MUST, {shoulds} SHOULD and {hazards} HAZARD broken");
    if let Some(why) = &results.unfinished {
        let _ = writeln!(text, "{why}");
    }
    text
}

/// A table in Markdown.
pub fn markdown(results: &Results) -> String {
    let mut text = "| rule | level | result | |\n|---|---|---|---|\n".to_owned();
    let cell = |text: &str| text.replace('|', "\\|");
    // What a reply holds must not become a part of the page.
    let quoted = |text: &String| cell(&text.replace('&', "&amp;").replace('<', "&lt;").replace('[', "&#91;"));
    for checked in results.all() {
        let rule = checked.rule;
        let problems = checked.problems().map(quoted).collect::<Vec<_>>().join("<br>");
        let said = if problems.is_empty() { cell(rule.asks) } else { problems };
        let _ = writeln!(text, "| `{}` | {} | {} | {said} |", rule.id, rule.level.as_str(), checked.result());
    }
    let _ = writeln!(text, "\nResult: {}", conclusion(results));
    if let Some(why) = &results.unfinished {
        let _ = writeln!(text, "\n{why}");
    }
    text
}

/// For programs.
pub fn json(results: &Results) -> Value {
    let rules: Vec<Value> = results
        .all()
        .iter()
        .map(|checked| {
            let mut value = json!(checked);
            value["result"] = json!(checked.result());
            value
        })
        .collect();
    json!({"conforms": results.conforms(), "conclusion": conclusion(results), "unfinished": results.unfinished, "rules": rules})
}

/// `JUnit` XML, for CI. A broken SHOULD is not a failure there. An unknown rule is one.
pub fn junit(results: &Results) -> String {
    let cases = results.all().iter().map(|checked| {
        let rule = checked.rule;
        let said = checked.problems().map(String::as_str).collect::<Vec<_>>().join("\n");
        let result = match checked.result() {
            "fail" if rule.level != Level::Should => TestResult::Failed(rule.asks.to_owned(), said),
            "unknown" => TestResult::Failed(format!("not known: {}", rule.asks), said),
            "skipped" => TestResult::Skipped,
            _ => TestResult::Passed(said),
        };
        TestCase { class: rule.level.as_str().to_owned(), name: rule.id.to_owned(), result }
    });
    let unfinished = results.unfinished.iter().map(|why| TestCase {
        class: "suite".to_owned(),
        name: "finished".to_owned(),
        result: TestResult::Failed(why.clone(), String::new()),
    });
    junit::write("plugin generator", &cases.chain(unfinished).collect::<Vec<_>>())
}
