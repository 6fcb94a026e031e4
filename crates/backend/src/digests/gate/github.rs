//! GitHub, and GitHub Enterprise Server: the workflow runs, check runs and commit statuses of exactly one commit.
//!
//! The newest run of each required name counts. A name that is not listed is pending, since the list lags behind a push.
//! Source: the REST API's reference, version 2022-11-28.

mod access;
mod documents;
mod lists;
mod repository;
mod verdict;
mod walk;

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::{
    access::Access,
    repository::GithubRepository,
    verdict::{CheckKind, ListCheck},
    walk::WalkBack,
};
use super::{
    CiVerdict, Gate, GateQuery, SystemConfig,
    api::ForgeApi,
    combined::Rule,
    memory::{Remembered, RequestKey, System},
    pattern::NamePattern,
    remembered,
};
use crate::{
    Building,
    credential::{Credential, github_app},
    digests::commit::Commit,
};
use domain::{error::BackendError, secret::SecretRef};
use lang::template::Template;
use outbound::warn_of_cleartext;

/// What must have passed on GitHub. At least one of `workflows`, `checks` and `statuses` names something, and everything
/// named is required. A name is exact, or a regular expression between slashes: something must match, and every match must
/// have passed.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "GithubGate")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The REST API. For GitHub Enterprise Server `https://ghe.example.com/api/v3`.
    #[serde(default = "default_api")]
    pub api: String,
    /// `owner/name`, a template over `params` and `applicationSet`.
    pub repository: String,
    /// The full commit in request, a template.
    #[serde(default = "default_sha")]
    pub sha: String,
    /// Workflows of GitHub Actions, by file name (`build.yml`), path or display name.
    #[serde(default)]
    pub workflows: Vec<String>,
    /// Check runs, by name: the jobs of GitHub Actions, and the checks of other apps. If several workflows have a job of this
    /// name, the jobs of all these workflows must pass.
    #[serde(default)]
    pub checks: Vec<String>,
    /// Commit statuses, by context.
    #[serde(default)]
    pub statuses: Vec<String>,
    /// Only workflow runs of these events count, such as `push`. Without it those of any event.
    #[serde(default)]
    pub events: Vec<String>,
    /// Conclusions that count as success besides `success`.
    #[serde(default)]
    pub accept: Vec<Conclusion>,
    /// A token that may read the repository's actions, checks and statuses.
    #[serde(default)]
    pub token: Option<SecretRef>,
    /// A GitHub App in place of a token.
    #[serde(default)]
    pub app: Option<github_app::Config>,
    /// A PEM file with certificates that are trusted besides the system's, relative to the configuration file.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// While the commit has not passed, take the newest of this many earlier commits that has passed, along first parents:
    /// from 1 to 50.
    #[serde(default)]
    pub walk_back: Option<u8>,
}

/// How a run may end with neither success nor failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Conclusion {
    /// A condition kept it from running.
    Skipped,
    /// It reports neither success nor failure.
    Neutral,
}

fn default_api() -> String {
    "https://api.github.com".to_owned()
}

fn default_sha() -> String {
    "{{ params.head_sha }}".to_owned()
}

impl SystemConfig for Config {
    const ACCESS_KEYS: &'static [&'static str] = &["token", "app", "ca", "walkBack"];

    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Gate>> {
        let github = Github::build(self, building)?;
        let clock = building.context.clock;
        Some(match self.walk_back {
            Some(steps) => Arc::new(WalkBack::new(Remembered::new(github, clock), steps)),
            None => remembered(github, clock),
        })
    }

    fn walks_back(&self) -> bool {
        self.walk_back.is_some()
    }
}

/// The gate, with everything parsed.
#[derive(Debug)]
pub struct Github {
    access: Access,
    repository: Template,
    sha: Template,
    workflows: Vec<NamePattern>,
    checks: Vec<NamePattern>,
    statuses: Vec<NamePattern>,
    events: Vec<String>,
    accept: Vec<Conclusion>,
}

