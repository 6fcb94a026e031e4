//! The wiring: from a configuration to everything that answers. No globals; clock and sockets are
//! handed in.

pub(crate) mod file_watch;
mod in_flight;
mod outline;
mod reload;
mod setup;

use std::{future::pending, path::Path as FilePath, pin::pin, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::sync::watch;

pub use self::outline::Changes;
pub(crate) use self::{
    in_flight::{InFlight, RequestSlot},
    outline::Outline,
    reload::{Attempt, Reloads},
    setup::Setup,
};
use crate::{
    app::file_watch::Renewals,
    clients::{collector::Traces, launcher::Launchers},
    config::{Loaded, Report},
    domain::{
        clock::Clock,
        lifecycle::{Lifecycle, Phase},
        problem::{Path, Problems},
    },
    engine::{
        answer::Engine,
        cache::{CacheLimits, Disk, Memory, Trouble},
    },
    file::base_dir::BaseDir,
    lang::evaluator::Evaluators,
    telemetry::metrics::Metrics,
    tls::Tls,
};

/// How often the gateway looks whether a held answer must be asked about again.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);
/// How often a file is tried that another process holds.
const LOCKED_RETRY: Duration = Duration::from_secs(1);

/// Everything that a request may need.
pub struct App {
    /// Who we are on the main listener; it is cleartext without it.
    pub tls: Option<Arc<Tls>>,
    /// How questions are answered.
    pub engine: Engine,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Traces of what is done.
    pub traces: Traces,
    /// Where scripts are started.
    pub(crate) launchers: Arc<Launchers>,
    /// The requests under way.
    pub in_flight: InFlight,
    /// What came of attempts to take another configuration.
    pub(crate) reloads: Reloads,
    /// The phase of the process: serving, or on its way to the exit.
    pub lifecycle: Lifecycle,
    setup: ArcSwap<Setup>,
    /// Tells that there is another setup.
    generation: watch::Sender<u64>,
    common: Common,
    limits: CacheLimits,
    base: BaseDir,
}

/// What all configurations of a process share.
struct Common {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    launchers: Arc<Launchers>,
    evaluators: Arc<Evaluators>,
}

impl App {
    /// Builds everything that `loaded` describes. Opens no socket and runs no backend. `program` is the gateway's own,
    /// [`launcher::own_program`] but in tests.
    ///
    /// [`launcher::own_program`]: crate::clients::launcher::own_program
    ///
    /// # Errors
    /// With all problems of the configuration. A report comes with success too: it may hold warnings.
    pub fn build(loaded: Loaded, clock: Arc<dyn Clock>, program: &FilePath) -> Result<(Self, Report), Report> {
        let Some(config) = loaded.config.clone() else { return Err(loaded.report(Vec::new())) };
        let metrics = match Metrics::new() {
            Ok(metrics) => Arc::new(metrics),
            Err(error) => {
                let mut problems = Problems::default();
                problems.error(&Path::root(), format!("the metrics cannot be set up: {error}"));
                return Err(loaded.report(problems.into_vec()));
            }
        };
        let base = loaded.base.clone();
        let launchers = Launchers::new(program.to_owned(), config.scripts.concurrency);
        let launchers = Arc::new(launchers.counted(metrics.programs.clone()));
        let evaluators = Evaluators::new(program, metrics.evaluations.clone());
        let common = Common { clock: Arc::clone(&clock), metrics: Arc::clone(&metrics), launchers, evaluators };
        let (mut setup, report) = Setup::build(loaded, &common, None)?;
        metrics.reloads.begun(setup.generation, setup.since);
        metrics.process.started(setup.since);
        let app = Self {
            tls: setup.tls.take(),
            engine: Engine::new(Memory::new(&config.cache), clock, Arc::clone(&metrics)),
            metrics,
            traces: std::mem::take(&mut setup.traces),
            launchers: Arc::clone(&common.launchers),
            in_flight: InFlight::default(),
            reloads: Reloads::begin(&setup),
            lifecycle: Lifecycle::default(),
            generation: watch::Sender::new(setup.generation),
            setup: ArcSwap::from_pointee(setup),
            common,
            limits: config.cache,
            base,
        };
        Ok((app, report))
    }

    /// The same with another backend behind all routes.
    #[cfg(test)]
    pub(crate) fn with_backend(self, backend: &Arc<dyn crate::backend::Backend>) -> Self {
        let setup = Arc::into_inner(self.setup.into_inner()).map(|mut setup| {
            setup.routes.replace_backends(backend);
            setup
        });
        Self { setup: ArcSwap::from_pointee(setup.expect("nobody has it yet")), ..self }
    }

    /// What the configuration in use says.
    #[must_use]
    pub fn setup(&self) -> Arc<Setup> {
        self.setup.load_full()
    }

    /// Opens the file of last good answers, if one is configured. Not part of [`Self::build`], since only one process can
    /// hold it. A disk in trouble is told and survived.
    pub fn open_disk(self: &Arc<Self>) {
        let Some(path) = &self.limits.path else {
            tracing::info!("last good answers live in memory only; set `cache.path` to keep them over a restart");
            return;
        };
        let path = self.base.resolve(path);
        let open = move |app: &Self| {
            let disk = Disk::open(&path, app.limits.disk, app.metrics.disk.clone(), &app.common.clock)?;
            app.engine.keep_on(disk, &app.setup().routes);
            Ok::<(), Trouble>(())
        };
        let Err(why) = open(self) else { return };
        self.metrics.disk.errors.inc();
        self.engine.answers().miss_disk();
        tracing::error!(%why, "last good answers live in memory only: `cache.path` cannot be used");
        if let Trouble::Locked(_) = why {
            let app = Arc::downgrade(self);
            let runtime = tokio::runtime::Handle::try_current();
            // The gateway before this one, which ends soon.
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(LOCKED_RETRY);
                    let Some(app) = app.upgrade() else { return };
                    match open(&app) {
                        Err(Trouble::Locked(_)) => {}
                        Ok(()) => {
                            tracing::info!("the file of last good answers is free, and used");
                            return drop(runtime.map(|runtime| runtime.spawn(async move { app.warm_up().await })));
                        }
                        Err(why) => return tracing::error!(%why, "the file of last good answers cannot be used"),
                    }
                }
            });
        }
    }

    /// Reads tokens, keys and certificates again whenever their files may have been renewed, and asks issuers for their keys, for as
    /// long as it is polled.
    pub async fn renew(&self) {
        let mut generation = self.generation.subscribe();
        loop {
            let auth = Arc::clone(&self.setup().auth);
            let files: Vec<_> = auth.files().into_iter().chain(self.tls.iter().flat_map(|tls| tls.files())).collect();
            let mut renewals = Renewals::of(&files);
            let mut keeping = pin!(auth.keep_fresh().then(|()| pending::<()>()));
            loop {
                tokio::select! {
                    () = renewals.next() => {}
                    () = &mut keeping => {}
                    _ = generation.changed() => break,
                }
                auth.refresh();
                self.tls.iter().for_each(|tls| tls.refresh());
            }
        }
    }

    /// Starts what backends want ready before the first call.
    pub fn start_ahead(&self) {
        self.setup().routes.iter().for_each(|route| route.backend.start_ahead());
    }

    /// Asks again what is known, until the gateway is going to end.
    pub(crate) async fn warm_up(&self) {
        let setup = self.setup();
        tokio::select! {
            _ = self.engine.warm_up(&setup.routes) => {}
            () = self.lifecycle.reached(Phase::Draining) => {}
        }
    }

    /// Asks again about what is held, at the times that the guard says, for as long as the gateway serves.
    pub(crate) async fn confirm_held(&self) {
        let mut ticks = tokio::time::interval(CONFIRM_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut draining = pin!(self.lifecycle.reached(Phase::Draining));
        loop {
            tokio::select! {
                _ = ticks.tick() => self.engine.confirm_due(&self.setup().routes),
                () = &mut draining => return,
            }
        }
    }

    /// Brings those metrics up to date that are looked at rather than counted.
    pub(crate) fn observe(&self) {
        self.engine.observe();
        self.engine.observe_routes(&self.setup().routes);
        self.metrics.process.observe();
        if let Some(tls) = &self.tls {
            self.metrics.connections.valid_until(tls.not_after());
        }
    }
}
