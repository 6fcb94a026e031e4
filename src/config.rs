//! The configuration file: read, decoded and checked as a whole, with all problems at once, each with
//! file, line and path. The sections belong to the modules that use them.

pub(crate) mod decode;
pub(crate) mod plugins;
pub(crate) mod report;
pub(crate) mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path as FilePath, PathBuf},
};

use schemars::{JsonSchema, Schema, generate::SchemaSettings};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub use self::report::Report;
use self::{
    plugins::{Plugin, PluginsConfig},
    tree::Node,
};
use crate::{
    auth::AuthConfig,
    backend::script::ScriptsConfig,
    clients::{collector::TracesConfig, oci::RegistryConfig, outbound::OutboundConfig},
    domain::{
        problem::{Path, Problem, Problems},
        units::HumanDuration,
    },
    engine::{cache::CacheLimits, route::RouteConfig},
    file::{self, base_dir::BaseDir},
    telemetry::log::LogConfig,
    tls::TlsConfig,
};

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
    /// Traces of what is done for a request, for an OpenTelemetry collector; none are sent unless this is set.
    pub(crate) traces: Option<TracesConfig>,
    /// Who may call.
    #[serde(default)]
    pub(crate) auth: AuthConfig,
    /// Where answers are remembered.
    #[serde(default)]
    pub(crate) cache: CacheLimits,
    /// What all requests that leave the gateway share.
    #[serde(default)]
    pub(crate) outbound: OutboundConfig,
    /// How registries are reached, by their host as it stands in image references.
    #[serde(default)]
    pub(crate) registries: BTreeMap<String, RegistryConfig>,
    /// What all scripts share.
    #[serde(default)]
    pub(crate) scripts: ScriptsConfig,
    /// Folders of plugins, whose routes come after those of this file.
    #[serde(default)]
    pub(crate) plugins: PluginsConfig,
    /// Who answers which calls; tried in this order.
    #[serde(default)]
    pub(crate) routes: Vec<RouteConfig>,
}

/// The listeners and their limits.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Where Argo CD calls.
    #[schemars(with = "String")]
    pub listen: SocketAddr,
    /// Where probes and metrics are.
    #[schemars(with = "String")]
    pub(crate) admin: SocketAddr,
    /// TLS for Argo CD's calls; without it they come in cleartext.
    pub(crate) tls: Option<TlsConfig>,
    /// When a call is given up. Argo CD gives up after 30 s and then shows no reason, so it is less.
    pub(crate) deadline: HumanDuration,
    /// How long it serves on after SIGTERM, not ready any more: until Kubernetes has taken it out of its Services.
    pub(crate) drain: HumanDuration,
    /// How many requests are answered at once; more are refused with 503 and `Retry-After`.
    #[schemars(range(min = 1))]
    pub max_in_flight: usize,
    /// How many connections there may be, and how long they last.
    pub(crate) connections: ConnectionsConfig,
}

/// How many connections there may be, and how long they last. A request's head has 10 s to arrive, its body 10 s more, and an answer 10 s
/// to be taken.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct ConnectionsConfig {
    /// All of them, on each listener; more are refused with 503.
    #[schemars(range(min = 1))]
    pub(crate) most: usize,
    /// Those of one address. Behind a proxy that is all there is.
    #[schemars(range(min = 1))]
    pub(crate) per_peer: usize,
    /// How long one may be silent after an answer. Argo CD keeps its own for 90 s.
    pub(crate) idle: HumanDuration,
    /// How long one lives; it then ends after an answer.
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
            tls: None,
            deadline: HumanDuration::from_secs(25),
            drain: HumanDuration::from_secs(10),
            max_in_flight: 1024,
            connections: ConnectionsConfig::default(),
        }
    }
}

/// A configuration file that has been read: what could be decoded of it, and what could not.
#[derive(Debug)]
pub struct Loaded {
    /// What could be decoded; `None` when nothing could.
    pub config: Option<Config>,
    /// The file as it stands.
    pub(crate) raw: Value,
    /// The hash of all that was read.
    pub(crate) hash: [u8; 32],
    /// Where relative paths start.
    pub(crate) base: BaseDir,
    /// The plugins, in the order of their folders' names.
    pub(crate) plugins: Vec<Plugin>,
    report: Report,
    tree: Node,
}

impl Loaded {
    /// Reads and decodes `file`.
    ///
    /// # Errors
    /// When it is no regular file with up to 1 MiB, cannot be read, or is no YAML at all.
    pub fn read(file: &FilePath) -> Result<Self, Report> {
        let name = file.display().to_string();
        let source = file::read(file).map_err(|why| Report::unreadable(&name, &why))?;
        Self::parse(&name, source, BaseDir::of_file(file))
    }

    /// Decodes `source`, which came from a file called `name`.
    ///
    /// # Errors
    /// When it is no YAML at all.
    pub fn parse(name: &str, source: String, base: BaseDir) -> Result<Self, Report> {
        let mut report = Report::new(name, source);
        let Some(mut tree) = tree::parse(&mut report) else { return Err(report) };
        let config = decode::decode_knowing(&mut tree, &mut report, plugins::known_of_sources);
        let raw = tree.to_value();
        let mut problems = Problems::default();
        let path = Path::root().key("plugins");
        let load = |config: &Config| plugins::load(&config.plugins, &base, &path, &mut problems);
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
        Ok(Self { config, raw, hash, base, plugins, report, tree })
    }

    /// The files that it was read from, if it came from `file`; a new plugin's is one that is beside them.
    #[must_use]
    pub(crate) fn files(&self, file: &FilePath) -> Vec<PathBuf> {
        let folder = self.config.as_ref().and_then(|config| config.plugins.path.as_ref());
        let any = folder.map(|folder| self.base.resolve(folder).join("any"));
        let sources = [&self.report].into_iter().chain(self.plugins.iter().map(|plugin| &plugin.report));
        let of_plugins = sources.flat_map(Report::sources).map(|(name, _)| PathBuf::from(name));
        let files = [file.to_owned()].into_iter().chain(any).chain(of_plugins).collect::<BTreeSet<_>>();
        files.into_iter().collect()
    }

    /// All that is wrong, with `problems`, which the building of the parts found.
    #[must_use]
    pub(crate) fn report(mut self, problems: Vec<Problem>) -> Report {
        for problem in problems {
            self.report.add(&self.tree, problem);
        }
        for plugin in self.plugins {
            self.report.join(plugin.report);
        }
        self.report.sort();
        self.report
    }
}

/// The JSON Schema (2020-12) of a configuration file.
#[must_use]
pub(crate) fn schema() -> Schema {
    let mut schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<Config>();
    schema.insert("title".into(), "appset-gateway configuration".into());
    schema
}
