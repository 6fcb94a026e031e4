//! The routes of a configuration: their keys, the checks of these, and the building of [`engine::route::Route`]s with their matchers, backends and shadows.

mod build;
pub(crate) mod former;
pub(crate) mod matching;
mod shadow;
mod table;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use self::{build::check_deadline, table::RouteTableBuilder};
use self::{former::FormerNames, matching::MatchConfig, shadow::ShadowConfig};
use backend::{BackendConfig, script::CommandConfig};
use domain::units::HumanDuration;
use engine::{cache::CacheConfig, guard::GuardConfig, route::input::InputParameter, shape::Nulls};

/// One route: which calls it takes, who answers them and what the answer looks like.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RouteConfig {
    /// The name, by which `/{name}/api/v1/getparams.execute` goes there directly: lower-case letters,
    /// digits, `-`, `_` and `.`.
    pub(crate) name: String,
    /// Its former name, or several with the last one first. It keeps the gateway's records under these names: answers,
    /// what the guard compares with, held answers and decisions. Leave them here as long as the route exists.
    pub(crate) formerly: Option<FormerNames>,
    /// Which calls to `/api/v1/getparams.execute` it takes. Without it the route is reached by name
    /// only; `match: {}` takes every call.
    #[serde(rename = "match")]
    pub(crate) matches: Option<MatchConfig>,
    /// The parameters that it understands. Without it, any are accepted; with it, others are refused.
    pub(crate) input: Option<Vec<InputParameter>>,
    /// A program that announces more parameters: it prints a JSON list of them, in the words of a Config Management
    /// Plugin. It runs once a minute at most, as the route's script does.
    pub(crate) dynamic_input: Option<CommandConfig>,
    /// Where the answers come from.
    pub(crate) backend: BackendConfig,
    /// Each parameter set as templates over the backend's item and over `params` and `applicationSet`.
    /// Without it, the item is passed on as it is.
    pub(crate) output: Option<IndexMap<String, String>>,
    /// Input parameters that are copied into each parameter set.
    #[serde(default)]
    pub(crate) echo: Vec<String>,
    /// Write numbers as text. Argo CD would print 1000000 as `1e+06`.
    #[serde(default = "default_stringify")]
    pub(crate) stringify: bool,
    /// The treatment of a `null`.
    #[serde(default)]
    pub(crate) nulls: Nulls,
    /// How long answers live.
    #[serde(default)]
    pub(crate) cache: CacheConfig,
    /// The parameters that stay when a commit moves on, such as the branch: the answer to the commit before is the
    /// fallback for one that is not known yet. Without it, each query is a lineage of its own.
    pub(crate) lineage: Option<Vec<String>>,
    /// The losses that are allowed before an answer is held.
    #[serde(default)]
    pub(crate) guard: GuardConfig,
    /// When a call is given up; the server's `deadline` unless set.
    pub(crate) deadline: Option<HumanDuration>,
    /// A second backend, which is called afterwards and compared with `backend`. Callers never get its answers.
    pub(crate) shadow: Option<Box<ShadowConfig>>,
}

const fn default_stringify() -> bool {
    true
}
