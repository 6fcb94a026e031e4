//! GitHub's lists about a commit. All pages are read, or the list is an error (invariant I3).

use std::collections::{HashMap, HashSet};

use reqwest::Url;
use tokio::time::Instant;

use super::{
    super::{
        address::follow_header,
        api::document,
        paging::{ListPage, list},
        pattern::NamePattern,
    },
    access::Access,
    documents::{Ancestor, CheckRun, CheckRuns, CombinedStatus, ListDocument, WorkflowRun, WorkflowRuns},
    repository::GithubRepository,
    verdict::CheckEntry,
};
use crate::{digests::commit::Commit, total};
use domain::error::BackendError;
use outbound::Reply;

impl Access {
    /// The workflow runs of `commit` for one of `events`, or for any event if that is empty.
    pub(super) async fn runs(
        &self,
        repository: &GithubRepository,
        commit: &Commit,
        events: &[String],
        deadline: Instant,
    ) -> Result<Vec<CheckEntry>, BackendError> {
        let mut runs = self.all_runs(repository, commit, deadline).await?;
        runs.retain(|run| events.is_empty() || events.iter().any(|event| event.eq_ignore_ascii_case(&run.event)));
        Ok(runs.into_iter().map(CheckEntry::from).collect())
    }

    /// The newest check runs of `commit` whose name matches one of `names`.
    ///
    /// Jobs of several workflows may share a name, and one workflow may have run several times. A check run does not say
    /// which case it is, and another workflow's success must not hide a failure. So if a name is in several check suites,
    /// the workflow runs are read as well: they name the workflow of each suite.
    pub(super) async fn check_runs(
        &self,
        repository: &GithubRepository,
        commit: &Commit,
        names: &[NamePattern],
        deadline: Instant,
    ) -> Result<Vec<CheckEntry>, BackendError> {
        let (segments, query) =
            (["commits", commit.as_str(), "check-runs"], [("filter", "latest"), ("per_page", "100")]);
        let mut runs = self.all::<CheckRuns>(repository, &segments, &query, deadline).await?;
        // The check reports a name in another case as misspelt.
        let is_named = |name: &NamePattern, run: &CheckRun| {
            name.matches(&run.name) || name.misspelt([&*run.name].into_iter()).is_some()
        };
        runs.retain(|run| is(commit, &run.head_sha) && names.iter().any(|name| is_named(name, run)));
        let shared = shared_names(&runs);
        if shared.is_empty() {
            return Ok(runs.into_iter().map(CheckEntry::from).collect());
        }
        let workflows = self.all_runs(repository, commit, deadline).await;
        let workflows = workflows.map_err(|error| error.within("the workflows of checks that have the same name"))?;
        let of_suite = |run: &WorkflowRun| Some((run.check_suite_id?, run.workflow().to_owned()));
        let workflows = workflows.iter().filter_map(of_suite).collect();
        let entry = |run: CheckRun| {
            if shared.contains(&run.name) { run.among_namesakes(&workflows) } else { CheckEntry::from(run) }
        };
        Ok(runs.into_iter().map(entry).collect())
    }

    async fn all_runs(
        &self,
        repository: &GithubRepository,
        commit: &Commit,
        deadline: Instant,
    ) -> Result<Vec<WorkflowRun>, BackendError> {
        let query = [("head_sha", commit.as_str()), ("exclude_pull_requests", "true"), ("per_page", "100")];
        let mut runs = self.all::<WorkflowRuns>(repository, &["actions", "runs"], &query, deadline).await?;
        runs.retain(|run| is(commit, &run.head_sha));
        Ok(runs)
    }

    /// The newest status of each context of `commit`.
    pub(super) async fn statuses(
        &self,
        repository: &GithubRepository,
        commit: &Commit,
        deadline: Instant,
    ) -> Result<Vec<CheckEntry>, BackendError> {
        let segments = ["commits", commit.as_str(), "status"];
        let statuses = self.all::<CombinedStatus>(repository, &segments, &[("per_page", "100")], deadline).await?;
        if let Some((other, _)) = statuses.iter().find(|(sha, _)| !is(commit, sha)) {
            return Err(BackendError::invalid_output(format!(
                "GitHub answers about the commit `{}` to a request about {}",
                other.chars().take(64).collect::<String>().escape_debug(),
                commit.short()
            )));
        }
        Ok(statuses.into_iter().map(|(_, status)| CheckEntry::from(status)).collect())
    }

