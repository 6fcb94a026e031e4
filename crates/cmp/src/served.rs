//! A plugin that is served: its file as it is now, its verdicts, and its runs.

pub(crate) mod allow;
mod answers;
pub(crate) mod calls;
mod credentials;
mod outputs;
pub(crate) mod received;
pub(crate) mod verdicts;

use std::{path::PathBuf, sync::Arc, time::SystemTime};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::{
    allow::AllowRules,
    credentials::Offers,
    outputs::{HermeticError, Outputs},
    verdicts::Verdicts,
};
use crate::{
    config::{PluginSettings, stamp},
    guard::Guard,
    kept::{KeptError, KeptFolders},
    metrics::PluginMetrics,
    plugin::{Plugin, PluginError},
    run::{RunEnvironment, Runner},
    trees::Trees,
};
use domain::glob::GlobError;
use launcher::Launchers;
use telemetry::trace::Tracer;

/// What all plugins share.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    /// Starts programs.
    pub(crate) launchers: Arc<Launchers>,
    /// The trees.
    pub(crate) trees: Arc<Trees>,
    /// The folder of archives that are larger than the memory for them.
    pub(crate) spool: PathBuf,
    /// The folder of the folders of failed runs. Made when it is needed.
    pub(crate) failed_runs: PathBuf,
    /// The folder of sockets for Git credentials.
    pub(crate) askpass: PathBuf,
    /// Begins the spans of calls.
    pub(crate) tracer: Arc<Tracer>,
}

/// A plugin that is served.
#[derive(Debug)]
pub(crate) struct Served {
    file: PathBuf,
    seen: Mutex<FileState>,
    plugin: ArcSwap<Plugin>,
    runner: Runner,
    environment: RunEnvironment,
    allow: AllowRules,
    verdicts: Verdicts,
    guard: Arc<Guard>,
    offers: Offers,
    outputs: Option<Outputs>,
    metrics: PluginMetrics,
    common: Common,
}

/// What the file looked like when it was read last.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    stamp: Option<(SystemTime, u64)>,
}

/// Why a plugin cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServedError {
    /// Its file.
    #[error("{0}")]
    Plugin(#[from] PluginError),
    /// A glob of `allow`.
    #[error("allow: {0}")]
    Allow(#[from] GlobError),
    /// `hermetic`.
    #[error("{0}")]
    Hermetic(#[from] HermeticError),
    /// `keepFailed`.
    #[error("{0}")]
    Kept(#[from] KeptError),
}

impl Served {
    /// Reads the plugin's file.
    ///
    /// # Errors
    /// When the plugin cannot be served.
    pub(crate) fn new(
        settings: PluginSettings,
        common: &Common,
        concurrency: usize,
        metrics: impl FnOnce(&str) -> PluginMetrics,
    ) -> Result<Self, ServedError> {
        let file = Plugin::file(&settings.config);
        let stamp = stamp(&file);
        let plugin = Plugin::read(&file)?;
        for warning in &plugin.warnings {
            tracing::warn!(plugin = plugin.full_name(), file = %file.display(), "{warning}");
        }
        if !plugin.has_discovery() {
            let name = plugin.full_name();
            tracing::info!("the plugin has no discovery: Applications use it by `spec.source.plugin.name: {name}`");
        }
        let allow = AllowRules::new(&settings.allow)?;
        let kept = KeptFolders::new(&settings, common.failed_runs.join(plugin.full_name()))?;
        let outputs = Outputs::new(&settings)?;
        let few = outputs.is_some().then(|| outputs::INHERITED.map(str::to_owned).to_vec());
        let inherited = settings.inherit_env.clone().or(few);
        Ok(Self {
            environment: RunEnvironment::of_process(inherited.as_deref()),
            outputs,
            metrics: metrics(&plugin.full_name()),
            plugin: ArcSwap::from_pointee(plugin),
            seen: Mutex::new(FileState { stamp }),
            verdicts: Verdicts::default(),
            guard: Arc::new(Guard::new(settings.guard, settings.allow_blank)),
            offers: Offers::default(),
            runner: Runner::new(&common.launchers, settings, concurrency, kept),
            common: common.clone(),
            allow,
            file,
        })
    }

    /// The plugin as its file is now. A call uses one state of it to its end.
    pub(crate) fn plugin(&self) -> Arc<Plugin> {
        let now = FileState { stamp: stamp(&self.file) };
        let mut seen = self.seen.lock();
        if *seen != now {
            *seen = now;
            self.reload();
        }
        self.plugin.load_full()
    }

    /// The places for its runs that are taken, and the calls that wait for one.
    pub(crate) fn load(&self) -> (usize, usize) {
        self.runner.queue.load()
    }

    fn reload(&self) {
        let current = self.plugin.load_full();
        let name = current.full_name();
        match Plugin::read(&self.file) {
            Ok(plugin) if plugin.full_name() != name => {
                let new = plugin.full_name();
                tracing::error!(
                    plugin = name,
                    new,
                    "plugin.yaml has another name or version, which needs a restart: the old one stays in use"
                );
            }
            Ok(plugin) => {
                if plugin.discover != current.discover {
                    self.verdicts.clear();
                }
                self.plugin.store(Arc::new(plugin));
                tracing::info!(plugin = name, "the changed plugin.yaml is in use");
            }
            Err(error) => {
                tracing::error!(plugin = name, %error, "the changed plugin.yaml is invalid: the old one stays in use");
            }
        }
    }
}
