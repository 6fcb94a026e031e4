//! GitHub's documents, as far as they are read.

use std::collections::HashMap;

use serde::{Deserialize, de::DeserializeOwned};

use super::verdict::Thing;

/// A page of a list, under whichever name it has.
pub(super) trait Listed: DeserializeOwned {
    /// What is listed.
    type Item;

    /// How many things the whole list has, and those on this page by their ids.
    fn split(self) -> (u64, Vec<(u64, Self::Item)>);
}

#[derive(Deserialize)]
pub(super) struct Runs {
    total_count: u64,
    workflow_runs: Vec<Run>,
}

#[derive(Deserialize)]
pub(super) struct Run {
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
    /// Where its jobs are check runs; all attempts of a run have one suite.
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
    statuses: Vec<Status>,
}

#[derive(Deserialize)]
pub(super) struct Status {
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

impl Listed for Runs {
    type Item = Run;

    fn split(self) -> (u64, Vec<(u64, Run)>) {
        (self.total_count, self.workflow_runs.into_iter().map(|run| (run.id, run)).collect())
    }
}

impl Listed for CheckRuns {
    type Item = CheckRun;

    fn split(self) -> (u64, Vec<(u64, CheckRun)>) {
        (self.total_count, self.check_runs.into_iter().map(|run| (run.id, run)).collect())
    }
}

impl Listed for CombinedStatus {
    type Item = (String, Status);

    fn split(self) -> (u64, Vec<(u64, Self::Item)>) {
        let of = |status: Status| (status.id, (self.sha.clone(), status));
        (self.total_count, self.statuses.into_iter().map(of).collect())
    }
}

impl Run {
    /// The workflow's file. One of another branch or repository is written with `@` and where it is from.
    pub(super) fn workflow(&self) -> &str {
        self.path.split('@').next().unwrap_or_default()
    }
}

impl CheckRun {
    /// The check suite that it is in.
    pub(super) fn suite(&self) -> Option<u64> {
        self.check_suite.as_ref().map(|suite| suite.id)
    }

    /// The run as one of a check that shares its name with others, where `workflows` are those of the suites.
    pub(super) fn among_namesakes(self, workflows: &HashMap<u64, String>) -> Thing {
        let whose = match self.suite().map(|suite| (suite, workflows.get(&suite))) {
            Some((_, Some(workflow))) => format!("of {workflow}"),
            Some((suite, None)) => format!("of check suite {suite}"),
            None => "of no check suite".to_owned(),
        };
        let thing = Thing::from(self);
        Thing { group: format!("{} {whose}", thing.group), ..thing }
    }
}

impl From<Run> for Thing {
    fn from(run: Run) -> Self {
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

impl From<CheckRun> for Thing {
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

impl From<Status> for Thing {
    fn from(status: Status) -> Self {
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
