//! The file of `cmp-gateway serve`: several plugins, their limits, and where they are served.

pub(crate) mod reading;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub(crate) use self::reading::ConfigError;
use crate::{archive::ArchiveLimits, guard::GuardConfig, traces::TracesConfig};
use domain::{
    file::base_dir::BaseDir,
    secret::SecretRef,
    units::{ByteSize, HumanDuration},
};
use launcher::Network;
use telemetry::log::LogConfig;
use tls::TlsConfig;

/// The folder where Argo CD looks for sockets of plugins, unless `ARGOCD_PLUGINSOCKFILEPATH` is set.
pub(crate) const SOCKETS: &str = "/home/argocd/cmp-server/plugins";
/// The time of a run if neither the caller nor a setting limits it.
const TIMEOUT: HumanDuration = HumanDuration(std::time::Duration::from_secs(90));

/// The time of a run without a limit: a year.
const NO_LIMIT: HumanDuration = HumanDuration(std::time::Duration::from_hours(365 * 24));

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ServeConfig {
    /// The folder of the plugins' sockets: `name.sock`, or `name-version.sock`.
    #[serde(default = "sockets")]
    pub(crate) sockets: PathBuf,
    /// The address of probes and metrics, such as `0.0.0.0:8090`.
    pub(crate) admin: Option<std::net::SocketAddr>,
    /// The folder of archives and trees. Emptied at the start.
    pub(crate) work: Option<PathBuf>,
    /// The listener for other machines, by TLS. None unless set.
    pub(crate) listen: Option<ListenConfig>,
    /// The log.
    #[serde(default)]
    pub(crate) log: LogConfig,
    /// The collector of spans. None unless set.
    pub(crate) traces: Option<TracesConfig>,
    /// The bytes of all trees that are kept for the next calls.
    #[serde(default = "trees")]
    pub(crate) trees: ByteSize,
    /// How many programs of all plugins run at once.
    pub(crate) concurrency: Option<usize>,
    /// The plugins.
    pub(crate) plugins: Vec<PluginSettings>,
    /// The folder of the file.
    #[serde(skip)]
    pub(crate) base: BaseDir,
}

/// A listener for other machines.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ListenConfig {
    /// The address, such as `0.0.0.0:8443`.
    pub(crate) address: std::net::SocketAddr,
    /// The certificate, and the CA of callers' certificates.
    pub(crate) tls: TlsConfig,
    /// The tokens of callers. A caller needs one of them, or a certificate of `tls.clientCa`.
    #[serde(default)]
    pub(crate) tokens: Vec<SecretRef>,
    /// How many calls each token or certificate may have under way. No limit unless set.
    pub(crate) calls_per_caller: Option<usize>,
}

/// A plugin: its `plugin.yaml`, and everything that Argo CD has no key for.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct PluginSettings {
    /// Its `plugin.yaml`, or the folder of that.
    pub(crate) config: PathBuf,
    /// The time of a run, `init` included. The caller's deadline counts too. `ARGOCD_EXEC_TIMEOUT` unless set, else 90 s.
    pub(crate) timeout: Option<HumanDuration>,
    /// How many of its programs run at once.
    pub(crate) concurrency: Option<usize>,
    /// The limits of each process.
    pub(crate) limits: Limits,
    /// The limits of the archives that Argo CD sends.
    pub(crate) archive: ArchiveLimits,
    /// The most that it may write to stdout.
    pub(crate) max_output: ByteSize,
    /// Whether blank output means that there are no manifests. Argo CD then deletes all that were there.
    pub(crate) allow_blank: bool,
    /// Whether equal files and variables give equal manifests, which are then kept for other Applications.
    pub(crate) hermetic: Option<HermeticConfig>,
    /// What happens when equal inputs give fewer resources.
    pub(crate) guard: GuardConfig,
    /// How many work folders of failed runs are kept, the newest ones. None unless set.
    pub(crate) keep_failed: usize,
    /// What all of these may take on the disk.
    pub(crate) max_kept: ByteSize,
    /// Whether it sees the repository's `.git`.
    pub(crate) git: bool,
    /// Whether its runs get the repository's Git credentials, if a relay passes them on and plugin.yaml has `provideGitCreds`.
    pub(crate) git_credentials: bool,
    /// Its network.
    pub(crate) network: Network,
    /// Which Applications may use it.
    pub(crate) allow: Allow,
    /// The files that it may use, besides those of the system, its own program's, and its tree.
    pub(crate) files: Files,
    /// Which variables of the gateway it gets. All unless set.
    pub(crate) inherit_env: Option<Vec<String>>,
}

