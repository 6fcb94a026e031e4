//! `plugins`: folders with a `plugin.yaml` in the format of a Config Management Plugin. Each becomes routes. Problems of a plugin are reported
//! with its own file, line and path.

mod convert;
mod manifest;
mod settings;
mod version;

use std::{
    collections::BTreeMap,
    io::ErrorKind,
    path::{Path as FilePath, PathBuf},
};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use self::settings::Settings;
use self::{
    convert::{PluginProblems, convert, locate},
    manifest::{PluginKind, PluginManifest},
    version::Version,
};
use super::{Report, tree::Node};
use crate::routes::RouteConfig;
use backend::script::Package;
use domain::{
    file::{self, base_dir::BaseDir},
    problem::{Path, Problem, ProblemKind, Problems},
};

/// The file that makes a folder a plugin.
const FILE: &str = "plugin.yaml";

/// Folders of plugins.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PluginsConfig {
    /// A folder of plugins. Each folder in it with a `plugin.yaml` becomes a route with the plugin's name, and one with its name and version.
    pub(crate) path: Option<PathBuf>,
    /// Where and how plugins of the kind `ConfigManagementPlugin` run, by their name, or by name and version.
    #[serde(default)]
    pub(crate) sources: BTreeMap<String, Settings>,
}

/// Removes keys from `known` that only a `plugin.yaml` may have, if `path` is a source in the gateway's own file.
pub(crate) fn known_of_sources(path: &Path, known: &mut Vec<&str>) {
    if path.parent() == Some(Path::root().key("plugins").key("sources")) {
        known.retain(|key| !settings::OF_GENERATORS.contains(key));
    }
}

/// A plugin, and the routes that it becomes.
#[derive(Debug, Clone)]
pub(crate) struct LoadedPlugin {
    /// Its routes, the main one first, each with the values from which its revision is computed.
    pub(crate) routes: Vec<(RouteConfig, Value)>,
    /// Where its relative paths start.
    pub(crate) base: BaseDir,
    /// The package of its programs.
    pub(crate) package: Package,
    /// The report on its `plugin.yaml`.
    pub(crate) report: Report,
    tree: Node,
    kind: PluginKind,
    /// The path of its settings in the gateway's own file, if they are there.
    source: Option<Path>,
}

/// The file of a problem, and the path in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ProblemFile {
    /// The gateway's own.
    Main(Path),
    /// The `plugin.yaml`.
    Own(Path),
}

impl LoadedPlugin {
    /// The same plugin, without secrets.
    pub(super) fn offline(self) -> Self {
        Self { base: self.base.offline(), ..self }
    }

    /// The same plugin, whose secrets need not be there.
    pub(super) fn lenient(self) -> Self {
        Self { base: self.base.lenient(), ..self }
    }

    /// Notes a problem of one of its routes. Returns the problem if it belongs to the gateway's own file.
    pub(crate) fn note(&mut self, problem: Problem) -> Option<Problem> {
        match locate(&problem.path, self.kind, self.source.as_ref(), &self.tree) {
            ProblemFile::Main(path) => Some(Problem { path, ..problem }),
            ProblemFile::Own(path)
                if problem.kind == ProblemKind::Secret
                    && self.base.is_lenient()
                    && self.tree.lacks_secret(&path, &self.base) =>
            {
                None
            }
            ProblemFile::Own(path) => {
                self.report.add(&self.tree, Problem { path, ..problem });
                None
            }
        }
    }
}

/// The settings of a plugin in the gateway's own file.
#[derive(Debug)]
pub(crate) struct PluginSource<'a> {
    settings: &'a Settings,
    /// The settings as written in the file.
    raw: &'a Value,
    path: Path,
}

/// A plugin that was read.
struct Candidate {
    file: PathBuf,
    manifest: PluginManifest,
    report: Report,
    tree: Node,
}

