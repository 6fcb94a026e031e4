//! The configuration file: read, decoded and checked as a whole. All problems are reported at once, each with file, line and path. The
//! types of the sections are in the modules that use them.

pub(crate) mod decode;
mod places;
pub(crate) mod plugins;
pub(crate) mod report;
pub(crate) mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path as FilePath, PathBuf},
};

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::report::Report;
use self::{
    places::Places,
    plugins::{LoadedPlugin, PluginsConfig},
    tree::{Node, Position},
};
use crate::{collector::TracesConfig, routes::RouteConfig};
use argocd::ArgocdConfig;
use auth::AuthConfig;
use backend::script::ScriptsConfig;
use clouds::IdentityConfig;
use domain::{
    file::{self, base_dir::BaseDir},
    problem::{Path, Problem, ProblemKind, Problems},
    units::{self, HumanDuration},
};
use engine::cache::CacheLimits;
use hooks::HookConfig;
use oci::RegistryConfig;
use outbound::OutboundConfig;
use telemetry::log::LogConfig;
use tls::{AdminTlsConfig, TlsConfig};

/// The whole configuration of a gateway.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The listeners and their limits.
    #[serde(default)]
    pub(crate) server: ServerConfig,
    /// Log lines.
    #[serde(default)]
    pub log: LogConfig,
    /// Traces of requests, for an OpenTelemetry collector. None are sent unless this is set.
    pub(crate) traces: Option<TracesConfig>,
    /// The callers, by the ways to authenticate.
    #[serde(default)]
    pub(crate) auth: AuthConfig,
    /// The cache of answers.
    #[serde(default)]
    pub(crate) cache: CacheLimits,
    /// The settings of all requests that leave the gateway.
    #[serde(default)]
    pub(crate) outbound: OutboundConfig,
    /// Identities at clouds, by names that registries and credentials use: the pod proves who it is, and no secret is stored.
    #[serde(default)]
    pub(crate) identities: BTreeMap<String, IdentityConfig>,
    /// How registries are reached, by their host as in image references.
    #[serde(default)]
    pub(crate) registries: BTreeMap<String, RegistryConfig>,
    /// The settings of all scripts.
    #[serde(default)]
    pub(crate) scripts: ScriptsConfig,
    /// Folders of plugins. Their routes come after the routes of this file.
    #[serde(default)]
    pub(crate) plugins: PluginsConfig,
    /// Webhooks: events after which answers are rechecked. They need `server.hooks`.
    #[serde(default)]
    pub(crate) hooks: Vec<HookConfig>,
    /// The gateway's access to Argo CD's cluster.
    #[serde(default)]
    pub(crate) argocd: ArgocdConfig,
    /// The routes, tried in this order.
    #[serde(default)]
    pub(crate) routes: Vec<RouteConfig>,
}

/// The listeners and their limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerConfig {
    /// The address for Argo CD's calls.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// The address for probes, metrics and operators.
    #[schemars(with = "String")]
    pub(crate) admin: SocketAddr,
    /// The address for webhooks. It has TLS if the main listener has. Without it there is no such listener.
    #[schemars(with = "Option<String>")]
    pub(crate) hooks: Option<SocketAddr>,
    /// TLS for Argo CD's calls. They are in cleartext without it.
    pub(crate) tls: Option<TlsConfig>,
    /// TLS for probes, metrics, operators and the page. They are in cleartext without it.
    pub(crate) admin_tls: Option<AdminTlsConfig>,
    /// How long a call may take. Argo CD gives up after 30 s and then shows no reason, so the deadline is shorter.
    pub(crate) deadline: HumanDuration,
    /// How long the gateway still serves after SIGTERM while it is not ready: until Kubernetes has removed it from its Services.
    pub(crate) drain: HumanDuration,
    /// How many requests may be in flight at the same time. Further requests get a 503 with `Retry-After`.
    #[schemars(range(min = 1))]
    pub max_in_flight: usize,
    /// The number of connections, and how long they last.
    pub(crate) connections: ConnectionsConfig,
}

/// The number of connections, and how long they last. A client has 10 s to send a request's head, 10 s more for its body, and 10 s to take
/// the answer.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ConnectionsConfig {
    /// The most connections on each listener. Further connections get a 503.
    #[schemars(range(min = 1))]
    pub(crate) most: usize,
    /// The most connections of one address. Behind a proxy, all connections come from one address.
    #[schemars(range(min = 1))]
    pub(crate) per_peer: usize,
    /// How long a connection may be silent after an answer. Argo CD keeps idle connections for 90 s.
    pub(crate) idle: HumanDuration,
    /// The age at which a connection is closed, after its next answer.
    pub(crate) max_age: HumanDuration,
}

