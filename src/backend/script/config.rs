//! What the configuration says of a script.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    confinement::{AllowConfig, LimitsConfig},
    protocol::Protocol,
    worker::{Mode, WorkerConfig},
};
use crate::{
    clients::launcher::Network,
    domain::{
        secret::TextOrSecret,
        units::{ByteSize, HumanDuration},
    },
};

/// A program and what it is given.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ScriptBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// The program and its arguments. No shell is involved. A bare name is looked up in `PATH` at the
    /// start; the program runs in the folder of the configuration file.
    #[schemars(length(min = 1))]
    pub(crate) command: Vec<String>,
    /// Whether it is started for each question, or stays.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// How workers live, with `mode: worker`.
    pub(crate) worker: Option<WorkerConfig>,
    /// What runs before it, in the same run, folder and environment. When it fails, the whole run has failed.
    pub(crate) init: Option<CommandConfig>,
    /// The language of its stdin and stdout.
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// A CEL expression over `items`, the list that was read, and `params` that gives the list of objects. Without
    /// it, the items are passed on as they are.
    #[serde(default)]
    pub(crate) parameters: Option<String>,
    /// Environment variables. A value is text, or a secret reference. Each is passed on as `ARGOCD_ENV_<name>` too.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, TextOrSecret>,
    /// Variables of the gateway's own environment that are passed on. All others are not. Like those of `env`,
    /// their values never show in a message.
    #[serde(default = "default_inherit_env")]
    pub(crate) inherit_env: Vec<String>,
    /// How long a run may take.
    #[serde(default = "default_timeout")]
    pub(crate) timeout: HumanDuration,
    /// The largest output that is accepted.
    #[serde(default = "default_max_output")]
    pub(crate) max_output: ByteSize,
    /// How many runs of it there may be at once; others wait for their turn, as long as their deadline allows.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1))]
    pub(crate) concurrency: usize,
    /// Files and folders that it may use, besides those of the system, of its program and of its own work folder.
    #[serde(default)]
    pub(crate) allow: AllowConfig,
    /// What each of its processes may use.
    #[serde(default)]
    pub(crate) limits: LimitsConfig,
    /// As whom it runs, by name or number (`nobody`, `65534`, `1000:1000`); the gateway must be root for that. As the
    /// gateway unless set.
    pub(crate) user: Option<String>,
    /// Whether it has a network.
    #[serde(default)]
    pub(crate) network: Network,
}

impl Config {
    /// A script with all defaults.
    #[must_use]
    pub(crate) fn of(command: Vec<String>) -> Self {
        Self {
            command,
            mode: Mode::default(),
            worker: None,
            init: None,
            protocol: Protocol::default(),
            parameters: None,
            env: BTreeMap::new(),
            inherit_env: default_inherit_env(),
            timeout: default_timeout(),
            max_output: default_max_output(),
            concurrency: default_concurrency(),
            allow: AllowConfig::default(),
            limits: LimitsConfig::default(),
            user: None,
            network: Network::default(),
        }
    }
}

/// A program and its arguments, in the words of a Config Management Plugin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "Command")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CommandConfig {
    /// The program and its arguments. No shell is involved.
    #[schemars(length(min = 1))]
    pub(crate) command: Vec<String>,
    /// More arguments.
    #[serde(default)]
    pub(crate) args: Vec<String>,
}

impl CommandConfig {
    /// The program and all its arguments.
    #[must_use]
    pub(crate) fn words(&self) -> Vec<String> {
        self.command.iter().chain(&self.args).cloned().collect()
    }
}

/// What all scripts share.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ScriptsConfig {
    /// How many runs of all scripts there may be at once.
    #[schemars(range(min = 1))]
    pub(crate) concurrency: usize,
}

impl Default for ScriptsConfig {
    fn default() -> Self {
        Self { concurrency: 32 }
    }
}

fn default_inherit_env() -> Vec<String> {
    super::PUBLIC.map(str::to_owned).into()
}

const fn default_timeout() -> HumanDuration {
    HumanDuration::from_secs(10)
}

const fn default_concurrency() -> usize {
    8
}

const fn default_max_output() -> ByteSize {
    ByteSize::mib(4)
}
