//! The report in SARIF 2.1.0, which code hosts show beside the lines of a change.

use serde_json::{Value, json};

use super::Report;

impl Report {
    /// The problems as a SARIF log with one run.
    #[must_use]
    pub(crate) fn to_sarif(&self) -> Value {
        let results: Vec<Value> = self
            .all()
            .map(|(file, problem)| {
                let level = if self.is_error(problem) { "error" } else { "warning" };
                let help = problem.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
                let path = if problem.path.is_empty() { String::new() } else { format!("{}: ", problem.path) };
                json!({
                    "ruleId": "configuration",
                    "level": level,
                    "message": {"text": format!("{path}{}{help}", problem.message)},
                    "locations": [{"physicalLocation": {
                        "artifactLocation": {"uri": file},
                        "region": {"startLine": problem.at.line, "startColumn": problem.at.column},
                    }}],
                })
            })
            .collect();
        json!({
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{
                "tool": {"driver": {
                    "name": "appset-gateway",
                    "version": env!("CARGO_PKG_VERSION"),
                    "rules": [{"id": "configuration", "shortDescription": {"text": "The configuration is as the gateway needs it"}}],
                }},
                "results": results,
            }],
        })
    }
}