    /// The newest `count` commits of the history of `commit`, which comes first.
    pub(super) async fn history(
        &self,
        repository: &GithubRepository,
        commit: &Commit,
        count: usize,
        deadline: Instant,
    ) -> Result<Vec<Ancestor>, BackendError> {
        let count = count.to_string();
        let query = [("sha", commit.as_str()), ("per_page", &count)];
        let url = self.api.url(&["repos", &repository.owner, &repository.name, "commits"], &query);
        document(&self.get(url, deadline).await?)
    }

    async fn all<P: ListDocument>(
        &self,
        repository: &GithubRepository,
        segments: &[&str],
        query: &[(&str, &str)],
        deadline: Instant,
    ) -> Result<Vec<P::Item>, BackendError> {
        let mut path = vec!["repos", &repository.owner, &repository.name];
        path.extend(segments);
        let first = self.api.url(&path, query);
        let tail = segments.join("/");
        let (path, mut totals) = (first.path().to_owned(), Vec::new());
        let continues = |next: &str| next == path || is_by_number(next, self.api.path(), &tail);
        let read = |reply: &Reply, from: &Url| {
            let (total, items) = document::<P>(reply)?.split();
            totals.push(total);
            let next = follow_header(&reply.headers, from, continues)?;
            Ok(ListPage { items, next })
        };
        let (mut items, _) = list(first, |url| self.get(url, deadline), read).await?;
        // An item may be on two pages: new items push it to the next page while the pages are read.
        items.sort_by_key(|(id, _)| *id);
        let distinct = items.chunk_by(|(one, _), (other, _)| one == other).count();
        total::check(&totals, distinct).map_err(|error| error.within(format_args!("GET {path}")))?;
        Ok(items.into_iter().map(|(_, item)| item).collect())
    }
}

/// The names that occur in several check suites.
fn shared_names(runs: &[CheckRun]) -> HashSet<String> {
    let (mut suites, mut shared) = (HashMap::new(), HashSet::new());
    for run in runs {
        if *suites.entry(&*run.name).or_insert_with(|| run.suite()) != run.suite() {
            shared.insert(run.name.clone());
        }
    }
    shared
}

/// Whether `sha` is `commit`, ignoring case.
fn is(commit: &Commit, sha: &str) -> bool {
    commit.as_str().eq_ignore_ascii_case(sha)
}

/// Whether `path` is the list `tail` of a repository by number, as GitHub writes it in links.
fn is_by_number(path: &str, api: &str, tail: &str) -> bool {
    let number = path.strip_prefix(api).and_then(|path| path.strip_prefix("/repositories/"));
    let rest = number.and_then(|path| path.split_once('/'));
    rest.is_some_and(|(number, rest)| number.bytes().all(|digit| digit.is_ascii_digit()) && rest == tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_is_owner_and_name() {
        assert_eq!(GithubRepository::parse("org/repo.js").unwrap().to_string(), "org/repo.js");
        for bad in ["", "org", "org/", "/repo", "org/repo/x", "org/..", "./x", "org/a b", "org/a?b", "o%2f/x"] {
            assert!(GithubRepository::parse(bad).unwrap_err().to_string().contains("owner/name"), "{bad}");
        }
    }

    #[test]
    fn a_list_goes_on_under_the_repositorys_number() {
        for (path, api, continues) in [
            ("/repositories/1296269/actions/runs", "", true),
            ("/api/v3/repositories/1296269/actions/runs", "/api/v3", true),
            ("/repositories/1296269/actions/runs", "/api/v3", false),
            ("/repositories/1296269/issues", "", false),
            ("/repositories/x/actions/runs", "", false),
            ("/repos/org/other/actions/runs", "", false),
        ] {
            assert_eq!(is_by_number(path, api, "actions/runs"), continues, "{path}");
        }
    }
}