impl Default for ConnectionsConfig {
    fn default() -> Self {
        Self {
            most: 8192,
            per_peer: 2048,
            idle: HumanDuration::from_secs(2 * 60),
            max_age: HumanDuration::from_secs(60 * 60),
        }
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([0, 0, 0, 0], 4355)),
            admin: SocketAddr::from(([0, 0, 0, 0], 4356)),
            hooks: None,
            tls: None,
            admin_tls: None,
            deadline: HumanDuration::from_secs(25),
            drain: HumanDuration::from_secs(10),
            max_in_flight: 1024,
            connections: ConnectionsConfig::default(),
        }
    }
}

/// A configuration file that has been read, with the problems found so far.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The part that could be decoded; `None` if nothing could.
    pub config: Option<Config>,
    /// The file's values as they are.
    pub(crate) raw: Value,
    /// The hash of all files that were read.
    pub(crate) hash: [u8; 32],
    /// Where relative paths start.
    pub(crate) base: BaseDir,
    /// The plugins, in the order of their folders' names.
    pub(crate) plugins: Vec<LoadedPlugin>,
    /// Whether the secrets, keys and certificates below this path need not be there.
    forgives_secret: fn(&Path) -> bool,
    report: Report,
    tree: Node,
}

impl Loaded {
    /// Reads and decodes `file`.
    ///
    /// # Errors
    /// When it cannot be read, is not a regular file of at most 1 MiB, or is not YAML.
    pub fn read(file: &FilePath) -> Result<Self, Report> {
        let name = file.display().to_string();
        let source = file::read(file).map_err(|why| Report::unreadable(&name, &why))?;
        Self::parse(&name, source, BaseDir::of_file(file))
    }

    /// Decodes `source`, which came from a file called `name`.
    ///
    /// # Errors
    /// When it is not YAML.
    pub fn parse(name: &str, source: String, base: BaseDir) -> Result<Self, Report> {
        let mut report = Report::new(name, source);
        let Some(mut tree) = tree::parse(&mut report) else { return Err(report) };
        let config = decode::decode_knowing(&mut tree, &mut report, Some(Places::get), plugins::known_of_sources);
        for (path, text) in tree.texts() {
            if let Some(help) = units::months(text)
                && Places::get().is_duration(&path)
            {
                let mut problems = Problems::default();
                problems.warning(&path, format!("the `M` of `{text}` stands for months"), help);
                problems.into_vec().into_iter().for_each(|problem| report.add(&tree, problem));
            }
        }
        let raw = tree.to_value();
        let mut problems = Problems::default();
        let path = Path::root().key("plugins");
        let load = |config: &Config| plugins::load(&config.plugins, &raw["plugins"], &base, &path, &mut problems);
        let (plugins, failed) = config.as_ref().map(load).unwrap_or_default();
        for failed in failed {
            report.join(failed);
        }
        for problem in problems.into_vec() {
            report.add(&tree, problem);
        }
        let sources = [&report].into_iter().chain(plugins.iter().map(|plugin| &plugin.report));
        let hashes =
            sources.flat_map(Report::sources).map(|(name, source)| Sha256::digest(format!("{name}\0{source}")));
        let hash = hashes.fold(Sha256::new(), Sha256::chain_update).finalize().into();
        Ok(Self { config, raw, hash, base, plugins, forgives_secret: |_| false, report, tree })
    }

    /// The files from which the configuration was read, if it came from `file`, and a name in the folder of plugins, so that new plugins are
    /// noticed.
    #[must_use]
    pub(crate) fn files(&self, file: &FilePath) -> Vec<PathBuf> {
        let folder = self.config.as_ref().and_then(|config| config.plugins.path.as_ref());
        let any = folder.map(|folder| self.base.resolve(folder).join("any"));
        let sources = [&self.report].into_iter().chain(self.plugins.iter().map(|plugin| &plugin.report));
        let of_plugins = sources.flat_map(Report::sources).map(|(name, _)| PathBuf::from(name));
        let files = [file.to_owned()].into_iter().chain(any).chain(of_plugins).collect::<BTreeSet<_>>();
        files.into_iter().collect()
    }

    /// Checks only the form of references to secrets, keys and certificates. They need not be on this machine.
    #[must_use]
    pub(crate) fn without_secrets(self) -> Self {
        let plugins = self.plugins.into_iter().map(LoadedPlugin::lenient).collect();
        Self { forgives_secret: |_| true, base: self.base.lenient(), plugins, ..self }
    }