impl Default for PluginSettings {
    fn default() -> Self {
        Self {
            config: PathBuf::new(),
            timeout: None,
            concurrency: None,
            limits: Limits::default(),
            archive: ArchiveLimits::default(),
            max_output: ByteSize::mib(64),
            allow_blank: false,
            hermetic: None,
            guard: GuardConfig::default(),
            keep_failed: 0,
            max_kept: ByteSize::mib(256),
            git: false,
            git_credentials: false,
            network: Network::Host,
            allow: Allow::default(),
            files: Files::default(),
            inherit_env: None,
        }
    }
}

impl PluginSettings {
    /// As argocd-cmp-server runs a plugin: with `.git`, and with every file that the container has.
    pub(crate) fn as_sidecar(config: PathBuf) -> Self {
        let files = Files { read: Vec::new(), write: vec!["/".into()] };
        // A copy of the tree is written for each run, and `.git` may have large packs.
        let limits = Limits { file_size: ArchiveLimits::default().bytes, ..Limits::default() };
        Self { config, git: true, files, limits, ..Self::default() }
    }

    /// The time of a run.
    pub(crate) fn timeout(&self) -> std::time::Duration {
        self.timeout.or_else(exec_timeout).unwrap_or(TIMEOUT).0
    }
}

/// `ARGOCD_EXEC_TIMEOUT`, as Argo CD's other programs read it: 0 is no limit. argocd-cmp-server documents it and ignores it.
fn exec_timeout() -> Option<HumanDuration> {
    let text = std::env::var("ARGOCD_EXEC_TIMEOUT").ok()?;
    let time: HumanDuration = serde_json::from_value(serde_json::Value::String(text)).ok()?;
    Some(if time.0.is_zero() { NO_LIMIT } else { time })
}

/// The limits of each process of a plugin. None unless set, but for the size of files.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Processor time.
    pub(crate) cpu: Option<HumanDuration>,
    /// Memory that it may write to.
    pub(crate) memory: Option<ByteSize>,
    /// The largest file that it may write.
    pub(crate) file_size: ByteSize,
    /// Open files.
    pub(crate) open_files: Option<u64>,
    /// Processes of its user. Those of other containers with the same user count too.
    pub(crate) processes: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { cpu: None, memory: None, file_size: ByteSize::mib(1024), open_files: None, processes: None }
    }
}

/// Which Applications may use a plugin. All unless set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Allow {
    /// Their projects, as globs.
    pub(crate) projects: Option<Vec<String>>,
    /// The URLs of their repositories, as globs.
    pub(crate) repositories: Option<Vec<String>>,
}

/// What a hermetic plugin depends on besides its files.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HermeticConfig {
    /// The variables of a call that runs get. They get no others.
    #[serde(default)]
    pub(crate) env: Vec<String>,
    /// What all kept manifests may take.
    #[serde(default = "outputs")]
    pub(crate) size: ByteSize,
}

/// Files of a plugin.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Files {
    /// What it may read and run.
    pub(crate) read: Vec<PathBuf>,
    /// What it may change.
    pub(crate) write: Vec<PathBuf>,
}

impl ServeConfig {
    /// Reads `file`. Relative paths start from its folder.
    ///
    /// # Errors
    /// When it cannot be read, or has a mistake.
    pub(crate) fn read(file: &Path) -> Result<Self, ConfigError> {
        let (mut config, root) = reading::read::<Self>(file)?;
        config.work = config.work.map(|work| root.join(&work));
        config.sockets = root.join(&config.sockets);
        config.base = root.base();
        for plugin in &mut config.plugins {
            plugin.config = root.join(&plugin.config);
            let Files { read, write } = &mut plugin.files;
            for path in read.iter_mut().chain(write) {
                *path = root.join(path);
            }
        }
        Ok(config)
    }
}

fn sockets() -> PathBuf {
    SOCKETS.into()
}

fn outputs() -> ByteSize {
    ByteSize::mib(64)
}

fn trees() -> ByteSize {
    ByteSize::mib(1024)
}

/// When a file was changed last, and its size. Follows links, as those of a mounted ConfigMap.
pub(crate) fn stamp(file: &Path) -> Option<(std::time::SystemTime, u64)> {
    let data = file.metadata().ok()?;
    Some((data.modified().ok()?, data.len()))
}
