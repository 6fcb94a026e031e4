//! The parts of GitHub's documents that are read.

use std::collections::HashMap;

use serde::{Deserialize, de::DeserializeOwned};

use super::verdict::CheckEntry;

/// A page of one of GitHub's lists.
pub(super) trait ListDocument: DeserializeOwned {
    /// The type of its items.
    type Item;

    /// The length of the whole list, and the items on this page by their ids.
    fn split(self) -> (u64, Vec<(u64, Self::Item)>);
}

#[derive(Deserialize)]
pub(super) struct WorkflowRuns {
    total_count: u64,
    workflow_runs: Vec<WorkflowRun>,
}

#[derive(Deserialize)]
pub(super) struct WorkflowRun {
    id: u64,
    name: Option<String>,
    path: String,
    pub(super) event: String,
    pub(super) head_sha: String,
    status: Option<String>,
    conclusion: Option<String>,
    #[serde(rename = "run_attempt")]
    attempt: Option<u64>,
    html_url: Option<String>,
    updated_at: Option<String>,
    /// The suite with its jobs as check runs. All attempts of a run share one suite.
    pub(super) check_suite_id: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct CheckRuns {
    total_count: u64,
    check_runs: Vec<CheckRun>,
}

#[derive(Deserialize)]
pub(super) struct CheckRun {
    id: u64,
    pub(super) name: String,
    pub(super) head_sha: String,
    status: Option<String>,
    conclusion: Option<String>,
    html_url: Option<String>,
    completed_at: Option<String>,
    check_suite: Option<CheckSuite>,
}

#[derive(Deserialize)]
struct CheckSuite {
    id: u64,
}

#[derive(Deserialize)]
pub(super) struct CombinedStatus {
    sha: String,
    total_count: u64,
    statuses: Vec<GithubStatus>,
}

#[derive(Deserialize)]
pub(super) struct GithubStatus {
    id: u64,
    context: String,
    state: String,
    target_url: Option<String>,
    updated_at: Option<String>,
}

/// One commit of a history.
#[derive(Deserialize)]
pub(super) struct Ancestor {
    pub(super) sha: String,
    pub(super) parents: Vec<Parent>,
}

#[derive(Deserialize)]
pub(super) struct Parent {
    pub(super) sha: String,
}

impl ListDocument for WorkflowRuns {
    type Item = WorkflowRun;

    fn split(self) -> (u64, Vec<(u64, WorkflowRun)>) {
        (self.total_count, self.workflow_runs.into_iter().map(|run| (run.id, run)).collect())
    }
}

impl ListDocument for CheckRuns {
    type Item = CheckRun;

    fn split(self) -> (u64, Vec<(u64, CheckRun)>) {
        (self.total_count, self.check_runs.into_iter().map(|run| (run.id, run)).collect())
    }
}

impl ListDocument for CombinedStatus {
    type Item = (String, GithubStatus);

    fn split(self) -> (u64, Vec<(u64, Self::Item)>) {
        let of = |status: GithubStatus| (status.id, (self.sha.clone(), status));
        (self.total_count, self.statuses.into_iter().map(of).collect())
    }
}

impl WorkflowRun {
    /// The workflow's file. For a file of another branch or repository, GitHub adds `@` and its origin.
    pub(super) fn workflow(&self) -> &str {
        self.path.split('@').next().unwrap_or_default()
    }
}

impl CheckRun {
    /// Its check suite.
    pub(super) fn suite(&self) -> Option<u64> {
        self.check_suite.as_ref().map(|suite| suite.id)
    }

    /// The run of a check that shares its name with other checks. `workflows` has the workflow of each suite.
    pub(super) fn among_namesakes(self, workflows: &HashMap<u64, String>) -> CheckEntry {
        let whose = match self.suite().map(|suite| (suite, workflows.get(&suite))) {
            Some((_, Some(workflow))) => format!("of {workflow}"),
            Some((suite, None)) => format!("of check suite {suite}"),
            None => "of no check suite".to_owned(),
        };
        let entry = CheckEntry::from(self);
        CheckEntry { group: format!("{} {whose}", entry.group), ..entry }
    }
}

impl From<WorkflowRun> for CheckEntry {
    fn from(run: WorkflowRun) -> Self {
        let path = run.workflow().to_owned();
        let file = path.rsplit('/').next().unwrap_or_default().to_owned();
        let ended_at = run.updated_at.filter(|_| run.status.as_deref() == Some("completed"));
        Self {
            group: path.clone(),
            names: [path, file].into_iter().chain(run.name).collect(),
            id: run.id,
            attempt: run.attempt.unwrap_or(1),
            status: run.status,
            conclusion: run.conclusion,
            url: run.html_url,
            ended_at,
        }
    }
}

impl From<CheckRun> for CheckEntry {
    fn from(run: CheckRun) -> Self {
        Self {
            group: run.name.clone(),
            names: vec![run.name],
            id: run.id,
            attempt: 1,
            status: run.status,
            conclusion: run.conclusion,
            url: run.html_url,
            ended_at: run.completed_at,
        }
    }
}

impl From<GithubStatus> for CheckEntry {
    fn from(status: GithubStatus) -> Self {
        let is_pending = status.state == "pending";
        Self {
            group: status.context.clone(),
            names: vec![status.context],
            id: status.id,
            attempt: 1,
            status: Some(if is_pending { "pending" } else { "completed" }.to_owned()),
            conclusion: Some(status.state).filter(|_| !is_pending),
            url: status.target_url,
            ended_at: status.updated_at.filter(|_| !is_pending),
        }
    }
}
