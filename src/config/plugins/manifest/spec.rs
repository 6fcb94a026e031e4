//! The keys of a `plugin.yaml` of either kind.

use serde::Deserialize;

use crate::{config::plugins::Settings, routes::matching::MatchConfig};
use backend::script::CommandConfig;
use engine::route::announcement::Announcement;

/// A file without its [`Settings`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct File<S> {
    pub(crate) api_version: Option<String>,
    #[expect(dead_code, reason = "the key is required, and was checked before")]
    pub(crate) kind: String,
    pub(crate) metadata: Metadata,
    pub(crate) spec: S,
}

/// Other metadata, such as labels, is ignored.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GeneratorSpec {
    pub(crate) version: Option<String>,
    pub(crate) init: Option<CommandConfig>,
    pub(crate) generate: Generate,
    pub(crate) discover: Option<MatchConfig>,
    pub(crate) parameters: Option<AnnouncedParameters>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Generate {
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
    pub(crate) parameters: Option<String>,
}

/// As Argo CD reads it: unknown keys are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigManagementSpec {
    pub(crate) version: Option<String>,
    pub(crate) init: Option<Command>,
    pub(crate) generate: Command,
    pub(crate) discover: Option<ConfigManagementDiscover>,
    pub(crate) parameters: Option<AnnouncedThere>,
}

#[derive(Deserialize, Default)]
pub(crate) struct Command {
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
}

impl From<Command> for CommandConfig {
    fn from(Command { command, args }: Command) -> Self {
        Self { command, args }
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConfigManagementDiscover {
    pub(crate) file_name: Option<String>,
    pub(crate) find: Option<Find>,
}

#[derive(Deserialize, Default)]
pub(crate) struct Find {
    pub(crate) glob: Option<String>,
    #[serde(default)]
    pub(crate) command: Vec<String>,
    #[serde(default)]
    pub(crate) args: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnnouncedParameters {
    #[serde(rename = "static")]
    pub(crate) fixed: Option<Vec<Announcement>>,
    pub(crate) dynamic: Option<CommandConfig>,
}

#[derive(Deserialize)]
pub(crate) struct AnnouncedThere {
    #[serde(rename = "static")]
    pub(crate) fixed: Option<Vec<Announcement>>,
    pub(crate) dynamic: Option<Command>,
}

/// Only the settings of a file.
#[derive(Deserialize)]
pub(crate) struct SettingsFile {
    pub(crate) spec: Settings,
}
