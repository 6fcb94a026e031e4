//! Converts a plugin into a route, and the path of a problem in that route back into a path in the plugin's file.

use std::path::Path as FilePath;

use serde_json::{Value, json};

use super::{
    PluginSource, ProblemFile, Settings,
    manifest::{PluginKind, PluginManifest},
};
use crate::{
    config::tree::Node,
    routes::{
        RouteConfig,
        matching::{FileIn, MatchConfig},
    },
};
use backend::{
    BackendConfig,
    script::{Package, PackageSource, Protocol},
};
use domain::{
    file::base_dir::BaseDir,
    problem::{Path, Problems, Segment},
    secret::{SecretRef, TextOrSecret},
    units::ByteSize,
};
use engine::route::input::Type;

/// The default of `maxSize`: the largest folder that is copied.
const MAX_SIZE: ByteSize = ByteSize::mib(64);

/// The problems of a plugin, by the file to which they belong.
pub(crate) struct PluginProblems<'a> {
    /// Those of the `plugin.yaml`.
    pub(crate) own: &'a mut Problems,
    /// Those of the plugin's source, which is in the gateway's own file.
    pub(crate) main: &'a mut Problems,
}

/// The route of the plugin in `folder`, the package of its programs, and the values from which its revision is computed. The folder of
/// `source` is relative to `base`.
pub(crate) fn convert(
    manifest: &PluginManifest,
    source: Option<&PluginSource<'_>>,
    base: &BaseDir,
    folder: &FilePath,
    problems: PluginProblems<'_>,
) -> Option<(RouteConfig, Package, Value)> {
    let PluginProblems { own, main } = problems;
    let spec = Path::root().key("spec");
    let input = manifest.announced.as_ref().map(|announced| {
        let at = spec.key("parameters").key("static");
        announced.iter().enumerate().map(|(index, one)| one.parameter(&at.index(index), own)).collect::<Vec<_>>()
    });
    let (mut settings, from) = match (manifest.kind, source) {
        (PluginKind::Generator, _) => {
            let mut settings = manifest.settings.clone();
            settings.allow.read.push(folder.to_owned());
            (settings, None)
        }
        (PluginKind::ConfigManagement, Some(PluginSource { settings, path: at, .. })) => {
            let (settings, from) = copied_folder(settings, at, base, main)?;
            (settings, Some(from))
        }
        (PluginKind::ConfigManagement, None) => {
            own.error_with_help(
                &Path::root().key("kind"),
                "it runs in a copy of a folder, and the configuration names no folder",
                format!("add `plugins: {{ sources: {{ {}: {{ folder: … }} }} }}`", manifest.name),
            );
            return None;
        }
    };
    let usual = if manifest.kind == PluginKind::Generator { Protocol::Json } else { Protocol::Yaml };
    let script = settings.script(&manifest.generate, manifest.init.as_ref(), usual);
    let declared = input.iter().flatten().map(|one| json!({"name": one.name, "type": kind_name(one.kind)}));
    // Holds the files' own values, so it is the same in each version of the gateway. It also shows which parameters are used.
    let raw = json!({
        "input": declared.collect::<Value>(), "plugin": manifest.raw, "settings": source.map(|source| source.raw),
        "folders": [folder.to_string_lossy(), from.as_ref().map(|from| from.folder.to_string_lossy())],
    });
    let package = Package { folder: folder.to_owned(), source: from };
    let route = RouteConfig {
        name: manifest.name.clone(),
        matches: matches(manifest, settings.matches.take(), package.source.as_ref()),
        input,
        dynamic_input: manifest.dynamic.clone(),
        backend: BackendConfig::Script(Box::new(script)),
        output: settings.output,
        echo: settings.echo,
        stringify: settings.stringify.unwrap_or(true),
        nulls: settings.nulls,
        cache: settings.cache,
        formerly: settings.formerly,
        lineage: settings.lineage,
        guard: settings.guard,
        deadline: settings.deadline,
        shadow: None,
    };
    Some((route, package, raw))
}

