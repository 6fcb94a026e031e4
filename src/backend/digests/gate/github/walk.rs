//! The way back from a commit that has not passed to the newest one before it that has.

use async_trait::async_trait;

use super::{
    super::{
        Asked, Gate, Ruling, State,
        memory::{Remembered, System},
    },
    Github, Question,
    documents::Ancestor,
};
use crate::{backend::digests::commit::Commit, error::BackendError, generator::Evidence};

/// GitHub, and what it says of earlier commits while the one that is asked about has not passed.
#[derive(Debug)]
pub struct WalkBack {
    github: Remembered<Github>,
    steps: u8,
}

#[async_trait]
impl Gate for WalkBack {
    async fn ask(&self, asked: Asked<'_>) -> Result<Ruling, BackendError> {
        let question = self.github.system.question(asked)?;
        let own = self.github.ruling(question.clone(), asked).await?;
        if own.state == State::Passed { Ok(own) } else { self.walk_back(&question, own, asked).await }
    }

    fn reads_application_set(&self) -> bool {
        self.github.reads_application_set()
    }

    fn forget(&self) {
        self.github.forget();
    }
}

impl WalkBack {
    /// `github`, which goes back by `steps` commits.
    #[must_use]
    pub const fn new(github: Remembered<Github>, steps: u8) -> Self {
        Self { github, steps }
    }

    /// The ruling on the newest of the commits before `question` that passed, else `own` when there are no others.
    ///
    /// Only first parents are followed: what was merged into a branch was never its head.
    ///
    /// # Errors
    /// When one of the commits on the way is not clear, or none of them passed and there are more.
    async fn walk_back(&self, question: &Question, own: Ruling, asked: Asked<'_>) -> Result<Ruling, BackendError> {
        let Question { repository, commit } = question;
        let count = usize::from(self.steps) + 1;
        let listed = self.github.system.access.history(repository, commit, count, asked.deadline).await?;
        let (line, is_whole) = first_parents(commit, &listed)
            .map_err(|why| BackendError::invalid_output(format!("the history of {repository}: {why}")))?;
        let way = format!("the commits of {repository} before {}", commit.short());
        for (index, earlier) in line.iter().enumerate() {
            let before = Question { repository: repository.clone(), commit: earlier.clone() };
            let ruling = self.github.ruling(before, asked).await?;
            if ruling.state == State::Passed {
                let told = format!("{} passed, {} before {}", earlier.short(), index + 1, commit.short());
                let mut evidence = own.evidence;
                evidence.push(Evidence::present(way, told));
                evidence.extend(ruling.evidence);
                return Ok(Ruling { is_earlier: true, evidence, ..ruling });
            }
        }
        let mut evidence = own.evidence.clone();
        if is_whole {
            evidence.push(Evidence::absent(way, format!("none of all {} passed", line.len())));
            return Ok(Ruling { evidence, ..own });
        }
        let why = format!(
            "none of the last {} commits before {} passed; whether an earlier one did is not known: raise `walkBack`",
            line.len(),
            commit.short()
        );
        evidence.push(Evidence::unknown(way, why.clone()));
        Err(BackendError { evidence, ..BackendError::invalid_output(format!("{repository}: {why}")) })
    }
}

/// The first parents of `commit` as far as they are listed, newest first, and whether these are all.
fn first_parents(commit: &Commit, listed: &[Ancestor]) -> Result<(Vec<Commit>, bool), String> {
    let find = |sha: &str| listed.iter().find(|ancestor| ancestor.sha.eq_ignore_ascii_case(sha));
    let mut here = find(commit.as_str()).ok_or_else(|| format!("it does not list {} itself", commit.short()))?;
    let mut line = Vec::new();
    loop {
        let Some(parent) = here.parents.first() else { return Ok((line, true)) };
        let Some(next) = find(&parent.sha) else { return Ok((line, false)) };
        if line.len() >= listed.len() {
            return Err("it goes round in a circle".to_owned());
        }
        line.push(Commit::parse(&next.sha)?);
        here = next;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(listed: &[(&str, &[&str])]) -> Result<(String, bool), String> {
        let sha = |digit: &str| digit.repeat(40);
        let listed = listed.iter().map(|(one, parents)| {
            let parents: Vec<_> = parents.iter().map(|parent| json!({"sha": sha(parent)})).collect();
            serde_json::from_value(json!({"sha": sha(one), "parents": parents})).unwrap()
        });
        let listed: Vec<Ancestor> = listed.collect();
        let (line, is_whole) = first_parents(&Commit::parse(&sha("a")).unwrap(), &listed)?;
        Ok((line.iter().map(|commit| &commit.as_str()[..1]).collect(), is_whole))
    }

    #[test]
    fn only_first_parents_are_followed() {
        assert_eq!(line(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]).unwrap(), ("bc".to_owned(), true));
        assert_eq!(line(&[("a", &["b"]), ("b", &["c"])]).unwrap(), ("b".to_owned(), false));
        let merged: &[(&str, &[&str])] = &[("a", &["b", "e"]), ("e", &["f"]), ("b", &["c"])];
        assert_eq!(line(merged).unwrap(), ("b".to_owned(), false));
        assert_eq!(line(&[("a", &[])]).unwrap(), (String::new(), true));
        assert!(line(&[("b", &["a"])]).unwrap_err().contains("itself"));
        assert!(line(&[]).is_err());
        assert!(line(&[("a", &["b"]), ("b", &["a"])]).unwrap_err().contains("circle"));
    }
}
