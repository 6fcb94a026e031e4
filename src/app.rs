//! Builds everything that answers requests from a configuration. There are no globals; the caller provides the clock and the sockets.

mod explaining;
pub(crate) mod file_watch;
mod history;
mod in_flight;
mod outline;
mod reload;
mod repeats;
mod setup;
mod startup;

use std::{future::pending, path::Path as FilePath, pin::pin, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use futures_util::FutureExt as _;
use tokio::sync::{Semaphore, watch};

pub use self::outline::Changes;
pub(crate) use self::{
    explaining::Explaining,
    history::{History, SAMPLED_EVERY},
    in_flight::{InFlight, RequestSlot},
    outline::Outline,
    reload::{Attempt, Reloads},
    repeats::Repeats,
    setup::Setup,
};
use crate::{
    app::file_watch::Renewals,
    collector::Traces,
    config::{Loaded, Report},
};
use auth::Sessions;
use domain::{
    clock::{Clock, Timestamp},
    file::base_dir::BaseDir,
    lifecycle::{Lifecycle, Phase},
    problem::{Path, Problems},
    replay::Sources,
};
use engine::{
    answer::Engine,
    cache::{CacheLimits, Disk, Memory, Place, Trouble},
    replica::Replica,
};
use lang::evaluator::Evaluators;
use launcher::{Exposure, Launchers, Reader};
use push::Push;
use telemetry::metrics::Metrics;
use tls::ServerTls;

/// How often the gateway checks whether a held answer is due to be confirmed.
const CONFIRM_EVERY: Duration = Duration::from_secs(1);
/// How often opening the cache file is retried while another process holds it.
const LOCKED_RETRY: Duration = Duration::from_secs(1);

/// Everything that lives as long as the process.
pub struct App {
    /// The certificate and key of the main listener, which is cleartext without them.
    pub tls: Option<Arc<ServerTls>>,
    /// The same of the admin listener.
    pub admin_tls: Option<Arc<ServerTls>>,
    /// Answers queries.
    pub engine: Arc<Engine>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// Sends traces.
    pub traces: Traces,
    /// Starts scripts.
    pub(crate) launchers: Arc<Launchers>,
    /// Counts the requests under way.
    pub in_flight: InFlight,
    /// Follows events of hooks, and refreshes ApplicationSets.
    pub push: Arc<Push>,
    /// The explanations under way.
    pub(crate) explaining: Explaining,
    /// How much the routes served lately.
    pub(crate) history: History,
    /// When the process started.
    pub(crate) started: Timestamp,
    /// The right to list the last questions with their answers, which takes much memory.
    pub(crate) recordings: Semaphore,
    /// The results of reloads.
    pub(crate) reloads: Reloads,
    /// The sessions of people at the page.
    pub(crate) sessions: Sessions,
    /// The phase of the process: serving, or on its way to the exit.
    pub lifecycle: Arc<Lifecycle>,
    setup: ArcSwap<Setup>,
    /// The number of the setup in use. Background work watches it.
    generation: watch::Sender<u64>,
    common: Common,
    limits: CacheLimits,
    base: BaseDir,
}

/// The parts that all setups of the process share.
struct Common {
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    launchers: Arc<Launchers>,
    /// Start the programs of candidates, so that these take no permit from others.
    isolated_launchers: Arc<Launchers>,
    evaluators: Arc<Evaluators>,
    /// For the candidates of shadows.
    isolated_evaluators: Arc<Evaluators>,
    sources: Option<Arc<dyn Sources>>,
}

impl App {
    /// Builds everything that `loaded` describes. Opens no socket and runs no backend. `program` is the gateway's own program:
    /// [`launcher::own_program`], except in tests.
    ///
    /// [`launcher::own_program`]: launcher::own_program
    ///
    /// # Errors
    /// A report with all problems of the configuration. On success, the report may have warnings.
    pub fn build(loaded: Loaded, clock: Arc<dyn Clock>, program: &FilePath) -> Result<(Self, Report), Report> {
        Self::build_with(loaded, clock, program, None)
    }

    /// The same, with `sources` between the backends and their sources.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub(crate) fn build_with(
        loaded: Loaded,
        clock: Arc<dyn Clock>,
        program: &FilePath,
        sources: Option<Arc<dyn Sources>>,
    ) -> Result<(Self, Report), Report> {
        let Some(config) = loaded.config.clone() else { return Err(loaded.report(Vec::new())) };
        let metrics = match Metrics::new() {
            Ok(metrics) => Arc::new(metrics),
            Err(error) => {
                let mut problems = Problems::default();
                problems.error(&Path::root(), format!("the metrics cannot be set up: {error}"));
                return Err(loaded.report(problems.into_vec()));
            }
        };
        let Ok(sessions) = Sessions::new() else {
            let mut problems = Problems::default();
            problems.error(&Path::root(), "the system gives no random bytes");
            return Err(loaded.report(problems.into_vec()));
        };
        let base = loaded.base.clone();
        let shared =
            config.cache.shared.as_ref().and_then(|store| Replica::build(store, &base, &clock, &metrics.store));
        let clock = shared.as_ref().map_or(clock, |shared| shared.clock());
        let launchers = || {
            let launchers = Launchers::new(program.to_owned(), config.scripts.concurrency);
            Arc::new(launchers.counted(metrics.programs.clone()).with_sources(sources.clone()))
        };
        let (launchers, isolated_launchers) = (launchers(), launchers());
        let evaluators = Evaluators::new(program, metrics.evaluations.clone());
        // Without a shadow it starts no process.
        let isolated_evaluators = Evaluators::new(program, metrics.evaluations.clone());
        let (same_clock, same_metrics) = (Arc::clone(&clock), Arc::clone(&metrics));
        let common = Common {
            clock: same_clock,
            metrics: same_metrics,
            launchers,
            isolated_launchers,
            evaluators,
            isolated_evaluators,
            sources,
        };
        let (setup, startup, report) = Setup::build(loaded, &common, None)?;
        metrics.reloads.record_start(setup.generation, setup.since);
        metrics.process.started(setup.since);
        let engine =
            Arc::new(Engine::new(Memory::new(&config.cache), shared, Arc::clone(&clock), Arc::clone(&metrics)));
        let lifecycle = Arc::<Lifecycle>::default();
        let push =
            Push::new(Arc::clone(&engine), Arc::clone(&metrics), clock, Arc::clone(&lifecycle), setup.for_push());
        let app = Self {
            tls: startup.tls,
            admin_tls: startup.admin_tls,
            engine,
            push: Arc::new(push),
            metrics,
            traces: startup.traces,
            launchers: Arc::clone(&common.launchers),
            in_flight: InFlight::default(),
            explaining: Explaining::default(),
            history: History::default(),
            started: setup.since,
            recordings: Semaphore::new(1),
            reloads: Reloads::begin(&setup),
            sessions,
            lifecycle,
            generation: watch::Sender::new(setup.generation),
            setup: ArcSwap::from_pointee(setup),
            common,
            limits: config.cache,
            base,
        };
        Ok((app, report))
    }

    /// The same app with `backend` behind all routes.
    #[cfg(test)]
    pub(crate) fn with_backend(self, backend: &Arc<dyn source::Backend>) -> Self {
        let none = push::Current { routes: Arc::new(engine::route::RouteTable::new(Vec::new())), argocd: None };
        self.push.set_current(none);
        let mut setup = Arc::into_inner(self.setup.into_inner()).expect("nothing else holds the setup yet");
        Arc::get_mut(&mut setup.routes).expect("nothing else holds the routes yet").replace_backends(backend);
        self.push.set_current(setup.for_push());
        Self { setup: ArcSwap::from_pointee(setup), ..self }
    }

    /// The time.
    pub(crate) fn now(&self) -> Timestamp {
        self.common.clock.now()
    }

    /// Why scripts or credential helpers could read the service account's token or the store's password. Empty if none could.
    pub(crate) fn exposed_secrets(&self) -> Vec<String> {
        let argocd = self.setup().argocd.as_ref().and_then(|argocd| argocd.token_file());
        let store = self.limits.shared.as_ref().and_then(|store| store.password.as_ref()?.file(&self.base));
        let secrets = [("argocd.refresh.token", argocd), ("cache.shared.password", store)];
        let exposed = secrets.into_iter().filter_map(|(key, file)| {
            let file = file?;
            let launchers = [&self.launchers, &self.common.isolated_launchers];
            let Exposure { reader, why } = launchers.into_iter().find_map(|launchers| launchers.why_exposed(&file))?;
            let advice = match reader {
                Reader::Script => "a script that reads it can do what the gateway can; set `user` of the scripts, or narrow their `allow`",
                Reader::Helper => {
                    "a helper that reads it can do what the gateway can; move it to a folder that holds no helper, and that none of the \
                     helpers' variables names"
                }
            };
            Some(format!("{reader} can read a secret: {key}: {why}: {advice}"))
        });
        exposed.collect()
    }

    /// The setup in use.
    #[must_use]
    pub fn setup(&self) -> Arc<Setup> {
        self.setup.load_full()
    }

    /// Opens the file of last good answers, if `cache.path` is set. This is not part of [`Self::build`], because only one process can hold the
    /// file. If it cannot be opened, the gateway logs that and serves without it.
    pub fn open_disk(self: &Arc<Self>) {
        let Some(path) = &self.limits.path else { return };
        let path = self.base.resolve(path);
        let open = move |app: &Self| {
            let disk = Disk::open(&Place::of(&path), app.limits.disk, app.metrics.disk.clone(), &app.common.clock)?;
            app.engine.keep_on(disk, &app.setup().routes);
            Ok::<(), Trouble>(())
        };
        let Err(why) = open(self) else { return self.count_served() };
        self.metrics.disk.errors.inc();
        self.engine.answers().miss_disk();
        tracing::error!(%why, "last good answers live in memory only: `cache.path` cannot be used");
        if let Trouble::Locked(_) = why {
            let app = Arc::downgrade(self);
            let runtime = tokio::runtime::Handle::try_current();
            // The previous gateway holds the file, and will exit soon.
            std::thread::spawn(move || {
                loop {
                    std::thread::sleep(LOCKED_RETRY);
                    let Some(app) = app.upgrade() else { return };
                    match open(&app) {
                        Err(Trouble::Locked(_)) => {}
                        Ok(()) => {
                            tracing::info!("the file of last good answers is free now, and in use");
                            app.count_served();
                            return drop(runtime.map(|runtime| runtime.spawn(async move { app.warm_up().await })));
                        }
                        Err(why) => return tracing::error!(%why, "the file of last good answers cannot be used"),
                    }
                }
            });
        }
    }

    /// Takes over from the file, in the background, the answers that each route serves.
    fn count_served(self: &Arc<Self>) {
        let app = Arc::downgrade(self);
        std::thread::spawn(move || {
            if let Some(app) = app.upgrade() {
                app.engine.restore_served(&app.setup().routes);
            }
        });
    }

    /// Reads tokens, keys and certificates again whenever their files may have changed, and fetches the keys of issuers. Never returns.
    pub async fn renew(&self) {
        let mut generation = self.generation.subscribe();
        loop {
            let auth = Arc::clone(&self.setup().auth);
            let files: Vec<_> = auth.files().into_iter().chain(self.all_tls().flat_map(|tls| tls.files())).collect();
            let mut renewals = Renewals::of(&files);
            let mut keeping = pin!(auth.keep_fresh().then(|()| pending::<()>()));
            loop {
                tokio::select! {
                    () = renewals.next() => {}
                    () = &mut keeping => {}
                    _ = generation.changed() => break,
                }
                auth.refresh();
                self.all_tls().for_each(|tls| tls.refresh());
            }
        }
    }

    /// The certificates of all listeners.
    fn all_tls(&self) -> impl Iterator<Item = &Arc<ServerTls>> {
        self.tls.iter().chain(&self.admin_tls)
    }

    /// Starts the workers that backends want ready before the first call.
    pub fn start_workers(&self) {
        self.setup().routes.iter().for_each(|route| route.backend.start());
    }

    /// Ends all programs that still run.
    pub(crate) async fn close_launchers(&self) {
        tokio::join!(self.launchers.close(), self.common.isolated_launchers.close());
    }

    /// Runs the backends for all known queries again, so that answers are fresh. Stops when the gateway drains.
    pub(crate) async fn warm_up(&self) {
        if let Some(shared) = self.engine.replica() {
            shared.first_contact().await;
        }
        let setup = self.setup();
        tokio::select! {
            _ = self.engine.warm_up(&setup.routes) => {}
            () = self.lifecycle.reached(Phase::Draining) => {}
        }
    }

    /// Follows the shared store. Returns when the gateway has ended, or at once if there is no store.
    pub async fn follow_store(&self) {
        let Some(shared) = self.engine.replica() else { return };
        let mut watching = pin!(shared.watch());
        let mut ended = pin!(self.lifecycle.reached(Phase::Ended));
        loop {
            let synced = async {
                let result = self.engine.sync(&self.setup().routes).await;
                shared.note_result(&result);
                shared.due(&result).await;
            };
            tokio::select! {
                () = synced => {}
                () = &mut watching => {}
                () = &mut ended => return,
            }
        }
    }

    /// Runs the backends for held answers again, at the times that the guard sets. Returns when the gateway drains.
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

    /// Updates the metrics that are measured rather than counted.
    pub(crate) fn observe(&self) {
        self.engine.observe();
        self.engine.observe_routes(&self.setup().routes);
        self.metrics.process.observe();
        self.sample();
        self.metrics.set_max_in_flight(self.setup().server.max_in_flight);
        if let Some(first) = self.all_tls().map(|tls| tls.not_after()).min() {
            self.metrics.connections.valid_until(first);
        }
    }
}
