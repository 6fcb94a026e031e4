//! The verdicts that a list of runs, checks or statuses makes for the required names.

use std::collections::BTreeMap;

use super::{
    super::{CiState, CiVerdict, pattern::NamePattern},
    Conclusion,
    repository::GithubRepository,
};
use crate::digests::commit::Commit;
use domain::{error::BackendError, generator::Evidence, visible::one_line};

/// The kind of a list's items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckKind {
    /// Runs of workflows.
    Workflow,
    /// Check runs.
    Check,
    /// Commit statuses.
    Status,
}

/// One run, check or status.
#[derive(Debug, Clone)]
pub(super) struct CheckEntry {
    /// The workflow, check or context. The newest entry of each group counts.
    pub(super) group: String,
    /// All its names.
    pub(super) names: Vec<String>,
    /// Higher for a newer run.
    pub(super) id: u64,
    /// Higher for a repetition of the same run.
    pub(super) attempt: u64,
    pub(super) status: Option<String>,
    pub(super) conclusion: Option<String>,
    pub(super) url: Option<String>,
    pub(super) ended_at: Option<String>,
}

/// The check of a list about one commit.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListCheck<'a> {
    pub(super) kind: CheckKind,
    pub(super) repository: &'a GithubRepository,
    pub(super) commit: &'a Commit,
    pub(super) accept: &'a [Conclusion],
}

impl ListCheck<'_> {
    /// A verdict or an error for each group that one of `names` requires.
    pub(super) fn verdicts(
        self,
        names: &[NamePattern],
        entries: &[CheckEntry],
    ) -> Vec<Result<CiVerdict, BackendError>> {
        names.iter().flat_map(|name| self.verdicts_of(name, entries)).collect()
    }

    fn verdicts_of(self, name: &NamePattern, entries: &[CheckEntry]) -> Vec<Result<CiVerdict, BackendError>> {
        let mut newest: BTreeMap<&str, &CheckEntry> = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.names.iter().any(|called| name.matches(called))) {
            let best = newest.entry(&entry.group).or_insert(entry);
            if (entry.id, entry.attempt) > (best.id, best.attempt) {
                *best = entry;
            }
        }
        if newest.is_empty() {
            if let Some(other) = name.misspelt(entries.iter().flat_map(|entry| &entry.names).map(String::as_str)) {
                let (query, why) = (self.query(&name.to_string()), name.differs_from(other));
                let evidence = vec![Evidence::unknown(&query, why.clone())];
                return vec![Err(BackendError { evidence, ..BackendError::invalid_output(format!("{query}: {why}")) })];
            }
            let evidence = Evidence::absent(self.query(&name.to_string()), format!("no {} yet", self.noun()));
            return vec![Ok(self.verdict(CiState::Pending, evidence, None))];
        }
        newest.into_values().map(|entry| self.verdict_on(entry)).collect()
    }

    fn verdict_on(self, entry: &CheckEntry) -> Result<CiVerdict, BackendError> {
        let query = self.query(&entry.group);
        let which = match entry.attempt {
            1 => format!("{} {}", self.noun(), entry.id),
            attempt => format!("{} {}, attempt {attempt}", self.noun(), entry.id),
        };
        let answered = |word: &str| format!("{word} ({which})");
        match self.state(entry) {
            Ok((state, word)) => {
                let evidence = match state {
                    CiState::Passed => Evidence::present(query, answered(&word)),
                    CiState::Pending | CiState::Failed => Evidence::absent(query, answered(&word)),
                };
                Ok(self.verdict(state, evidence, Some(entry)))
            }
            Err(word) => {
                let error = BackendError::invalid_output(format!("{query}: {}", answered(&word)));
                Err(BackendError { evidence: vec![Evidence::unknown(query, answered(&word))], ..error })
            }
        }
    }

    /// The state that the words of `entry` mean, with its description; or the reason why they are unclear.
    fn state(self, entry: &CheckEntry) -> Result<(CiState, String), String> {
        let Some(status) = &entry.status else { return Err("GitHub names no status".to_owned()) };
        match status.as_str() {
            "completed" => {}
            "queued" | "in_progress" | "waiting" | "requested" | "pending" => {
                return Ok((CiState::Pending, shown(status)));
            }
            other => return Err(format!("its status `{}` is unknown here", shown(other))),
        }
        let conclusion = entry.conclusion.as_deref().unwrap_or_default();
        let idle = |accepted| {
            if self.accept.contains(&accepted) {
                (CiState::Passed, format!("{conclusion}, which is accepted"))
            } else {
                (CiState::Failed, format!("{conclusion}, which is not a success unless `accept` names it"))
            }
        };
        Ok(match (self.kind, conclusion) {
            (_, "success") => (CiState::Passed, conclusion.to_owned()),
            (CheckKind::Workflow | CheckKind::Check, "skipped") => idle(Conclusion::Skipped),
            (CheckKind::Workflow | CheckKind::Check, "neutral") => idle(Conclusion::Neutral),
            (CheckKind::Status, "failure" | "error")
            | (
                CheckKind::Workflow | CheckKind::Check,
                "failure" | "cancelled" | "timed_out" | "startup_failure" | "stale",
            ) => (CiState::Failed, conclusion.to_owned()),
            (CheckKind::Workflow | CheckKind::Check, "action_required") => {
                (CiState::Pending, "it waits for an approval".to_owned())
            }
            (_, "") => return Err("it is completed, and GitHub names no conclusion".to_owned()),
            (_, other) => return Err(format!("`{}` is unknown here", shown(other))),
        })
    }

    fn verdict(self, state: CiState, evidence: Evidence, entry: Option<&CheckEntry>) -> CiVerdict {
        CiVerdict {
            state,
            commit: Some(self.commit.clone()),
            is_earlier: false,
            evidence: vec![evidence],
            run_url: entry.and_then(|entry| entry.url.clone()),
            built_at: entry.filter(|_| state != CiState::Pending).and_then(|entry| entry.ended_at.clone()),
        }
    }

    fn query(self, name: &str) -> String {
        let kind = match self.kind {
            CheckKind::Workflow => "workflow",
            CheckKind::Check => "check",
            CheckKind::Status => "status",
        };
        format!("the {kind} {} of {} at {}", shown(name), self.repository, self.commit.short())
    }

    const fn noun(self) -> &'static str {
        match self.kind {
            CheckKind::Workflow | CheckKind::Check => "run",
            CheckKind::Status => "status",
        }
    }
}

