//! Commit statuses, which CI systems report under names of their own: which are required, and their verdict together.

use super::super::{CiState, CiVerdict, pattern::NamePattern};
use crate::digests::commit::Commit;
use domain::{
    error::BackendError,
    generator::Evidence,
    problem::{Path, Problems},
    secret::Secrets,
};

/// How many statuses a message lists, the worst first.
const MAX_SHOWN: usize = 20;
/// How many characters of a name or a word a message shows.
const MAX_WORD_CHARS: usize = 80;

/// The last status reported under one name.
#[derive(Debug, Clone)]
pub struct ReportedStatus {
    /// The name.
    pub name: String,
    /// The forge's own word for the state.
    pub word: String,
    /// The meaning of that word.
    pub state: CiState,
    /// The page with details.
    pub url: Option<String>,
    /// When it was reported.
    pub at: Option<String>,
}

/// Which statuses must pass.
#[derive(Debug)]
pub enum Required {
    /// All reported statuses, and at least one.
    All,
    /// The listed ones, each of which must be reported.
    Listed(Vec<NamePattern>),
}

impl Required {
    /// Reads the list at `path`: names, or expressions between slashes.
    pub fn build(list: Option<&[String]>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let Some(list) = list else { return Some(Self::All) };
        if list.is_empty() {
            problems.error_with_help(
                path,
                "an empty list requires nothing",
                "name what must pass, or leave the key out",
            );
            return None;
        }
        let wanted =
            list.iter().enumerate().map(|(index, text)| problems.note(&path.index(index), NamePattern::parse(text)));
        // Parse all before failing, so that every problem is noted.
        let wanted: Vec<Option<NamePattern>> = wanted.collect();
        wanted.into_iter().collect::<Option<_>>().map(Self::Listed)
    }

    /// The verdict of `statuses`, which are the whole answer for `commit` to the request `query`.
    ///
    /// # Errors
    /// When a required name is reported in another case.
    pub fn check(
        &self,
        statuses: &[ReportedStatus],
        commit: &Commit,
        query: &str,
        secrets: &Secrets,
    ) -> Result<CiVerdict, BackendError> {
        let mut missing = Vec::new();
        let mut weighed: Vec<&ReportedStatus> = match self {
            Self::All => statuses.iter().collect(),
            Self::Listed(wanted) => {
                missing
                    .extend(wanted.iter().filter(|wanted| !statuses.iter().any(|status| wanted.matches(&status.name))));
                statuses.iter().filter(|status| wanted.iter().any(|wanted| wanted.matches(&status.name))).collect()
            }
        };
        for wanted in &missing {
            if let Some(other) = wanted.misspelt(statuses.iter().map(|status| status.name.as_str())) {
                return Err(BackendError::invalid_output(secrets.redact(&wanted.differs_from(other))));
            }
        }
        weighed.sort_by_key(|status| std::cmp::Reverse(status.state));
        let worst = weighed.first().map_or(CiState::Pending, |status| status.state);
        let state = if missing.is_empty() { worst } else { worst.max(CiState::Pending) };

        let mut evidence: Vec<Evidence> =
            missing.iter().map(|wanted| Evidence::absent(query, format!("no status `{wanted}` yet"))).collect();
        if weighed.is_empty() && missing.is_empty() {
            evidence.push(Evidence::absent(query, "no status yet"));
        }
        evidence.extend(weighed.iter().map(|status| status.evidence(query, secrets)));
        if evidence.len() > MAX_SHOWN {
            let more = evidence.split_off(MAX_SHOWN - 1);
            evidence.extend(
                more.first().map(|first| Evidence { answer: format!("and {} more", more.len()), ..first.clone() }),
            );
        }
        let deciding = weighed.iter().filter(|status| status.state == state).max_by_key(|status| &status.at);
        Ok(CiVerdict {
            state,
            commit: Some(commit.clone()),
            is_earlier: false,
            evidence,
            run_url: deciding.and_then(|status| status.url.as_deref()).map(|url| secrets.redact(url)),
            built_at: deciding.filter(|_| state != CiState::Pending).and_then(|status| status.at.clone()),
        })
    }
}

impl ReportedStatus {
    fn evidence(&self, query: &str, secrets: &Secrets) -> Evidence {
        let show = |text: &str| secrets.excerpt(text.as_bytes(), MAX_WORD_CHARS);
        let url = self.url.as_deref().map(|url| format!(", {}", secrets.redact(url))).unwrap_or_default();
        let text = format!("`{}`: {}{url}", show(&self.name), show(&self.word));
        if self.state == CiState::Passed { Evidence::present(query, text) } else { Evidence::absent(query, text) }
    }
}

