//! CI's word on a commit: passed, pending or failed. What CI does not say clearly is an error, and what it says of no
//! run at all is *pending*: the lists of CI systems lag.
//!
//! To add a system: a file with its `Config`, `build` and `impl System`, and one line in [`GateConfig`].

pub(crate) mod address;
pub(crate) mod api;
pub mod bitbucket;
pub(crate) mod combined;
pub(crate) mod forge;
pub(crate) mod generic;
pub mod gitea;
pub(crate) mod github;
pub mod gitlab;
pub mod memory;
pub(crate) mod paging;
pub(crate) mod pattern;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use self::{
    combined::{Combined, Rule},
    memory::{Remembered, System},
};
use super::commit::Commit;
use crate::{
    backend::BuildContext,
    domain::{
        error::BackendError,
        generator::{Evidence, Parameters},
        problem::{Path, Problems},
    },
    lang::evaluator::Context,
};

/// Which system says whether a commit passed: one, or several together.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GateConfig {
    /// GitHub: workflows, checks and statuses.
    Github(github::Config),
    /// GitLab: pipelines.
    Gitlab(gitlab::Config),
    /// Gitea or Forgejo: commit statuses.
    Gitea(gitea::Config),
    /// Bitbucket Cloud: build statuses.
    Bitbucket(bitbucket::Config),
    /// Any JSON API, read by an expression.
    Http(generic::Config),
    /// All of these gates must have passed.
    All(Vec<GateConfig>),
    /// One of these gates must have passed.
    Any(Vec<GateConfig>),
}

/// One question to a gate.
#[derive(Debug, Clone, Copy)]
pub struct GateQuery<'a> {
    /// `params` and `applicationSet`, for templates.
    pub context: &'a Context,
    /// The parameters, for expressions.
    pub parameters: &'a Arc<Parameters>,
    /// When the answer must be here.
    pub deadline: Instant,
    /// Whether a remembered ruling will do. If not, CI is asked.
    pub may_reuse: bool,
}

/// What CI says of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// In one word.
    pub state: RulingState,
    /// The commit that it is about, where the gate knows.
    pub commit: Option<Commit>,
    /// Whether that is an earlier commit than the one asked about, to which the gate walked back.
    pub is_earlier: bool,
    /// What was asked and answered: *present* for what passed, *absent* for what did not or not yet.
    pub evidence: Vec<Evidence>,
    /// The page of the run that decided.
    pub run_url: Option<String>,
    /// When that run ended, as CI writes it (RFC 3339).
    pub built_at: Option<String>,
}

/// CI's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RulingState {
    /// All that is required succeeded.
    Passed,
    /// Something required runs, waits or is not there yet.
    Pending,
    /// Something required failed, and nothing runs that could change that.
    Failed,
}

impl RulingState {
    /// The word itself.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Pending => "pending",
            Self::Failed => "failed",
        }
    }
}

/// Who can say whether a commit passed: a [`System`], or several.
#[async_trait]
pub trait Gate: Send + Sync + fmt::Debug {
    /// Asks for CI's word. Read only.
    ///
    /// # Errors
    /// When the parameters name no full commit, or CI gives no clear answer.
    async fn ask(&self, asked: GateQuery<'_>) -> Result<Ruling, BackendError>;

    /// Whether what is asked depends on the ApplicationSet's name.
    fn reads_application_set(&self) -> bool;

    /// Forgets all rulings: something happened that they do not know.
    fn forget(&self) {}
}

impl GateConfig {
    /// The kind's name, which is its key in the configuration.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Github(_) => "github",
            Self::Gitlab(_) => "gitlab",
            Self::Gitea(_) => "gitea",
            Self::Bitbucket(_) => "bitbucket",
            Self::Http(_) => "http",
            Self::All(_) => "all",
            Self::Any(_) => "any",
        }
    }

    /// Whether its word may go to an earlier commit than the one that is asked about.
    #[must_use]
    pub(crate) fn walks_back(&self) -> bool {
        match self {
            Self::Github(config) => config.walk_back.is_some(),
            Self::All(members) | Self::Any(members) => members.iter().any(Self::walks_back),
            Self::Gitlab(_) | Self::Gitea(_) | Self::Bitbucket(_) | Self::Http(_) => false,
        }
    }

    /// Whether it says which commit its word is about.
    #[must_use]
    pub(crate) fn knows_commit(&self) -> bool {
        match self {
            Self::Http(config) => config.sha.is_some(),
            Self::All(members) => members.iter().any(Self::knows_commit),
            Self::Any(members) => members.iter().all(Self::knows_commit),
            Self::Github(_) | Self::Gitlab(_) | Self::Gitea(_) | Self::Bitbucket(_) => true,
        }
    }

    /// The gate, or `None` with what is wrong noted in `problems` below `path`.
    pub fn build(&self, around: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Gate>> {
        let path = &path.key(self.kind());
        Some(match self {
            Self::Github(config) => {
                let github = Remembered::new(github::Github::build(config, around, path, problems)?, around.clock);
                match config.walk_back {
                    Some(steps) => Arc::new(github::WalkBack::new(github, steps)),
                    None => Arc::new(github),
                }
            }
            Self::Gitlab(config) => remembered(gitlab::Gitlab::build(config, around, path, problems)?, around),
            Self::Gitea(config) => remembered(gitea::Gitea::build(config, around, path, problems)?, around),
            Self::Bitbucket(config) => remembered(bitbucket::Bitbucket::build(config, around, path, problems)?, around),
            Self::Http(config) => remembered(generic::Generic::build(config, around, path, problems)?, around),
            Self::All(members) => Arc::new(Combined::build(Rule::All, members, around, path, problems)?),
            Self::Any(members) => Arc::new(Combined::build(Rule::Any, members, around, path, problems)?),
        })
    }
}

fn remembered(system: impl System, around: BuildContext<'_>) -> Arc<dyn Gate> {
    Arc::new(Remembered::new(system, around.clock))
}