/// Reads all plugins of `config`, in the order of their folders' names. `raw` is `config` as written. Problems of `config` itself, at `path`, are noted in `problems`. The
/// second result has the reports on files that are not plugins.
pub(crate) fn load(
    config: &PluginsConfig,
    raw: &Value,
    base: &BaseDir,
    path: &Path,
    problems: &mut Problems,
) -> (Vec<LoadedPlugin>, Vec<Report>) {
    let (mut plugins, mut failed, mut candidates) = (Vec::new(), Vec::new(), Vec::new());
    for file in files(config, base, path, problems) {
        match read(&file) {
            Ok(candidate) => candidates.push(candidate),
            Err(report) => failed.push(report),
        }
    }
    failed.extend(refuse_duplicates(&mut candidates));
    let owners = owners(&candidates);
    let mut used = Vec::new();
    for (index, Candidate { file, manifest, mut report, tree }) in candidates.into_iter().enumerate() {
        let names = manifest.names(owners.contains(&index));
        let key = manifest.names(true).into_iter().rev().find(|name| config.sources.contains_key(name));
        let source = key.as_ref().and_then(|key| {
            let settings = config.sources.get(key)?;
            Some(PluginSource { settings, raw: &raw["sources"][key], path: path.key("sources").key(key) })
        });
        if let (Some(source), PluginKind::Generator) = (&source, manifest.kind) {
            problems
                .error(&source.path, format!("{} is a GeneratorPlugin, which runs in its own folder", file.display()));
        }
        used.extend(key);
        let folder = file.parent().unwrap_or(FilePath::new("/")).to_owned();
        let mut own = Problems::default();
        let noted = PluginProblems { own: &mut own, main: problems };
        let converted = convert(&manifest, source.as_ref(), base, &folder, noted);
        for problem in own.into_vec() {
            report.add(&tree, problem);
        }
        let Some((route, package, raw)) = converted else {
            failed.push(report);
            continue;
        };
        let routes = names.into_iter().enumerate().map(|(index, name)| {
            // Only the first route has the `match`, so a call without a route runs a plugin once.
            let matches = if index == 0 { route.matches.clone() } else { None };
            let formerly = if index == 0 { route.formerly.clone() } else { None };
            (RouteConfig { name, formerly, matches, ..route.clone() }, raw.clone())
        });
        let (routes, base) = (routes.collect(), BaseDir::new(folder));
        let source = source.map(|source| source.path);
        plugins.push(LoadedPlugin { routes, base, package, report, tree, kind: manifest.kind, source });
    }
    for name in config.sources.keys().filter(|name| !used.contains(name)) {
        problems.error(&path.key("sources").key(name), format!("there is no plugin `{name}`"));
    }
    (plugins, failed)
}

/// The `plugin.yaml` of each folder.
fn files(config: &PluginsConfig, base: &BaseDir, path: &Path, problems: &mut Problems) -> Vec<PathBuf> {
    let Some(folder) = &config.path else { return Vec::new() };
    let (path, folder) = (path.key("path"), base.resolve(folder));
    let message = |error: std::io::Error| format!("{}: {error}", folder.display());
    let listed = folder.read_dir().and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(message);
    let mut entries: Vec<PathBuf> =
        problems.note(&path, listed).into_iter().flatten().map(|entry| entry.path()).collect();
    // Kubernetes keeps the files of a mounted ConfigMap in hidden folders.
    let is_hidden = |path: &FilePath| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    entries.retain(|path| !is_hidden(path));
    entries.sort();
    entries
        .into_iter()
        .filter_map(|entry| {
            // An unreachable plugin must not be left out, because another route would then answer its calls.
            let message = |error| format!("{}: {}", entry.display(), file::why(&entry, error));
            let data = problems.note(&path, entry.metadata().map_err(message))?;
            let file = entry.join(FILE);
            let is_missing = file.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            if data.is_dir() && is_missing {
                let help = "each folder here is a plugin; move others elsewhere";
                problems.warning(&path, format!("{} holds no {FILE}", entry.display()), help);
            }
            (data.is_dir() && !is_missing).then_some(file)
        })
        .collect()
}

fn read(file: &FilePath) -> Result<Candidate, Report> {
    let name = file.display().to_string();
    let source = file::read(file).map_err(|why| Report::unreadable(&name, &why))?;
    let mut report = Report::new(&name, source);
    let Some(tree) = super::tree::parse(&mut report) else { return Err(report) };
    let Some(manifest) = manifest::decode(&tree, &mut report) else { return Err(report) };
    Ok(Candidate { file: file.to_owned(), manifest, report, tree })
}

/// Takes out plugins whose name and version an earlier plugin has. Their reports have the reason.
fn refuse_duplicates(candidates: &mut Vec<Candidate>) -> Vec<Report> {
    let mut seen: BTreeMap<Vec<String>, PathBuf> = BTreeMap::new();
    let duplicates = candidates.extract_if(.., |candidate| {
        let names = candidate.manifest.names(false);
        let Some(first) = seen.get(&names) else {
            seen.insert(names, candidate.file.clone());
            return false;
        };
        let mut problems = Problems::default();
        problems.error_with_help(
            &Path::root().key("metadata").key("name"),
            format!("two plugins are `{}`: {} and {}", names.join(", "), first.display(), candidate.file.display()),
            "give one of them another `metadata.name` or `spec.version`",
        );
        for problem in problems.into_vec() {
            candidate.report.add(&candidate.tree, problem);
        }
        true
    });
    duplicates.map(|first| first.report).collect()
}

/// The plugins that own the plain name: of each name the one without a version, or else the one with the highest version.
fn owners(candidates: &[Candidate]) -> Vec<usize> {
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let rank = |index: usize| Version::of(candidates.get(index).and_then(|one| one.manifest.version.as_deref()));
        let owner = owners.entry(&candidate.manifest.name).or_insert(index);
        if rank(index) > rank(*owner) {
            *owner = index;
        }
    }
    owners.into_values().collect()
}