impl Github {
    /// Parses templates and names, and reads the App's key once.
    pub fn build(config: &Config, building: &mut Building<'_>) -> Option<Self> {
        let api = ForgeApi::build(&config.api, config.ca.as_ref(), building);
        let mut at = building.key("repository");
        let repository = at.template(&config.repository);
        if let Some(repository) = repository.as_ref().filter(|template| template.fixed_prefix() == template.source()) {
            at.note(GithubRepository::parse(repository.source()));
        }
        let sha = building.key("sha").template(&config.sha);
        let Building { path, problems, .. } = &mut *building;
        let workflows = NamePattern::parse_all(&config.workflows, &path.key("workflows"), problems);
        let checks = NamePattern::parse_all(&config.checks, &path.key("checks"), problems);
        let statuses = NamePattern::parse_all(&config.statuses, &path.key("statuses"), problems);
        if config.workflows.is_empty() && config.checks.is_empty() && config.statuses.is_empty() {
            problems.error_with_help(
                path,
                "nothing is required, so no commit could pass",
                "name what must succeed: `workflows: [build.yml]`, `checks: [\"build (linux)\"]` or `statuses: [ci/build]`",
            );
        }
        if !config.events.is_empty() && config.workflows.is_empty() {
            problems.warning(
                &path.key("events"),
                "only workflow runs have an event, and no workflow is named",
                "name `workflows`, or leave `events` out",
            );
        }
        if config.walk_back.is_some_and(|steps| !(1..=50).contains(&steps)) {
            problems.error(&path.key("walkBack"), "it goes back from 1 to 50 commits");
        }
        let credential = credential(config, api.as_ref(), building);
        if let Some(api) = api.as_ref().filter(|_| credential.is_some()) {
            warn_of_cleartext(&api.base, &building.path.key("api"), building.problems);
        }
        Some(Self {
            access: Access::new(api?, credential),
            repository: repository?,
            sha: sha?,
            workflows,
            checks,
            statuses,
            events: config.events.clone(),
            accept: config.accept.clone(),
        })
    }
}

/// A commit of a repository.
#[derive(Debug, Clone)]
pub struct GithubRequest {
    repository: GithubRepository,
    commit: Commit,
}

#[async_trait]
impl System for Github {
    type Request = GithubRequest;

    async fn request(&self, query: GateQuery<'_>) -> Result<GithubRequest, BackendError> {
        let invalid = |what: &'static str| move |error: BackendError| error.within(what);
        let repository = query.context.render(&self.repository).await;
        let repository =
            repository.and_then(|text| GithubRepository::parse(&text).map_err(|error| error.to_string().into()));
        let repository =
            repository.map_err(|error| error.within("repository").into_backend_error(BackendError::invalid_input))?;
        let commit = Commit::render(&self.sha, query.context).await.map_err(invalid("sha"))?;
        Ok(GithubRequest { repository, commit })
    }

    fn write_key(GithubRequest { repository, commit }: &GithubRequest, key: &mut RequestKey) {
        key.add(&repository.owner);
        key.add(&repository.name);
        key.add(commit.as_str());
    }

    /// Asks for everything that is required of the commit.
    async fn check(&self, request: &GithubRequest, deadline: Instant) -> Result<CiVerdict, BackendError> {
        let GithubRequest { repository, commit } = request;
        let required = [
            (CheckKind::Workflow, &self.workflows),
            (CheckKind::Check, &self.checks),
            (CheckKind::Status, &self.statuses),
        ];
        let lists = required.into_iter().filter(|(_, names)| !names.is_empty()).map(async |(kind, names)| {
            let entries = match kind {
                CheckKind::Workflow => self.access.runs(repository, commit, &self.events, deadline).await,
                CheckKind::Check => self.access.check_runs(repository, commit, names, deadline).await,
                CheckKind::Status => self.access.statuses(repository, commit, deadline).await,
            };
            match entries {
                Ok(entries) => ListCheck { kind, repository, commit, accept: &self.accept }.verdicts(names, &entries),
                Err(error) => vec![Err(error)],
            }
        });
        Rule::All.decide(join_all(lists).await.into_iter().flatten().collect())
    }

    fn is_low(&self, _: &GithubRequest) -> bool {
        self.access.is_low()
    }
}

fn credential(config: &Config, api: Option<&ForgeApi>, building: &mut Building<'_>) -> Option<Credential> {
    match (&config.token, &config.app) {
        (Some(_), Some(_)) => {
            building.error_with_help("there are both a `token` and an `app`", "keep one of them");
            None
        }
        (Some(token), None) => Some(Credential::bearer(token, &mut building.key("token"))),
        (None, Some(app)) => {
            let mut building = building.key("app");
            if app.api.is_some() {
                building.key("api").error("the App uses the gate's own `api`; leave this key out");
            }
            Some(Credential::github_app(app, &api?.base, api?.client(), &mut building))
        }
        (None, None) => {
            building.warning(
                "without a credential GitHub answers 60 requests an hour, and none about private repositories",
                "write `token: { file: … }`, or `app: { id: …, installation: …, privateKey: { file: … } }`",
            );
            None
        }
    }
}