/// The error for an unknown word: it counts neither as passed nor as failed.
#[must_use]
pub(crate) fn unknown_word(what: &str, word: &str, secrets: &Secrets) -> BackendError {
    let shown = secrets.excerpt(word.as_bytes(), MAX_WORD_CHARS);
    BackendError::invalid_output(format!("the state of {what} is `{shown}`, which is unknown here"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use CiState::{Failed, Passed, Pending};

    fn required(list: &[&str]) -> Required {
        let list: Vec<String> = list.iter().map(|text| (*text).to_owned()).collect();
        Required::build(Some(&list), &Path::root(), &mut Problems::default()).unwrap()
    }

    fn rule(required: &Required, statuses: &[(&str, CiState)]) -> CiVerdict {
        try_rule(required, statuses).unwrap()
    }

    fn try_rule(required: &Required, statuses: &[(&str, CiState)]) -> Result<CiVerdict, BackendError> {
        let statuses: Vec<ReportedStatus> = statuses
            .iter()
            .map(|(name, state)| ReportedStatus {
                name: (*name).to_owned(),
                word: format!("{state:?}"),
                state: *state,
                url: Some(format!("https://ci/{name}")),
                at: Some("2026-01-01T00:00:00Z".to_owned()),
            })
            .collect();
        required.check(&statuses, &Commit::parse(&"a".repeat(40)).unwrap(), "GET /x", &Secrets::default())
    }

    #[test]
    fn the_worst_required_status_decides() {
        let (all, named) = (Required::All, required(&["build", "/^e2e/"]));
        for (required, statuses, state) in [
            (&all, &[][..], Pending),
            (&all, &[("a", Passed), ("b", Passed)], Passed),
            (&all, &[("a", Passed), ("b", Pending)], Pending),
            (&all, &[("a", Pending), ("b", Failed), ("c", Passed)], Failed),
            (&named, &[], Pending),
            (&named, &[("build", Passed)], Pending),
            (&named, &[("build", Failed)], Failed),
            (&named, &[("rebuild", Passed), ("e2e/1", Passed)], Pending),
            (&named, &[("build", Passed), ("e2e/1", Passed)], Passed),
            (&named, &[("build", Passed), ("e2e/1", Passed), ("lint", Failed)], Passed),
            (&named, &[("build", Passed), ("e2e/1", Passed), ("e2e/2", Failed)], Failed),
        ] {
            assert_eq!(rule(required, statuses).state, state, "{required:?}: {statuses:?}");
        }
    }

    #[test]
    fn a_name_in_another_case_is_an_error() {
        let error = try_rule(&required(&["build"]), &[("Build", Passed)]).unwrap_err();
        assert!(error.message.contains("there is no `build`, but `Build`"), "{}", error.message);
        assert_eq!(rule(&required(&["Build"]), &[("Build", Passed), ("build", Failed)]).state, Passed);
    }

    #[test]
    fn a_verdict_shows_what_decided() {
        let verdict = rule(&required(&["build", "lint"]), &[("build", Failed), ("x", Passed)]);
        assert_eq!(verdict.run_url.as_deref(), Some("https://ci/build"));
        assert_eq!(verdict.built_at.as_deref(), Some("2026-01-01T00:00:00Z"));
        let lines: Vec<String> = verdict.evidence.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["absent, GET /x: no status `lint` yet", "absent, GET /x: `build`: Failed, https://ci/build"]
        );
        let many: Vec<(&str, CiState)> = (0..30).map(|_| ("a", Passed)).chain([("b", Failed)]).collect();
        let evidence = rule(&Required::All, &many).evidence;
        assert_eq!(evidence.len(), 20);
        assert_eq!(evidence[0].answer, "`b`: Failed, https://ci/b");
        assert_eq!(evidence[19].to_string(), "present, GET /x: and 12 more");
    }

    #[test]
    fn a_list_that_requires_nothing_is_refused() {
        for bad in [&[][..], &[String::new()], &["//".to_owned()], &["/(/".to_owned(), "ok".to_owned()]] {
            let mut problems = Problems::default();
            assert!(Required::build(Some(bad), &Path::root(), &mut problems).is_none(), "{bad:?}");
            assert_eq!(problems.into_vec().len(), 1, "{bad:?}");
        }
    }
}
