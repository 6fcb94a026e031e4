//! The report on incidents: for people, for CI, for programs, and as a table for a page.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{ALL, Findings, Incident, Played};
use domain::junit::{self, TestCase, TestResult};

/// What Argo CD would have done, in one sentence.
fn consequence(played: &Played) -> String {
    let (deletes, before) = (played.deletes(), played.before());
    match played.result() {
        "deletes" => format!("Argo CD would delete {deletes} of {before} Applications"),
        "keeps" => format!("Argo CD would keep all {before} Applications"),
        _ => played.why.clone().unwrap_or_else(|| "not every reply could be judged".to_owned()),
    }
}

/// The result of all incidents, in one sentence.
fn conclusion(findings: &Findings) -> String {
    let count = |result| findings.played.iter().filter(|played| played.result() == result).count();
    let (deletes, keeps) = (count("deletes"), count("keeps"));
    let mut text = match deletes {
        0 if findings.is_safe() => format!("Argo CD would keep all Applications in {keeps} of {keeps} incidents"),
        0 => "not known whether Argo CD would keep all Applications".to_owned(),
        _ => {
            let played = findings.played.len() - count("not played");
            format!("Argo CD would delete Applications in {deletes} of {played} incidents")
        }
    };
    for result in ["not played", "unknown"] {
        let number = count(result);
        if number > 0 {
            let _ = write!(text, ", {number} {result}");
        }
    }
    text
}

/// The replies of `played`, each with its question.
fn replies(played: &Played) -> impl Iterator<Item = String> {
    let questions = played.questions.iter();
    questions.flat_map(|question| question.replies.iter().map(move |reply| format!("{}: {reply}", question.case)))
}

/// The list of incidents, for people.
pub fn list() -> String {
    let mut text = String::new();
    for incident in ALL {
        let _ = writeln!(text, "{}\n    {}", incident.name, incident.happened);
        for source in incident.sources {
            let _ = writeln!(text, "    {source}");
        }
    }
    text
}

/// The list of incidents, for programs.
pub fn json_list() -> Value {
    ALL.iter().map(described).collect()
}

fn described(incident: &Incident) -> Value {
    json!({"name": incident.name, "happened": incident.happened, "sources": incident.sources, "needsRestart": incident.needs_restart()})
}

/// For people.
pub fn text(findings: &Findings) -> String {
    let mut text = String::new();
    for played in &findings.played {
        let incident = played.incident;
        let _ = writeln!(text, "{:<10} {:<25} {}", played.result(), incident.name, consequence(played));
        if played.result() == "deletes" || played.result() == "unknown" {
            for reply in replies(played) {
                let _ = writeln!(text, "           {reply}");
            }
        }
        let _ = writeln!(text, "           {}", incident.happened);
        for source in incident.sources {
            let _ = writeln!(text, "           {source}");
        }
    }
    let _ = writeln!(text, "{}", conclusion(findings));
    if let Some(why) = &findings.unfinished {
        let _ = writeln!(text, "{why}");
    }
    text
}

/// A table in Markdown.
pub fn markdown(findings: &Findings) -> String {
    let mut text = "| incident | result | | source |\n|---|---|---|---|\n".to_owned();
    // What a reply holds must not become a part of the page.
    let quoted = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('[', "&#91;").replace('|', "\\|");
    for played in &findings.played {
        let said = [consequence(played)].into_iter().chain(replies(played)).map(|text| quoted(&text));
        let said = said.collect::<Vec<_>>().join("<br>");
        let incident = played.incident;
        let sources = incident.sources.join(" ");
        let _ = writeln!(text, "| `{}` | {} | {said} | {sources} |", incident.name, played.result());
    }
    let _ = writeln!(text, "\nResult: {}", conclusion(findings));
    if let Some(why) = &findings.unfinished {
        let _ = writeln!(text, "\n{why}");
    }
    text
}

/// For programs.
pub fn json(findings: &Findings) -> Value {
    let incidents = findings.played.iter().map(|played| {
        let questions = played.questions.iter().map(|question| {
            json!({"case": question.case, "before": question.before, "deletes": question.deletes, "replies": question.replies})
        });
        let mut value = described(played.incident);
        value["result"] = json!(played.result());
        value["deletes"] = json!(played.deletes());
        value["before"] = json!(played.before());
        value["why"] = json!(played.why);
        value["questions"] = questions.collect();
        value
    });
    json!({
        "safe": findings.is_safe(),
        "conclusion": conclusion(findings),
        "unfinished": findings.unfinished,
        "incidents": incidents.collect::<Value>(),
    })
}

/// `JUnit` XML, for CI.
pub fn junit(findings: &Findings) -> String {
    let cases = findings.played.iter().map(|played| {
        let said = replies(played).chain(played.incident.sources.iter().map(ToString::to_string));
        let said = said.collect::<Vec<_>>().join("\n");
        let result = match played.result() {
            "keeps" => TestResult::Passed(consequence(played)),
            "not played" => TestResult::Skipped,
            _ => TestResult::Failed(consequence(played), said),
        };
        TestCase { class: "incident".to_owned(), name: played.incident.name.to_owned(), result }
    });
    let is_known = findings.is_safe() || findings.played.iter().any(|played| played.deletes() > 0);
    let why = findings.unfinished.clone().or_else(|| (!is_known).then(|| conclusion(findings)));
    let unfinished = why.map(|why| TestCase {
        class: "incidents".to_owned(),
        name: "finished".to_owned(),
        result: TestResult::Failed(why, String::new()),
    });
    junit::write("incidents", &cases.chain(unfinished).collect::<Vec<_>>())
}
