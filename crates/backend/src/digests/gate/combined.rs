//! Several gates together: all of them must pass, or any.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::{CiState, CiVerdict, Gate, GateConfig, GateQuery};
use crate::Building;
use domain::{error::BackendError, generator::Evidence};

/// How many members must have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Every member.
    All,
    /// At least one.
    Any,
}

/// Gates that are called at once.
#[derive(Debug)]
pub struct Combined {
    rule: Rule,
    members: Vec<Arc<dyn Gate>>,
}

impl Combined {
    /// Builds the members, and notes their problems.
    pub fn build(rule: Rule, members: &[GateConfig], building: &mut Building<'_>) -> Option<Self> {
        if members.is_empty() {
            building.error_with_help("there are no gates", "name at least one: `- github: { … }`");
            return None;
        }
        let members = members.iter().enumerate();
        let members: Vec<_> = members.map(|(index, member)| member.build(&mut building.index(index))).collect();
        Some(Self { rule, members: members.into_iter().collect::<Option<_>>()? })
    }
}

#[async_trait]
impl Gate for Combined {
    async fn check(&self, query: GateQuery<'_>) -> Result<CiVerdict, BackendError> {
        let answers = join_all(self.members.iter().map(|member| member.check(query))).await;
        let count = answers.len();
        let name = |error: BackendError, index| match count {
            1 => error,
            _ => error.within(format_args!("gate {} of {count}", index + 1)),
        };
        let answers = answers.into_iter().enumerate().map(|(index, answer)| answer.map_err(|error| name(error, index)));
        self.rule.decide(answers.collect())
    }

    fn forget(&self) {
        self.members.iter().for_each(|member| member.forget());
    }
}

impl Rule {
    /// The verdict that follows from the members' answers, with the evidence of all of them.
    ///
    /// # Errors
    /// When a member does not know and its answer would matter, when members passed different commits, or when the parameters
    /// cannot be used. With `all`, another member's failure does not hide such parameters.
    pub fn decide(self, answers: Vec<Result<CiVerdict, BackendError>>) -> Result<CiVerdict, BackendError> {
        let (mut verdicts, mut errors, mut evidence) = (Vec::new(), Vec::new(), Vec::new());
        for answer in answers {
            match answer {
                Ok(mut verdict) => {
                    evidence.append(&mut verdict.evidence);
                    verdicts.push(verdict);
                }
                Err(mut error) => {
                    if error.evidence.is_empty() {
                        error.evidence.push(Evidence::unknown("CI", error.message.clone()));
                    }
                    evidence.append(&mut error.evidence);
                    errors.push(error);
                }
            }
        }
        let is_invalid = self == Self::All && errors.iter().any(BackendError::is_invalid_input);
        let decider = if is_invalid { Ok(None) } else { self.decider(&verdicts, errors.is_empty()) };
        match decider {
            Ok(Some(decider)) => Ok(CiVerdict { evidence, ..decider }),
            Ok(None) => {
                let none = || BackendError::invalid_output("no gate gave an answer");
                let error = BackendError::of_all(&errors, Vec::new()).unwrap_or_else(none);
                Err(BackendError { evidence, ..error })
            }
            Err(error) => Err(BackendError { evidence, ..error }),
        }
    }

    /// The verdict that decides, if one does.
    fn decider(self, verdicts: &[CiVerdict], all_answered: bool) -> Result<Option<CiVerdict>, BackendError> {
        let first = |state| verdicts.iter().find(|verdict| verdict.state == state).cloned();
        let passed = || verdicts.iter().filter(|verdict| verdict.state == CiState::Passed);
        match self {
            Self::All => {
                if let Some(failed) = first(CiState::Failed) {
                    return Ok(Some(failed));
                }
                if !all_answered {
                    return Ok(None);
                }
                match first(CiState::Pending) {
                    Some(pending) => Ok(Some(pending)),
                    None => last_of_one_commit(passed()),
                }
            }
            Self::Any => {
                // A member that passed the requested commit decides alone. An earlier commit decides only if all members answered.
                let as_asked = last_of_one_commit(passed().filter(|verdict| !verdict.is_earlier))?;
                if as_asked.is_some() || !all_answered {
                    return Ok(as_asked);
                }
                let earlier = last_of_one_commit(passed())?;
                Ok(earlier.or_else(|| first(CiState::Pending)).or_else(|| first(CiState::Failed)))
            }
        }
    }
}

