//! The way back from a commit that has not passed to the newest one before it that has.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{
    super::{
        Gate, GateQuery, Ruling, RulingState,
        memory::{Remembered, System},
    },
    Github, GithubRequest,
    documents::Ancestor,
};
use crate::{
    backend::digests::commit::Commit,
    domain::{error::BackendError, generator::Evidence},
};

/// How many lists of commits are read for one walk. Each goes on by one commit at least.
const MAX_LISTS: usize = 5;
/// How many commits GitHub lists at most.
const LONGEST_LIST: usize = 100;

/// GitHub, and what it says of earlier commits while the one that is asked about has not passed.
#[derive(Debug)]
pub(crate) struct WalkBack {
    github: Remembered<Github>,
    steps: u8,
}

#[async_trait]
impl Gate for WalkBack {
    async fn ask(&self, asked: GateQuery<'_>) -> Result<Ruling, BackendError> {
        let question = self.github.system.question(asked).await?;
        let own = self.github.ruling(question.clone(), asked).await?;
        if own.state == RulingState::Passed { Ok(own) } else { self.walk_back(&question, own, asked).await }
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
    pub(crate) const fn new(github: Remembered<Github>, steps: u8) -> Self {
        Self { github, steps }
    }

    /// The ruling on the newest of the commits before `question` that passed, else `own` when there are no others.
    ///
    /// Only first parents are followed: what was merged into a branch was never its head.
    ///
    /// # Errors
    /// When one of the commits on the way is not clear, or none of them passed and there may be more.
    async fn walk_back(
        &self,
        question: &GithubRequest,
        own: Ruling,
        asked: GateQuery<'_>,
    ) -> Result<Ruling, BackendError> {
        let GithubRequest { repository, commit } = question;
        let way = format!("the commits of {repository} before {}", commit.short());
        let (mut here, mut gone, mut history) = (question.clone(), 0, History::default());
        let unseen = loop {
            let parent = match self.first_parent(&here, &mut history, asked).await? {
                Some(Parent::Commit(_)) if gone == self.steps => break Some("raise `walkBack`"),
                Some(Parent::Commit(parent)) => parent,
                Some(Parent::None) => break None,
                None => break Some("what was merged in fills the lists of commits, of which only so many are read"),
            };
            (here.commit, gone) = (parent, gone + 1);
            let ruling = self.github.ruling(here.clone(), asked).await?;
            if ruling.state == RulingState::Passed {
                let told = format!("{} passed, {gone} before {}", here.commit.short(), commit.short());
                let mut evidence = own.evidence;
                evidence.push(Evidence::present(way, told));
                evidence.extend(ruling.evidence);
                return Ok(Ruling { is_earlier: true, evidence, ..ruling });
            }
        };
        let mut evidence = own.evidence.clone();
        let Some(unseen) = unseen else {
            evidence.push(Evidence::absent(way, format!("none of all {gone} passed")));
            return Ok(Ruling { evidence, ..own });
        };
        let why = format!(
            "none of the last {gone} commits before {} passed; whether an earlier one did is not known: {unseen}",
            commit.short()
        );
        evidence.push(Evidence::unknown(way, why.clone()));
        Err(BackendError { evidence, ..BackendError::invalid_output(format!("{repository}: {why}")) })
    }

    /// The first parent of `here`, by what is listed already, else by a list that begins there; what was merged in before
    /// it is skipped so. `None` when so many lists were read that no other is.
    async fn first_parent(
        &self,
        here: &GithubRequest,
        history: &mut History,
        asked: GateQuery<'_>,
    ) -> Result<Option<Parent>, BackendError> {
        let GithubRequest { repository, commit } = here;
        if let Some(parent) = history.parents.get(commit) {
            return Ok(Some(parent.clone()));
        }
        if history.lists == MAX_LISTS {
            return Ok(None);
        }
        // Where nothing was merged in, the first list is long enough.
        let count = if history.lists == 0 { usize::from(self.steps) + 1 } else { LONGEST_LIST };
        let listed = self.github.system.access.history(repository, commit, count, asked.deadline).await?;
        let parent = history.learn(commit, &listed);
        let parent =
            parent.map_err(|why| BackendError::invalid_output(format!("the history of {repository}: {why}")))?;
        Ok(Some(parent))
    }
}

/// What is known of a history.
#[derive(Debug, Default)]
struct History {
    parents: HashMap<Commit, Parent>,
    lists: usize,
}

/// The first parent of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Parent {
    /// This one.
    Commit(Commit),
    /// It has none: there the history begins.
    None,
}

impl History {
    /// Learns from another list, which was asked for from `commit` on; the first parent of that one.
    fn learn(&mut self, commit: &Commit, listed: &[Ancestor]) -> Result<Parent, String> {
        self.lists += 1;
        for ancestor in listed {
            let parent = match ancestor.parents.first() {
                Some(parent) => Parent::Commit(Commit::parse(&parent.sha)?),
                None => Parent::None,
            };
            self.parents.insert(Commit::parse(&ancestor.sha)?, parent);
        }
        let parent = self.parents.get(commit).cloned();
        parent.ok_or_else(|| format!("it does not list {} itself", commit.short()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Commits with their parents, each by its digit.
    type Listed<'a> = &'a [(&'a str, &'a [&'a str])];

    #[test]
    fn only_first_parents_are_known() {
        let sha = |digit: &str| digit.repeat(40);
        let commit = |digit: &str| Commit::parse(&sha(digit)).unwrap();
        let mut history = History::default();
        let mut learn = |from: &str, listed: Listed<'_>| {
            let listed = listed.iter().map(|(one, parents)| {
                let parents: Vec<_> = parents.iter().map(|parent| json!({"sha": sha(parent)})).collect();
                serde_json::from_value(json!({"sha": sha(one), "parents": parents})).unwrap()
            });
            history.learn(&commit(from), &listed.collect::<Vec<Ancestor>>())
        };
        assert_eq!(learn("a", &[("A", &["b", "e"]), ("e", &["f"]), ("b", &["C"])]), Ok(Parent::Commit(commit("b"))));
        assert_eq!(learn("c", &[("c", &[])]), Ok(Parent::None));
        let wrong: [(Listed<'_>, &str); 4] = [
            (&[], "does not list dddddddd itself"),
            (&[("b", &["d"])], "does not list dddddddd itself"),
            (&[("x", &[])], "no commit"),
            (&[("d", &["x"])], "no commit"),
        ];
        for (listed, says) in wrong {
            assert!(learn("d", listed).unwrap_err().contains(says), "{listed:?}");
        }
        assert_eq!((history.parents.get(&commit("e")), history.lists), (Some(&Parent::Commit(commit("f"))), 6));
    }
}
