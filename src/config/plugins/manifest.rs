//! Decodes a `plugin.yaml`.

mod spec;

use self::spec::{
    AnnouncedParameters, AnnouncedThere, ConfigManagementDiscover, ConfigManagementSpec, File, GeneratorSpec,
    SettingsFile,
};
use super::{Settings, settings};
use crate::{
    config::{
        Report, decode,
        tree::{self, Node},
    },
    routes::matching::MatchConfig,
};
use backend::script::CommandConfig;
use domain::{
    problem::{Path, Problems},
    spelling,
};
use engine::route::announcement::Announcement;

/// The version of both kinds.
const API_VERSION: &str = "argoproj.io/v1alpha1";
/// The keys under `spec` that describe the plugin. All others are [`Settings`].
const OWN: [&str; 5] = ["version", "init", "generate", "discover", "parameters"];
/// Keys of Argo CD that have no effect here: the gateway holds no lock, has no credentials, and keeps the modes of files.
const WITHOUT_EFFECT: [&str; 4] = ["lockRepo", "allowConcurrency", "preserveFileMode", "provideGitCreds"];

/// The kinds of plugins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PluginKind {
    /// The gateway's own kind.
    Generator,
    /// Argo CD's kind.
    ConfigManagement,
}

/// A plugin of either kind.
#[derive(Debug)]
pub(crate) struct PluginManifest {
    pub(crate) kind: PluginKind,
    pub(crate) name: String,
    pub(crate) version: Option<String>,
    pub(crate) init: Option<CommandConfig>,
    pub(crate) generate: CommandConfig,
    /// Which calls it accepts.
    pub(crate) discover: Option<MatchConfig>,
    /// A glob over the files of its folder. It accepts calls only if a file matches.
    pub(crate) file: Option<String>,
    pub(crate) announced: Option<Vec<Announcement>>,
    /// The command that announces further parameters.
    pub(crate) dynamic: Option<CommandConfig>,
    /// The settings in the file itself.
    pub(crate) settings: Settings,
    /// The complete file.
    pub(crate) raw: serde_json::Value,
}

impl PluginManifest {
    /// The names of its routes, the main one first.
    pub(crate) fn names(&self, is_owner: bool) -> Vec<String> {
        let full = self.version.as_ref().map(|version| format!("{}-{version}", self.name));
        let plain = (is_owner || full.is_none()).then(|| self.name.clone());
        plain.into_iter().chain(full).collect()
    }
}

/// Decodes `tree`. If that fails, `report` has the reason.
pub(crate) fn decode(tree: &Node, report: &mut Report) -> Option<PluginManifest> {
    let mut problems = Problems::default();
    let root = Path::root();
    let value = tree.to_value();
    let kind = match value.get("kind").and_then(serde_json::Value::as_str) {
        Some("GeneratorPlugin") => Some(PluginKind::Generator),
        Some("ConfigManagementPlugin") => Some(PluginKind::ConfigManagement),
        _ => {
            let help = "known here: GeneratorPlugin, ConfigManagementPlugin";
            problems.error_with_help(&root.key("kind"), "this is not a kind of plugin", help);
            None
        }
    };
    let found = match kind {
        Some(PluginKind::Generator) => generator(tree, &value, report, &mut problems),
        Some(PluginKind::ConfigManagement) => config_management(tree, &value, report, &mut problems),
        None => None,
    };
    if found.as_ref().is_some_and(|manifest| manifest.generate.command.is_empty()) {
        problems.error(&root.key("spec").key("generate").key("command"), "the command is empty");
    }
    for problem in problems.into_vec() {
        report.add(tree, problem);
    }
    found
}

