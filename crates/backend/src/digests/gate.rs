//! CI's verdict on a commit: passed, pending or failed. An unclear answer is an error. A commit without a run is *pending*,
//! since the lists of CI systems lag.
//!
//! To add a system: its module (`Config`, `impl SystemConfig`, `impl System`), and one entry in `ci_systems!` below. Tests
//! name what is then still missing.

pub mod address;
pub mod api;
pub mod bitbucket;
pub mod combined;
pub mod forge;
pub mod generic;
pub mod gitea;
pub mod github;
pub mod gitlab;
pub mod memory;
pub mod paging;
pub mod pattern;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use self::{
    combined::{Combined, Rule},
    memory::{Remembered, System},
};
use super::commit::Commit;
use crate::Building;
use domain::{
    clock::Clock,
    error::BackendError,
    generator::{Evidence, Parameters},
};
use lang::evaluator::Context;

/// A CI system that a gate can call.
#[derive(Debug)]
pub struct CiSystem {
    /// Its key in the configuration.
    pub name: &'static str,
    /// Its module, of which `tests/it/gates/` has one too.
    pub module: &'static str,
    /// [`SystemConfig::ACCESS_KEYS`].
    pub access_keys: &'static [&'static str],
}

/// The configuration of one CI system.
pub trait SystemConfig {
    /// The keys that say how the system is reached, or how far to walk back, and not what must have passed. They are left
    /// out of the configuration's fingerprint: a new token must not invalidate the last build.
    const ACCESS_KEYS: &'static [&'static str];

    /// The gate, or `None` with its problems noted.
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Gate>>;

    /// Whether the verdict may be about an earlier commit than the requested one.
    fn walks_back(&self) -> bool {
        false
    }

    /// Whether the verdict names its commit.
    fn names_commit(&self) -> bool {
        true
    }
}

/// Makes [`GateConfig`], its methods and [`CI_SYSTEMS`] from one list of CI systems: the key in the configuration, the
/// variant, and the module with its `Config`.
macro_rules! ci_systems {
    ($($(#[$doc:meta])* $name:literal => $variant:ident($module:ident),)+) => {
        /// Which system says whether a commit passed: one, or several together.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub enum GateConfig {
            $($(#[$doc])* #[serde(rename = $name)] $variant($module::Config),)+
            /// All of these gates must have passed.
            All(Vec<GateConfig>),
            /// One of these gates must have passed.
            Any(Vec<GateConfig>),
        }

        /// All CI systems.
        pub const CI_SYSTEMS: &[CiSystem] = &[
            $(CiSystem {
                name: $name,
                module: stringify!($module),
                access_keys: <$module::Config as SystemConfig>::ACCESS_KEYS,
            },)+
        ];

        impl GateConfig {
            /// The kind's name, which is its key in the configuration.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                    Self::All(_) => "all",
                    Self::Any(_) => "any",
                }
            }

            /// Whether the verdict may be about an earlier commit than the requested one.
            #[must_use]
            pub(crate) fn walks_back(&self) -> bool {
                match self {
                    $(Self::$variant(config) => config.walks_back(),)+
                    Self::All(members) | Self::Any(members) => members.iter().any(Self::walks_back),
                }
            }

            /// Whether the verdict names its commit.
            #[must_use]
            pub(crate) fn names_commit(&self) -> bool {
                match self {
                    $(Self::$variant(config) => config.names_commit(),)+
                    Self::All(members) => members.iter().any(Self::names_commit),
                    Self::Any(members) => members.iter().all(Self::names_commit),
                }
            }

            /// The gate, or `None` with its problems noted.
            pub fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Gate>> {
                let building = &mut building.key(self.kind());
                match self {
                    $(Self::$variant(config) => SystemConfig::build(config, building),)+
                    Self::All(members) => Some(Arc::new(Combined::build(Rule::All, members, building)?)),
                    Self::Any(members) => Some(Arc::new(Combined::build(Rule::Any, members, building)?)),
                }
            }
        }
    };
}

ci_systems! {
    /// GitHub: workflows, checks and statuses.
    "github" => Github(github),
    /// GitLab: pipelines.
    "gitlab" => Gitlab(gitlab),
    /// Gitea or Forgejo: commit statuses.
    "gitea" => Gitea(gitea),
    /// Bitbucket Cloud: build statuses.
    "bitbucket" => Bitbucket(bitbucket),
    /// Any JSON API, read by an expression.
    "http" => Http(generic),
}

/// One query to a gate.
#[derive(Debug, Clone, Copy)]
pub struct GateQuery<'a> {
    /// `params` and `applicationSet`, for templates.
    pub context: &'a Context,
    /// The parameters, for expressions.
    pub parameters: &'a Arc<Parameters>,
    /// The list's item below `each`, for expressions.
    pub item: Option<&'a Arc<Value>>,
    /// When the answer must be here.
    pub deadline: Instant,
    /// Whether a remembered verdict may be used. Otherwise CI is called.
    pub may_reuse: bool,
}

/// CI's state of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CiVerdict {
    /// The verdict.
    pub state: CiState,
    /// The commit, if the gate has it.
    pub commit: Option<Commit>,
    /// Whether the gate walked back to an earlier commit than the requested one.
    pub is_earlier: bool,
    /// The queries and the answers: *present* for a part that passed, *absent* for one that failed or is pending.
    pub evidence: Vec<Evidence>,
    /// The page of the deciding run.
    pub run_url: Option<String>,
    /// When that run ended, as CI writes it (RFC 3339).
    pub built_at: Option<String>,
}

/// CI's verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CiState {
    /// Everything that is required succeeded.
    Passed,
    /// Something required runs, waits or does not exist yet.
    Pending,
    /// Something required failed, and no run could change that any more.
    Failed,
}

impl CiState {
    /// The word for it in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Pending => "pending",
            Self::Failed => "failed",
        }
    }
}

/// Checks whether a commit passed, by one [`System`] or several.
#[async_trait]
pub trait Gate: Send + Sync + fmt::Debug {
    /// Gets the verdict of CI, without changing anything.
    ///
    /// # Errors
    /// When the parameters name no full commit, or CI gives no clear answer.
    async fn check(&self, query: GateQuery<'_>) -> Result<CiVerdict, BackendError>;

    /// Forgets all remembered verdicts.
    fn forget(&self) {}
}

/// A gate that calls `system`, and remembers its verdicts.
fn remembered(system: impl System, clock: &Arc<dyn Clock>) -> Arc<dyn Gate> {
    Arc::new(Remembered::new(system, clock))
}
