//! Walks back from a commit that has not passed to the newest earlier commit that has.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{
    super::{
        CiState, CiVerdict, Gate, GateQuery,
        memory::{Remembered, System},
    },
    Github, GithubRequest,
    documents::Ancestor,
};
use crate::digests::commit::{Commit, CommitError};
use domain::{error::BackendError, generator::Evidence};

/// How many lists of commits one walk reads. Each list adds at least one commit.
const MAX_LISTS: usize = 5;
/// The most commits in one of GitHub's lists.
const MAX_LIST_LENGTH: usize = 100;

/// A gate that checks earlier commits on GitHub while the requested one has not passed.
#[derive(Debug)]
pub(super) struct WalkBack {
    github: Remembered<Github>,
    steps: u8,
}

#[async_trait]
impl Gate for WalkBack {
    async fn check(&self, query: GateQuery<'_>) -> Result<CiVerdict, BackendError> {
        let request = self.github.system.request(query).await?;
        let own = self.github.verdict(request.clone(), query).await?;
        if own.state == CiState::Passed { Ok(own) } else { self.walk_back(&request, own, query).await }
    }

    fn forget(&self) {
        self.github.forget();
    }
}

impl WalkBack {
    /// `github`, walking back at most `steps` commits.
    #[must_use]
    pub(super) const fn new(github: Remembered<Github>, steps: u8) -> Self {
        Self { github, steps }
    }

    /// The verdict on the newest commit before `request` that passed; `own` if there are no more commits.
    ///
    /// Only first parents are followed: a merged-in commit was never the head of the branch.
    ///
    /// # Errors
    /// When the verdict on a commit is unclear, or when none passed and there may be more commits.
    async fn walk_back(
        &self,
        request: &GithubRequest,
        own: CiVerdict,
        query: GateQuery<'_>,
    ) -> Result<CiVerdict, BackendError> {
        let GithubRequest { repository, commit } = request;
        let walk = format!("the commits of {repository} before {}", commit.short());
        let (mut here, mut gone, mut history) = (request.clone(), 0, History::default());
        let unseen = loop {
            let parent = match self.first_parent(&here, &mut history, query).await? {
                Some(Parent::Commit(_)) if gone == self.steps => break Some("raise `walkBack`"),
                Some(Parent::Commit(parent)) => parent,
                Some(Parent::None) => break None,
                None => break Some("merged-in commits fill the lists of commits, and no more lists are read"),
            };
            (here.commit, gone) = (parent, gone + 1);
            let verdict = self.github.verdict(here.clone(), query).await?;
            if verdict.state == CiState::Passed {
                let text = format!("{} passed, {gone} before {}", here.commit.short(), commit.short());
                let mut evidence = own.evidence;
                evidence.push(Evidence::present(walk, text));
                evidence.extend(verdict.evidence);
                return Ok(CiVerdict { is_earlier: true, evidence, ..verdict });
            }
        };
        let mut evidence = own.evidence.clone();
        let Some(unseen) = unseen else {
            evidence.push(Evidence::absent(walk, format!("none of all {gone} passed")));
            return Ok(CiVerdict { evidence, ..own });
        };
        let why = format!(
            "none of the last {gone} commits before {} passed; whether an earlier one did is not known: {unseen}",
            commit.short()
        );
        evidence.push(Evidence::unknown(walk, why.clone()));
        Err(BackendError { evidence, ..BackendError::invalid_output(format!("{repository}: {why}")) })
    }

    /// The first parent of `here`, from the commits listed so far, otherwise from a new list that begins at `here`, which skips
    /// merged-in commits. `None` when the limit of lists is reached.
    async fn first_parent(
        &self,
        here: &GithubRequest,
        history: &mut History,
        query: GateQuery<'_>,
    ) -> Result<Option<Parent>, BackendError> {
        let GithubRequest { repository, commit } = here;
        if let Some(parent) = history.parents.get(commit) {
            return Ok(Some(parent.clone()));
        }
        if history.lists == MAX_LISTS {
            return Ok(None);
        }
        // Without merges, the first list is long enough.
        let count = if history.lists == 0 { usize::from(self.steps) + 1 } else { MAX_LIST_LENGTH };
        let listed = self.github.system.access.history(repository, commit, count, query.deadline).await?;
        let parent = history.learn(commit, &listed);
        let parent =
            parent.map_err(|why| BackendError::invalid_output(format!("the history of {repository}: {why}")))?;
        Ok(Some(parent))
    }
}

/// The commits listed so far.
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
    /// None: the history begins here.
    None,
}

/// Why a list of commits cannot be used.
#[derive(Debug, thiserror::Error)]
enum HistoryError {
    /// It has something that is not a commit.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// It does not have the commit from which it begins; this is the short form of that commit.
    #[error("it does not list {0} itself")]
    Missing(String),
}

impl History {
    /// Adds a list that begins at `commit`, and returns the first parent of `commit`.
    fn learn(&mut self, commit: &Commit, listed: &[Ancestor]) -> Result<Parent, HistoryError> {
        self.lists += 1;
        for ancestor in listed {
            let parent = match ancestor.parents.first() {
                Some(parent) => Parent::Commit(Commit::parse(&parent.sha)?),
                None => Parent::None,
            };
            self.parents.insert(Commit::parse(&ancestor.sha)?, parent);
        }
        let parent = self.parents.get(commit).cloned();
        parent.ok_or_else(|| HistoryError::Missing(commit.short().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Commits with their parents, each by its digit.
    type ListDocument<'a> = &'a [(&'a str, &'a [&'a str])];

    #[test]
    fn only_first_parents_are_known() {
        let sha = |digit: &str| digit.repeat(40);
        let commit = |digit: &str| Commit::parse(&sha(digit)).unwrap();
        let mut history = History::default();
        let mut learn = |from: &str, listed: ListDocument<'_>| {
            let listed = listed.iter().map(|(one, parents)| {
                let parents: Vec<_> = parents.iter().map(|parent| json!({"sha": sha(parent)})).collect();
                serde_json::from_value(json!({"sha": sha(one), "parents": parents})).unwrap()
            });
            history.learn(&commit(from), &listed.collect::<Vec<Ancestor>>()).map_err(|error| error.to_string())
        };
        assert_eq!(learn("a", &[("A", &["b", "e"]), ("e", &["f"]), ("b", &["C"])]), Ok(Parent::Commit(commit("b"))));
        assert_eq!(learn("c", &[("c", &[])]), Ok(Parent::None));
        let wrong: [(ListDocument<'_>, &str); 4] = [
            (&[], "does not list dddddddd itself"),
            (&[("b", &["d"])], "does not list dddddddd itself"),
            (&[("x", &[])], "not a commit"),
            (&[("d", &["x"])], "not a commit"),
        ];
        for (listed, says) in wrong {
            assert!(learn("d", listed).unwrap_err().contains(says), "{listed:?}");
        }
        assert_eq!((history.parents.get(&commit("e")), history.lists), (Some(&Parent::Commit(commit("f"))), 6));
    }
}