/// `text` for a message: short, and on one line.
fn shown(text: &str) -> String {
    one_line(&text.chars().take(100).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{super::super::combined::Rule, *};
    use domain::error::ErrorKind;

    fn entry(name: &str, id: u64, attempt: u64, words: &str) -> CheckEntry {
        let (status, conclusion) = words.split_once(' ').unwrap_or((words, ""));
        CheckEntry {
            group: format!(".github/workflows/{name}.yml"),
            names: vec![format!("{name}.yml"), name.to_owned()],
            id,
            attempt,
            status: Some(status.to_owned()).filter(|status| !status.is_empty()),
            conclusion: Some(conclusion.to_owned()).filter(|conclusion| !conclusion.is_empty()),
            url: Some(format!("https://github.com/runs/{id}")),
            ended_at: Some(format!("2026-01-01T00:00:{:02}Z", id % 60)),
        }
    }

    fn rule(
        kind: CheckKind,
        accept: &[Conclusion],
        names: &[&str],
        entries: &[CheckEntry],
    ) -> Result<CiVerdict, BackendError> {
        let names: Vec<NamePattern> = names.iter().map(|name| NamePattern::parse(name).unwrap()).collect();
        let (repository, commit) =
            (GithubRepository::parse("org/repo").unwrap(), Commit::parse(&"a".repeat(40)).unwrap());
        let check = ListCheck { kind, repository: &repository, commit: &commit, accept };
        Rule::All.decide(check.verdicts(&names, entries))
    }

    /// A comparison as text would wait for a run that is there.
    #[test]
    fn a_name_in_another_case_is_an_error() {
        let runs = [entry("Build", 1, 1, "completed success")];
        for name in ["build", "BUILD.yml", "build.YML"] {
            let error = rule(CheckKind::Workflow, &[], &[name], &runs).unwrap_err();
            assert!(error.message.contains(&format!("there is no `{name}`, but `Build")), "{}", error.message);
        }
        assert_eq!(rule(CheckKind::Workflow, &[], &["Build"], &runs).unwrap().state, CiState::Passed);
        assert_eq!(rule(CheckKind::Workflow, &[], &["test"], &runs).unwrap().state, CiState::Pending);
    }

    #[test]
    fn every_documented_word() {
        let passed = CiState::Passed;
        for (words, expected) in [
            ("completed success", Some(passed)),
            ("completed failure", Some(CiState::Failed)),
            ("completed cancelled", Some(CiState::Failed)),
            ("completed timed_out", Some(CiState::Failed)),
            ("completed startup_failure", Some(CiState::Failed)),
            ("completed stale", Some(CiState::Failed)),
            ("completed skipped", Some(CiState::Failed)),
            ("completed neutral", Some(CiState::Failed)),
            ("completed action_required", Some(CiState::Pending)),
            ("queued", Some(CiState::Pending)),
            ("in_progress", Some(CiState::Pending)),
            ("waiting", Some(CiState::Pending)),
            ("requested", Some(CiState::Pending)),
            ("pending", Some(CiState::Pending)),
            ("in_progress success", Some(CiState::Pending)),
            ("completed", None),
            ("completed error", None),
            ("completed Success", None),
            ("completed whatever", None),
            ("Completed success", None),
            ("expired", None),
            ("on_hold success", None),
            ("", None),
        ] {
            for kind in [CheckKind::Workflow, CheckKind::Check] {
                let verdict = rule(kind, &[], &["build"], &[entry("build", 1, 1, words)]);
                match expected {
                    Some(state) => assert_eq!(verdict.unwrap().state, state, "{words}"),
                    None => assert_eq!(verdict.unwrap_err().kind, ErrorKind::InvalidOutput, "{words}"),
                }
            }
        }
        for (words, expected) in [
            ("completed success", passed),
            ("pending", CiState::Pending),
            ("completed failure", CiState::Failed),
            ("completed error", CiState::Failed),
        ] {
            let verdict = rule(CheckKind::Status, &[], &["build"], &[entry("build", 1, 1, words)]);
            assert_eq!(verdict.unwrap().state, expected, "{words}");
        }
        assert!(rule(CheckKind::Status, &[], &["build"], &[entry("build", 1, 1, "completed skipped")]).is_err());
        // An unknown word for an older run does not matter.
        let entries = [entry("build", 1, 1, "expired"), entry("build", 2, 1, "completed success")];
        assert_eq!(rule(CheckKind::Workflow, &[], &["build"], &entries).unwrap().state, passed);
    }

    #[test]
    fn what_did_nothing_passes_only_where_that_is_accepted() {
        let entries = [entry("build", 1, 1, "completed skipped")];
        let verdict = rule(CheckKind::Workflow, &[Conclusion::Neutral], &["build.yml"], &entries).unwrap();
        assert_eq!(verdict.state, CiState::Failed);
        assert!(verdict.evidence[0].answer.contains("skipped, which is not a success unless `accept`"));
        let verdict = rule(CheckKind::Workflow, &[Conclusion::Skipped], &["build.yml"], &entries).unwrap();
        assert_eq!(verdict.state, CiState::Passed);
    }

    #[test]
    fn the_newest_run_counts_and_of_it_the_newest_attempt() {
        let state = |entries: &[CheckEntry]| rule(CheckKind::Workflow, &[], &["build"], entries).unwrap().state;
        let (failed, passed, runs) = ("completed failure", "completed success", "in_progress");
        assert_eq!(state(&[entry("build", 1, 1, failed), entry("build", 2, 1, passed)]), CiState::Passed);
        assert_eq!(state(&[entry("build", 2, 1, runs), entry("build", 1, 3, passed)]), CiState::Pending);
        assert_eq!(state(&[entry("build", 2, 2, passed), entry("build", 2, 1, failed)]), CiState::Passed);
        assert_eq!(state(&[entry("build", 2, 1, passed), entry("build", 2, 2, failed)]), CiState::Failed);
    }

    #[test]
    fn all_names_and_all_matches_are_required() {
        let passed = |name: &str, id| entry(name, id, 1, "completed success");
        let ask = |names: &[&str], entries: &[CheckEntry]| rule(CheckKind::Workflow, &[], names, entries).unwrap();
        let verdict = ask(&["build.yml", "test"], &[passed("build", 1)]);
        assert_eq!(verdict.state, CiState::Pending);
        assert_eq!(verdict.evidence[1].to_string(), "absent, the workflow test of org/repo at aaaaaaaa: no run yet");
        let verdict = ask(&["/^(build|test)$/"], &[passed("build", 3), entry("test", 2, 1, "completed failure")]);
        assert_eq!((verdict.state, verdict.evidence.len()), (CiState::Failed, 2));
        assert_eq!(verdict.run_url.as_deref(), Some("https://github.com/runs/2"));
        assert_eq!(ask(&["/^(build|test)$/"], &[passed("lint", 1)]).state, CiState::Pending);
        let verdict = ask(&["/./"], &[passed("build", 3), passed("test", 9), passed("lint", 5)]);
        assert_eq!((verdict.state, verdict.built_at.as_deref()), (CiState::Passed, Some("2026-01-01T00:00:09Z")));
        assert_eq!(ask(&["build"], &[]).state, CiState::Pending);
    }
}
