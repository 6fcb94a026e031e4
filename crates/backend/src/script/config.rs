//! The configuration of a script.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    confinement::{AllowConfig, LimitsConfig},
    protocol::Protocol,
    worker::{Mode, WorkerConfig},
};
use domain::{
    secret::TextOrSecret,
    units::{ByteSize, HumanDuration},
};
use launcher::Network;

/// A program, its input, and its limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "ScriptBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The program and its arguments. No shell is involved. A bare name is looked up in `PATH` at the
    /// start; the program runs in the folder of the configuration file.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Whether the program starts for each request, or keeps running.
    #[serde(default)]
    pub mode: Mode,
    /// Settings of workers. Only with `mode: worker`.
    pub worker: Option<WorkerConfig>,
    /// A command that runs before the program, in the same run, folder and environment. If it fails, the whole run fails.
    pub init: Option<CommandConfig>,
    /// The format of the program's stdin and stdout.
    #[serde(default)]
    pub protocol: Protocol,
    /// A CEL expression over `items` (the list from the program), `params` and, below `each`, `item`. It returns the list of objects. Without it, the
    /// items are used unchanged.
    #[serde(default)]
    pub parameters: Option<String>,
    /// Environment variables. A value is text, or a secret reference. Each variable is also passed as `ARGOCD_ENV_<name>`.
    #[serde(default)]
    pub env: BTreeMap<String, TextOrSecret>,
    /// Variables that are passed on from the gateway's own environment. No others are passed on. No message shows their values,
    /// nor those of `env`.
    #[serde(default = "default_inherit_env")]
    pub inherit_env: Vec<String>,
    /// How long a run may take.
    #[serde(default = "default_timeout")]
    pub timeout: HumanDuration,
    /// The largest output that is accepted.
    #[serde(default = "default_max_output")]
    pub max_output: ByteSize,
    /// How many runs of this script may be in flight at the same time. Others wait for a permit, as long as their deadline allows.
    #[serde(default = "default_concurrency")]
    #[schemars(range(min = 1))]
    pub concurrency: usize,
    /// Files and folders that the script may use, in addition to the system's files, its program's folder and its work folder.
    #[serde(default)]
    pub allow: AllowConfig,
    /// The limits of each process of the script.
    #[serde(default)]
    pub limits: LimitsConfig,
    /// The user that runs the script, by name or number (`nobody`, `65534`, `1000:1000`). Another user than the gateway's own needs
    /// a gateway that runs as root. By default the gateway's user.
    pub user: Option<String>,
    /// Whether the script has a network.
    #[serde(default)]
    pub network: Network,
}

impl Config {
    /// A script with all defaults.
    #[must_use]
    pub fn of(command: Vec<String>) -> Self {
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

/// A program and its arguments, with the keys of a Config Management Plugin.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(rename = "Command")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CommandConfig {
    /// The program and its arguments. No shell is involved.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// More arguments.
    #[serde(default)]
    pub args: Vec<String>,
}

impl CommandConfig {
    /// The program and all its arguments.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        self.command.iter().chain(&self.args).cloned().collect()
    }
}

/// Settings that all scripts share.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptsConfig {
    /// How many runs of all scripts may be in flight at the same time.
    #[schemars(range(min = 1))]
    pub concurrency: usize,
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
