//! The words of a `plugin.yaml` of either kind.

use serde::Deserialize;

use crate::{
    backend::script::CommandConfig,
    config::plugins::Settings,
    engine::route::{announcement::Announcement, matching::MatchConfig},
};

/// A file, but for what is not the plugin's own business.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct File<S> {
    pub api_version: Option<String>,
    #[expect(dead_code, reason = "it must be there, and was looked at before")]
    pub kind: String,
    pub metadata: Metadata,
    pub spec: S,
}

/// Labels and the like are a manifest's own business.
#[derive(Deserialize)]
pub struct Metadata {
    pub name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GeneratorSpec {
    pub version: Option<String>,
    pub init: Option<CommandConfig>,
    pub generate: Generate,
    pub discover: Option<MatchConfig>,
    pub parameters: Option<Announced>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Generate {
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
    pub parameters: Option<String>,
}

/// As Argo CD reads it: unknown keys are nothing to it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigManagementSpec {
    pub version: Option<String>,
    pub init: Option<Command>,
    pub generate: Command,
    pub discover: Option<ConfigManagementDiscover>,
    pub parameters: Option<AnnouncedThere>,
}

#[derive(Deserialize, Default)]
pub struct Command {
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
}

impl From<Command> for CommandConfig {
    fn from(Command { command, args }: Command) -> Self {
        Self { command, args }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub struct ConfigManagementDiscover {
    pub file_name: Option<String>,
    pub find: Option<Find>,
}

#[derive(Deserialize, Default)]
pub struct Find {
    pub glob: Option<String>,
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Announced {
    #[serde(rename = "static")]
    pub fixed: Option<Vec<Announcement>>,
    pub dynamic: Option<CommandConfig>,
}

#[derive(Deserialize)]
pub struct AnnouncedThere {
    #[serde(rename = "static")]
    pub fixed: Option<Vec<Announcement>>,
    pub dynamic: Option<Command>,
}

/// Only the settings of a file.
#[derive(Deserialize)]
pub struct Rest {
    pub spec: Settings,
}
