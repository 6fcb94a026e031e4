//! The settings of a plugin: the keys of routes and of the `script` backend.

use std::{collections::BTreeMap, path::PathBuf};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::routes::{former::FormerNames, matching::MatchConfig};
use backend::script::{self, AllowConfig, CommandConfig, LimitsConfig, Mode, Protocol, WorkerConfig};
use domain::{
    secret::TextOrSecret,
    units::{ByteSize, HumanDuration},
};
use engine::{cache::CacheConfig, guard::GuardConfig, shape::Nulls};
use launcher::Network;

/// The settings that only a `GeneratorPlugin` has.
pub(crate) const OF_GENERATORS: [&str; 2] = ["mode", "worker"];
/// The settings that only a `ConfigManagementPlugin` has.
pub(crate) const OF_CONFIG_MANAGEMENT: [&str; 3] = ["folder", "maxSize", "match"];

/// How a plugin of the kind `ConfigManagementPlugin` runs, and the form of its answers. The `plugin.yaml` of a `GeneratorPlugin` has the same
/// keys under `spec`, with `mode` and `worker`, but without `folder`, `maxSize`, `match` and `parameters`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[schemars(rename = "PluginSource")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Settings {
    /// The folder on which the plugin works. Each run gets a fresh copy of it.
    pub(crate) folder: Option<PathBuf>,
    /// The largest size of the folder; 64 MiB unless set.
    pub(crate) max_size: Option<ByteSize>,
    /// Which calls it accepts if no route is named, in addition to its `discover`.
    #[serde(rename = "match")]
    pub(crate) matches: Option<MatchConfig>,
    /// As in the `script` backend: a CEL expression over `items` and `params` that gives the list of objects.
    pub(crate) parameters: Option<String>,
    /// As in the `script` backend; for a `GeneratorPlugin` only.
    #[schemars(skip)]
    pub(crate) mode: Option<Mode>,
    /// As in the `script` backend; for a `GeneratorPlugin` only.
    #[schemars(skip)]
    pub(crate) worker: Option<WorkerConfig>,
    /// As in the `script` backend; `yaml` unless set.
    pub(crate) protocol: Option<Protocol>,
    /// As in the `script` backend.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, TextOrSecret>,
    /// As in the `script` backend.
    pub(crate) inherit_env: Option<Vec<String>>,
    /// As in the `script` backend.
    pub(crate) timeout: Option<HumanDuration>,
    /// As in the `script` backend.
    pub(crate) max_output: Option<ByteSize>,
    /// As in the `script` backend.
    pub(crate) concurrency: Option<usize>,
    /// As in the `script` backend.
    #[serde(default)]
    pub(crate) allow: AllowConfig,
    /// As in the `script` backend.
    #[serde(default)]
    pub(crate) limits: LimitsConfig,
    /// As in the `script` backend.
    pub(crate) user: Option<String>,
    /// As in the `script` backend.
    #[serde(default)]
    pub(crate) network: Network,
    /// As in a route.
    pub(crate) output: Option<IndexMap<String, String>>,
    /// As in a route.
    #[serde(default)]
    pub(crate) echo: Vec<String>,
    /// As in a route.
    pub(crate) stringify: Option<bool>,
    /// As in a route.
    #[serde(default)]
    pub(crate) nulls: Nulls,
    /// As in a route.
    #[serde(default)]
    pub(crate) cache: CacheConfig,
    /// As in a route.
    pub(crate) formerly: Option<FormerNames>,
    /// As in a route.
    pub(crate) lineage: Option<Vec<String>>,
    /// As in a route.
    #[serde(default)]
    pub(crate) guard: GuardConfig,
    /// As in a route.
    pub(crate) deadline: Option<HumanDuration>,
}

impl Settings {
    /// The script that runs `generate` after `init`.
    #[must_use]
    pub(crate) fn script(
        &self,
        generate: &CommandConfig,
        init: Option<&CommandConfig>,
        protocol: Protocol,
    ) -> script::Config {
        let usual = script::Config::of(generate.words());
        script::Config {
            mode: self.mode.unwrap_or(usual.mode),
            worker: self.worker,
            init: init.cloned(),
            protocol: self.protocol.unwrap_or(protocol),
            parameters: self.parameters.clone(),
            env: self.env.clone(),
            inherit_env: self.inherit_env.clone().unwrap_or(usual.inherit_env),
            timeout: self.timeout.unwrap_or(usual.timeout),
            max_output: self.max_output.unwrap_or(usual.max_output),
            concurrency: self.concurrency.unwrap_or(usual.concurrency),
            allow: self.allow.clone(),
            limits: self.limits,
            user: self.user.clone(),
            network: self.network,
            ..usual
        }
    }
}