    /// The same for everything that no route needs, such as callers' tokens: for asking routes without a server.
    #[must_use]
    pub(crate) fn for_routes_only(self) -> Self {
        const OF_ROUTES: [&str; 5] = ["routes", "plugins", "registries", "outbound", "identities"];
        let is_other = |path: &Path| OF_ROUTES.iter().all(|part| !path.is_within(&Path::root().key(*part)));
        Self { forgives_secret: is_other, ..self }
    }

    /// The configuration for answers that are stored nowhere: without the cache file, the shared store and traces.
    #[must_use]
    pub(crate) fn unstored(self) -> Self {
        let cache = |cache| CacheLimits { path: None, shared: None, ..cache };
        let config = self.config.map(|config| Config { traces: None, cache: cache(config.cache.clone()), ..config });
        Self { config, ..self }
    }

    /// The same, for answers without sources and callers. It reads no secret.
    #[must_use]
    pub(crate) fn offline(self) -> Self {
        let unstored = self.unstored();
        let config = unstored.config.map(|config| Config {
            server: ServerConfig { deadline: config.server.deadline, ..ServerConfig::default() },
            auth: AuthConfig::default(),
            identities: BTreeMap::new(),
            hooks: Vec::new(),
            argocd: ArgocdConfig::default(),
            ..config
        });
        let plugins = unstored.plugins.into_iter().map(LoadedPlugin::offline).collect();
        Self { config, plugins, base: unstored.base.offline(), forgives_secret: |_| true, ..unstored }
    }

    /// The report of all problems; `problems` are those that building the parts found.
    #[must_use]
    pub(crate) fn report(mut self, problems: Vec<Problem>) -> Report {
        // A file that is there must be right: the start would refuse it.
        let is_forgiven = |problem: &Problem| {
            problem.kind == ProblemKind::Secret
                && (self.forgives_secret)(&problem.path)
                && (!self.base.is_lenient() || self.tree.lacks_secret(&problem.path, &self.base))
        };
        for problem in problems.into_iter().filter(|problem| !is_forgiven(problem)) {
            self.report.add(&self.tree, problem);
        }
        for plugin in self.plugins {
            self.report.join(plugin.report);
        }
        self.report.sort();
        self.report
    }
}

/// The largest file of another form than a configuration, in MiB.
const MAX_CASES_MIB: u64 = 32;

/// A file of another form than a configuration, decoded, with the places of its values.
#[derive(Debug)]
pub(crate) struct Decoded<T> {
    /// The whole file.
    pub(crate) value: T,
    report: Report,
    tree: Node,
}

impl<T: DeserializeOwned> Decoded<T> {
    /// Reads and decodes `file`.
    ///
    /// # Errors
    /// When it cannot be read, is not YAML, or has another form. The report has all problems.
    pub(crate) fn read(file: &FilePath) -> Result<Self, Report> {
        let name = file.display().to_string();
        let source = file::read_up_to(file, MAX_CASES_MIB).map_err(|why| Report::unreadable_as("file", &name, &why))?;
        Self::parse(&name, source)
    }

    /// Decodes `source`, which came from a file called `name`.
    ///
    /// # Errors
    /// When it is not YAML, or has another form. The report has all problems.
    pub(crate) fn parse(name: &str, source: String) -> Result<Self, Report> {
        let mut report = Report::new(name, source);
        let Some(mut tree) = tree::parse(&mut report) else { return Err(report) };
        match decode::decode(&mut tree, &mut report) {
            Some(value) if !report.has_errors() => Ok(Self { value, report, tree }),
            _ => Err(report),
        }
    }

    /// The same file, if `problems` has no errors.
    ///
    /// # Errors
    /// A report with `problems`.
    pub(crate) fn finish(mut self, problems: Problems) -> Result<Self, Report> {
        for problem in problems.into_vec() {
            self.report.add(&self.tree, problem);
        }
        self.report.sort();
        if self.report.has_errors() { Err(self.report) } else { Ok(self) }
    }

    /// The place of the value at `path`; of its key, if it is in a mapping.
    pub(crate) fn place(&self, path: &Path) -> Position {
        self.tree.locate(path).0
    }

    /// Whether there is a value at `path`.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.tree.at(path).is_some()
    }

    /// The values as they are.
    pub(crate) fn raw(&self) -> Value {
        self.tree.to_value()
    }

    /// The text of the file.
    pub(crate) fn source(&self) -> &str {
        self.report.source()
    }
}

/// The JSON Schema (2020-12) of a configuration file.
#[must_use]
pub(crate) fn schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
    schema.insert("title".into(), "appset-gateway configuration".into());
    schema
}
