//! The report of `appset-gateway test`: for people, for CI, for programs, and as a table for a page.

use std::{fmt::Write as _, path::Path};

use serde_json::{Value, json};

use super::play::Played;
use domain::{
    junit::{self, TestCase, TestResult},
    visible::visible as printed,
};

/// A case that was played.
#[derive(Debug)]
pub(crate) struct CaseResult {
    /// The file.
    pub(crate) file: String,
    /// The line of the case.
    pub(crate) line: u64,
    /// Its name.
    pub(crate) name: String,
    /// Its result.
    pub(crate) played: Played,
    /// Whether the file now has the given answer as the expected one.
    pub(crate) is_updated: bool,
}

impl CaseResult {
    /// A file that holds no cases, and why.
    pub(crate) fn unreadable(file: &Path, why: &[String]) -> Self {
        Self {
            file: file.display().to_string(),
            line: 1,
            name: "the file holds cases".to_owned(),
            played: Played { steps: Vec::new(), unused: why.to_vec() },
            is_updated: false,
        }
    }

    /// Why it failed, each with the step.
    fn failures(&self) -> Vec<String> {
        let steps = self.played.steps.iter().enumerate().flat_map(|(number, step)| {
            let place = if number == 0 { String::new() } else { format!("then, step {number}: ") };
            step.missing.iter().chain(&step.differences).map(move |failure| format!("{place}{failure}"))
        });
        steps.chain(self.played.unused.iter().cloned()).collect()
    }

    /// `pass`, `fail`, or `updated` if it passes from now on.
    fn outcome(&self) -> &'static str {
        let is_complete = self.played.unused.is_empty() && self.played.steps.iter().all(|step| step.missing.is_empty());
        match (self.failures().is_empty(), self.is_updated && is_complete) {
            (true, _) => "pass",
            (false, true) => "updated",
            (false, false) => "fail",
        }
    }

    fn has_failed(&self) -> bool {
        self.outcome() == "fail"
    }
}

/// How many of `results` failed.
pub(crate) fn failed(results: &[CaseResult]) -> usize {
    results.iter().filter(|result| result.has_failed()).count()
}

/// For people.
pub(crate) fn text(results: &[CaseResult]) -> String {
    let mut text = String::new();
    for result in results {
        let (file, name) = (printed(&result.file), printed(&result.name));
        let _ = writeln!(text, "{:<8}{file}:{}: {name}", result.outcome(), result.line);
        for failure in result.failures() {
            let _ = writeln!(text, "        {}", printed(&failure));
        }
    }
    let failed = failed(results);
    let _ = writeln!(text, "{} passed, {failed} failed", results.len() - failed);
    text
}

/// A table in Markdown.
pub(crate) fn markdown(results: &[CaseResult]) -> String {
    let mut text = "| case | result | |\n|---|---|---|\n".to_owned();
    for result in results {
        let failures: Vec<String> = result.failures().iter().map(|failure| cell(failure)).collect();
        let _ = writeln!(text, "| {} | {} | {} |", cell(&result.name), result.outcome(), failures.join("<br>"));
    }
    text
}

/// `text` in one cell of a table, as it is.
fn cell(text: &str) -> String {
    printed(text).replace('\\', "\\\\").replace('|', "\\|").replace('<', "&lt;")
}

/// For programs.
pub(crate) fn json(results: &[CaseResult]) -> Value {
    let cases: Vec<Value> = results
        .iter()
        .map(|result| {
            let answers: Vec<String> = result.played.steps.iter().map(|step| step.answer.to_string()).collect();
            json!({
                "file": result.file, "line": result.line, "name": result.name,
                "result": result.outcome(),
                "failures": result.failures(), "answers": answers,
            })
        })
        .collect();
    let failed = failed(results);
    json!({"passed": results.len() - failed, "failed": failed, "cases": cases})
}

/// `JUnit` XML, for CI.
pub(crate) fn junit(results: &[CaseResult]) -> String {
    let cases = results.iter().map(|result| {
        let failures = result.failures();
        let in_junit = match failures.first() {
            Some(first) if result.has_failed() => TestResult::Failed(first.clone(), failures.join("\n")),
            _ => TestResult::Passed(failures.join("\n")),
        };
        TestCase { class: result.file.clone(), name: result.name.clone(), result: in_junit }
    });
    junit::write("appset-gateway test", &cases.collect::<Vec<_>>())
}