fn generator(
    tree: &Node,
    value: &serde_json::Value,
    report: &mut Report,
    problems: &mut Problems,
) -> Option<PluginManifest> {
    let spec = Path::root().key("spec");
    let knowing = |path: &Path, known: &mut Vec<&str>| {
        if *path == spec {
            known.retain(|key| !OWN.contains(key) && !settings::OF_CONFIG_MANAGEMENT.contains(key));
            known.splice(..0, OWN);
        }
    };
    let rest = decode::decode_knowing::<SettingsFile>(&mut part(tree, false), report, None, knowing);
    let file = decode::decode::<File<GeneratorSpec>>(&mut part(tree, true), report)?;
    let mut settings = rest.map_or_else(Settings::default, |rest| rest.spec);
    let root = Path::root();
    if file.api_version.as_deref() != Some(API_VERSION) {
        let help = format!("write `apiVersion: {API_VERSION}`");
        problems.error_with_help(&root.key("apiVersion"), "this is not a version of GeneratorPlugin", help);
    }
    let mut refuse_others = |path: &Path, mapping: Option<&serde_json::Value>, known: &[&str]| {
        let keys = mapping.and_then(serde_json::Value::as_object).into_iter().flat_map(|mapping| mapping.keys());
        for key in keys.filter(|key| !known.contains(&key.as_str())) {
            problems.error_with_help(&path.key(key), format!("unknown key `{key}`"), spelling::advice(key, known));
        }
    };
    refuse_others(&root.key("metadata"), value.get("metadata"), &["name", "labels", "annotations"]);
    refuse_others(&root, Some(value), &["apiVersion", "kind", "metadata", "spec"]);
    let only_there = [
        ("folder", settings.folder.is_some()),
        ("maxSize", settings.max_size.is_some()),
        ("match", settings.matches.is_some()),
    ];
    for (key, _) in only_there.into_iter().filter(|(_, is_there)| *is_there) {
        let help = if key == "match" { "write `discover`" } else { "it is for a ConfigManagementPlugin" };
        problems.error_with_help(&root.key("spec").key(key), format!("unknown key `{key}`"), help);
    }
    let GeneratorSpec { version, init, generate, discover, parameters } = file.spec;
    settings.parameters = generate.parameters;
    let (announced, dynamic) = match parameters {
        Some(AnnouncedParameters { fixed, dynamic }) => (fixed, dynamic),
        None => (None, None),
    };
    Some(PluginManifest {
        kind: PluginKind::Generator,
        name: file.metadata.name,
        version: version.filter(|version| !version.is_empty()),
        init,
        generate: CommandConfig { command: generate.command, args: generate.args },
        discover,
        file: None,
        announced,
        dynamic,
        settings,
        raw: value.clone(),
    })
}

fn config_management(
    tree: &Node,
    value: &serde_json::Value,
    report: &mut Report,
    problems: &mut Problems,
) -> Option<PluginManifest> {
    let manifest = decode::decode::<File<ConfigManagementSpec>>(&mut tree.clone(), report)?;
    let spec = Path::root().key("spec");
    let unknown = value.get("spec").and_then(serde_json::Value::as_object).into_iter().flat_map(|spec| spec.keys());
    for key in unknown.filter(|key| !OWN.contains(&key.as_str()) && !WITHOUT_EFFECT.contains(&key.as_str())) {
        let meant = spelling::near(key, &OWN).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        let help = format!("Argo CD ignores it, and so does the gateway{meant}");
        problems.warning(&spec.key(key), format!("unknown key `{key}`"), help);
    }
    let ConfigManagementSpec { version, init, generate, discover, parameters } = manifest.spec;
    // The first of these keys counts, as in Argo CD.
    let ConfigManagementDiscover { file_name, find } = discover.unwrap_or_default();
    let find = find.unwrap_or_default();
    let file = file_name.filter(|name| !name.is_empty()).or(find.glob.filter(|glob| !glob.is_empty()));
    let file = file.map(|glob| glob.strip_prefix("./").unwrap_or(&glob).to_owned());
    let command = Some(find.command).filter(|command| file.is_none() && !command.is_empty());
    let args = if command.is_some() { find.args } else { Vec::new() };
    let discover =
        (file.is_some() || command.is_some()).then(|| MatchConfig { command, args, ..MatchConfig::default() });
    let (announced, dynamic) = match parameters {
        Some(AnnouncedThere { fixed, dynamic }) => (fixed, dynamic),
        None => (None, None),
    };
    Some(PluginManifest {
        kind: PluginKind::ConfigManagement,
        name: manifest.metadata.name,
        version: version.filter(|version| !version.is_empty()),
        init: init.filter(|init| !init.command.is_empty()).map(Into::into),
        generate: generate.into(),
        discover,
        file,
        announced: announced.filter(|announced| !announced.is_empty()),
        dynamic: dynamic.filter(|dynamic| !dynamic.command.is_empty()).map(Into::into),
        settings: settings::Settings::default(),
        raw: value.clone(),
    })
}

/// `tree` with only the [`OWN`] keys of its `spec`, or with only the others.
fn part(tree: &Node, is_own: bool) -> Node {
    let mut part = tree.clone();
    if let tree::NodeKind::Mapping(entries) = &mut part.kind {
        entries.retain(|(key, _, _)| is_own || key == "spec");
        for (_, _, spec) in entries.iter_mut().filter(|(key, _, _)| key == "spec") {
            if let tree::NodeKind::Mapping(entries) = &mut spec.kind {
                entries.retain(|(key, _, _)| OWN.contains(&key.as_str()) == is_own);
            }
        }
    }
    part
}