/// The settings of a `ConfigManagementPlugin`, and the folder that each of its runs gets a copy of. `at` is the path of its source in the
/// gateway's own configuration.
fn copied_folder(
    settings: &Settings,
    at: &Path,
    base: &BaseDir,
    main: &mut Problems,
) -> Option<(Settings, PackageSource)> {
    let Some(name) = &settings.folder else {
        main.missing_key(at, "folder", None);
        return None;
    };
    let from = base.resolve(name);
    if !from.is_dir() {
        main.error(&at.key("folder"), format!("there is no folder {}", from.display()));
        return None;
    }
    for (key, is_set) in [("mode", settings.mode.is_some()), ("worker", settings.worker.is_some())] {
        if !is_set {
            continue;
        }
        let help = "leave it out; a GeneratorPlugin can have workers";
        let error = "a ConfigManagementPlugin gets a fresh copy of its folder for each run, so it cannot have workers";
        main.error_with_help(&at.key(key), error, help);
    }
    let (name, max_size) = (name.display().to_string(), settings.max_size.unwrap_or(MAX_SIZE));
    let mut settings = Settings { mode: None, worker: None, ..settings.clone() };
    // Paths in the gateway's own file are relative to that file's folder.
    for path in settings.allow.read.iter_mut().chain(&mut settings.allow.write) {
        *path = base.resolve(&path);
    }
    for value in settings.env.values_mut() {
        if let TextOrSecret::Secret(SecretRef::File(file)) = value {
            *file = base.resolve(&file);
        }
    }
    Some((settings, PackageSource { folder: from, name, max_size }))
}

/// Which calls the route accepts: those that both the plugin and the configuration accept.
fn matches(
    manifest: &PluginManifest,
    more: Option<MatchConfig>,
    source: Option<&PackageSource>,
) -> Option<MatchConfig> {
    let Some(discover) = manifest.discover.clone() else { return more };
    let mut all = more.unwrap_or_default();
    all.application_set = all.application_set.or(discover.application_set);
    all.parameters.extend(discover.parameters);
    if discover.command.is_some() {
        (all.command, all.args) = (discover.command, discover.args);
    }
    all.file = manifest.file.clone().zip(source).map(|(glob, source)| FileIn { folder: source.folder.clone(), glob });
    Some(all)
}

const fn kind_name(kind: Type) -> &'static str {
    match kind {
        Type::String => "string",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::Array => "array",
        Type::Map => "map",
    }
}

/// The file, and the path in it, of a problem at `path` in a plugin's route.
pub(crate) fn locate(path: &Path, kind: PluginKind, source: Option<&Path>, tree: &Node) -> ProblemFile {
    let keys: Vec<&str> = path
        .segments()
        .iter()
        .map(|segment| match segment {
            Segment::Key(key) => key.as_str(),
            Segment::Index(_) => "",
        })
        .collect();
    let spec = Path::root().key("spec");
    let below = |from: Path, skipped: usize| {
        path.segments().iter().skip(skipped).fold(from, |path, segment| match segment {
            Segment::Key(key) => path.key(key),
            Segment::Index(index) => path.index(*index),
        })
    };
    match keys.as_slice() {
        ["name", ..] => return ProblemFile::Own(Path::root().key("metadata").key("name")),
        ["input", "", "default", ..] => {
            let at = below(spec.key("parameters").key("static"), 1).parent().unwrap_or_default();
            let known = |key: &str| tree.existing(&at.key(key)) == at.key(key);
            let key = ["string", "array", "map"].into_iter().find(|key| known(key)).unwrap_or("name");
            return ProblemFile::Own(at.key(key));
        }
        ["input", "", "type", ..] => {
            return ProblemFile::Own(below(spec.key("parameters").key("static"), 1).parent().unwrap_or_default());
        }
        ["dynamicInput", ..] => return ProblemFile::Own(below(spec.key("parameters").key("dynamic"), 1)),
        ["input", ..] => return ProblemFile::Own(below(spec.key("parameters").key("static"), 1)),
        ["backend", "script", "command"] => return ProblemFile::Own(spec.key("generate").key("command")),
        ["backend", "script", "init", ..] => return ProblemFile::Own(below(spec.key("init"), 3)),
        ["match", "file"] => {
            let discover = spec.key("discover");
            let is_name = tree.existing(&discover.key("fileName")) == discover.key("fileName");
            return ProblemFile::Own(if is_name { discover.key("fileName") } else { discover.key("find").key("glob") });
        }
        ["match", "command"] if kind == PluginKind::ConfigManagement => {
            let find = spec.key("discover").key("find").key("command");
            if source.is_none() || tree.existing(&find) == find {
                return ProblemFile::Own(find);
            }
        }
        _ => {}
    }
    match (kind, source, keys.as_slice()) {
        (PluginKind::ConfigManagement, Some(source), ["backend", "script", ..]) => {
            ProblemFile::Main(below(source.clone(), 2))
        }
        (PluginKind::ConfigManagement, Some(source), _) => ProblemFile::Main(below(source.clone(), 0)),
        (_, _, ["backend", "script", "parameters", ..]) => ProblemFile::Own(spec.key("generate").key("parameters")),
        (_, _, ["backend", "script", ..]) => ProblemFile::Own(below(spec, 2)),
        (_, _, ["match", ..]) => ProblemFile::Own(below(spec.key("discover"), 1)),
        _ => ProblemFile::Own(below(spec, 0)),
    }
}