/// Of the members that passed, the one whose run ended last, with the commit that any of them names.
fn last_of_one_commit<'a>(
    passed: impl Iterator<Item = &'a CiVerdict> + Clone,
) -> Result<Option<CiVerdict>, BackendError> {
    let mut named = passed.clone().filter(|verdict| verdict.commit.is_some());
    let one = named.next();
    if let Some(other) = named.find(|other| one.is_some_and(|one| other.commit != one.commit)) {
        let short = |verdict: Option<&CiVerdict>| {
            verdict
                .and_then(|verdict| verdict.commit.as_ref())
                .map(|commit| commit.short().to_owned())
                .unwrap_or_default()
        };
        return Err(BackendError::invalid_output(format!(
            "the gates passed different commits, {} and {}, so no single one passed",
            short(one),
            short(Some(other))
        )));
    }
    if passed.clone().any(|verdict| verdict.is_earlier) && passed.clone().any(|verdict| verdict.commit.is_none()) {
        return Err(BackendError::invalid_output(
            "one gate passed an earlier commit, and another gate does not say which commit it passed; give the other gate its `sha`",
        ));
    }
    let mut last = passed.max_by(|a, b| a.built_at.cmp(&b.built_at)).cloned();
    if let (Some(last), Some(one)) = (&mut last, one) {
        last.commit.clone_from(&one.commit);
        last.is_earlier = one.is_earlier;
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digests::commit::Commit;
    use domain::error::ErrorKind;

    fn verdict_of(word: &str) -> Result<CiVerdict, BackendError> {
        let state = match word.split('@').next().unwrap() {
            "passed" | "earlier" => CiState::Passed,
            "pending" => CiState::Pending,
            "failed" => CiState::Failed,
            _ => return Err(BackendError::timeout(word)),
        };
        let commit = word.split('@').nth(1).map(|digit| Commit::parse(&digit.repeat(40)).unwrap());
        Ok(CiVerdict {
            state,
            commit,
            is_earlier: word.starts_with("earlier"),
            evidence: vec![Evidence::present("ci", word)],
            run_url: Some(format!("https://ci/{word}")),
            built_at: Some(format!("2026-01-0{}T00:00:00Z", word.len() % 10)),
        })
    }

    fn decide(rule: Rule, words: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        match rule.decide(words.iter().map(|word| verdict_of(word)).collect()) {
            Ok(verdict) => {
                assert_eq!(verdict.evidence.len(), words.len(), "{words:?}");
                assert!(verdict.run_url.unwrap().contains(match verdict.state {
                    CiState::Passed =>
                        if verdict.is_earlier {
                            "earlier"
                        } else {
                            "passed"
                        },
                    CiState::Pending => "pending",
                    CiState::Failed => "failed",
                }));
                let commit = verdict.commit.map(|commit| format!(" {}", &commit.as_str()[..1])).unwrap_or_default();
                format!("{:?}{commit}", verdict.state)
            }
            Err(error) => {
                assert_eq!(error.evidence.len(), words.len(), "{words:?}");
                error.message
            }
        }
    }

    #[test]
    fn all_and_any() {
        for (words, all, any) in [
            ("passed", "Passed", "Passed"),
            ("passed passed", "Passed", "Passed"),
            ("passed pending", "Pending", "Passed"),
            ("pending failed", "Failed", "Pending"),
            ("failed failed", "Failed", "Failed"),
            ("passed failed", "Failed", "Passed"),
            ("passed pending failed", "Failed", "Passed"),
            ("passed lost", "lost", "Passed"),
            ("pending lost", "lost", "lost"),
            ("failed lost", "Failed", "lost"),
            ("passed failed lost", "Failed", "Passed"),
            ("lost gone", "lost; gone", "lost; gone"),
            ("passed@a passed@a", "Passed a", "Passed a"),
            ("passed passed@a", "Passed a", "Passed a"),
            ("earlier@b pending@a", "Pending a", "Passed b"),
            ("earlier@b lost", "lost", "lost"),
            ("earlier@b failed@a", "Failed a", "Passed b"),
        ] {
            assert_eq!(decide(Rule::All, words), all, "all: {words}");
            assert_eq!(decide(Rule::Any, words), any, "any: {words}");
        }
    }

    #[test]
    fn members_that_passed_must_agree_about_the_commit() {
        for (rule, words) in [
            (Rule::All, "passed@a earlier@b"),
            (Rule::All, "earlier@c earlier@b"),
            (Rule::Any, "earlier@c earlier@b"),
            (Rule::Any, "passed@c passed@b"),
        ] {
            let error = rule.decide(words.split(' ').map(verdict_of).collect()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidOutput);
            assert!(error.message.contains("different commits"), "{}", error.message);
        }
        assert_eq!(decide(Rule::Any, "passed@a earlier@b"), "Passed a");
    }

    #[test]
    fn the_run_that_ended_last_is_answered() {
        let verdict =
            Rule::All.decide(vec![verdict_of("passed@a"), verdict_of("passed"), verdict_of("passed@a")]).unwrap();
        assert_eq!(verdict.built_at.as_deref(), Some("2026-01-08T00:00:00Z"));
    }
}
