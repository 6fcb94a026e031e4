//! The wiring: from a configuration to everything that answers. No globals; clock and sockets are
//! handed in.

use std::{
    path::Path as FilePath,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    answer::Engine,
    auth::Auth,
    backend::Surroundings,
    base_dir::BaseDir,
    cache::{CacheLimits, Disk, Memory, Trouble},
    clock::Clock,
    collector::Traces,
    config::{Config, Loaded, Report, ServerConfig},
    launcher::Launchers,
    oci::Registries,
    outbound::{Outbound, SystemNames},
    problem::{Path, Problem, Problems},
    renewal::Renewals,
    route::{RouteTable, check_deadline},
    telemetry::metrics::Metrics,
    units::HumanDuration,
};

/// How often a file is tried that another process holds.
const LOCKED_RETRY: Duration = Duration::from_secs(1);

/// Everything that a request may need.
pub struct App {
    /// The listeners and their limits.
    pub server: ServerConfig,
    /// Who may call.
    pub auth: Auth,
    /// Who answers what.
    pub routes: RouteTable,
    /// How it is answered.
    pub engine: Engine,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Traces of what is done.
    pub traces: Traces,
    /// Where scripts are started.
    pub launchers: Arc<Launchers>,
    /// The requests under way.
    pub in_flight: InFlight,
    limits: CacheLimits,
    base: BaseDir,
    is_draining: AtomicBool,
}

impl App {
    /// Builds everything that `loaded` describes. Opens no socket and runs no backend. `program` is the gateway's own,
    /// [`launcher::own_program`] but in tests.
    ///
    /// # Errors
    /// With all problems of the configuration. A report comes with success too: it may hold warnings.
    pub fn build(mut loaded: Loaded, clock: Arc<dyn Clock>, program: &FilePath) -> Result<(Self, Report), Report> {
        let mut problems = Problems::default();
        let root = Path::root();
        let Some(config) = loaded.config.clone() else { return Err(loaded.report(Vec::new())) };
        let metrics = match Metrics::new() {
            Ok(metrics) => Arc::new(metrics),
            Err(error) => {
                problems.error(&root, format!("the metrics cannot be set up: {error}"));
                return Err(loaded.report(problems.into_vec()));
            }
        };
        check_server(&config.server, &root.key("server"), &mut problems);
        let base = &loaded.base.clone();
        let auth = Auth::build(&config.auth, base, Arc::clone(&clock), &root.key("auth"), &mut problems);
        let (allowed, proxy) = config.outbound.build(base, &root.key("outbound"), &mut problems);
        let outbound = Outbound::new(Arc::clone(&clock)).reaching(Arc::new(SystemNames), &allowed, proxy);
        let outbound = Arc::new(outbound.counted(metrics.outbound.clone()));
        let traces = config.traces.as_ref().and_then(|traces| {
            Traces::build(traces, base, &outbound, &metrics.spans, &root.key("traces"), &mut problems)
        });
        let registries = Registries::build(
            &config.registries,
            base,
            &outbound,
            Arc::clone(&clock),
            &root.key("registries"),
            &mut problems,
        );
        let launchers = Launchers::new(program.to_owned(), config.scripts.concurrency);
        let launchers = Arc::new(launchers.counted(metrics.programs.clone()));
        if config.scripts.concurrency == 0 {
            problems.error(&root.key("scripts").key("concurrency"), "with 0 no script would ever run");
        }
        let around = Surroundings {
            raw: &serde_json::Value::Null,
            base,
            clock: &clock,
            outbound: &outbound,
            launchers: &launchers,
            registries: &registries,
            has_items: false,
            package: None,
        };
        let mut routes = RouteTable::build(
            &config.routes,
            &loaded.routes,
            config.server.deadline,
            around,
            &metrics,
            &root.key("routes"),
            &mut problems,
        );
        for problem in add_plugins(&mut routes, &mut loaded, config.server.deadline, around, &metrics) {
            problems.add(problem);
        }
        if routes.is_empty() && loaded.plugins.is_empty() {
            let help = "a route has at least a `name` and a `backend`";
            problems.error_with_help(&root.key("routes"), "there are no routes", help);
        }
        check_memory(&config, &root, &mut problems);
        let report = loaded.report(problems.into_vec());
        if report.has_errors() {
            return Err(report);
        }
        let app = Self {
            server: config.server,
            auth,
            routes,
            engine: Engine::new(Memory::new(&config.cache), clock, Arc::clone(&metrics)),
            metrics,
            traces: traces.unwrap_or_default(),
            launchers,
            in_flight: InFlight { now: AtomicUsize::new(0), most: config.server.max_in_flight },
            limits: config.cache,
            base: base.clone(),
            is_draining: AtomicBool::new(false),
        };
        Ok((app, report))
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
            let disk = Disk::open(&path, app.limits.disk, app.metrics.disk.clone())?;
            app.engine.keep_on(disk, &app.routes);
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

    /// Reads tokens again whenever their files may have been renewed, for as long as it is polled.
    pub async fn renew_tokens(&self) {
        let mut renewals = Renewals::of(&self.auth.files());
        loop {
            renewals.next().await;
            self.auth.refresh();
        }
    }

    /// Starts what backends want ready before the first call.
    pub fn start_ahead(&self) {
        self.routes.iter().for_each(|route| route.backend.start_ahead());
    }

    /// Asks again what is known, until the gateway is going to end.
    pub async fn warm_up(&self) {
        let draining = async {
            while !self.is_draining() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            _ = self.engine.warm_up(&self.routes) => {}
            () = draining => {}
        }
    }

    /// Makes `/readyz` say that no new calls are wanted.
    pub fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    /// Whether the gateway is going to end.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}

/// Builds the routes of all plugins, after those of the file; what stands in the file itself of what is wrong with them.
fn add_plugins(
    routes: &mut RouteTable,
    loaded: &mut Loaded,
    deadline: HumanDuration,
    around: Surroundings<'_>,
    metrics: &Metrics,
) -> Vec<Problem> {
    let mut of_file = Vec::new();
    for plugin in &mut loaded.plugins {
        let mut found = Vec::new();
        for (index, (config, raw)) in plugin.routes.iter().enumerate() {
            let around = Surroundings { base: &plugin.base, package: Some(&plugin.package), ..around };
            let mut problems = Problems::default();
            routes.add(config, raw, deadline, around, metrics, &Path::root(), &mut problems);
            // Of the second route only the name is another.
            let news = |problem: &Problem| index == 0 || problem.path == Path::root().key("name");
            found.extend(problems.into_vec().into_iter().filter(news));
        }
        of_file.extend(found.into_iter().filter_map(|problem| plugin.note(problem)));
    }
    of_file
}

fn check_server(server: &ServerConfig, path: &Path, problems: &mut Problems) {
    check_deadline(server.deadline, &path.key("deadline"), problems);
    if server.max_in_flight == 0 {
        problems.error(&path.key("maxInFlight"), "with 0 every request would be refused");
    }
    let at = path.key("connections");
    for (key, most) in [("most", server.connections.most), ("perPeer", server.connections.per_peer)] {
        if most == 0 {
            problems.error(&at.key(key), "with 0 nobody could connect");
        }
    }
    problems.check_not_zero(&at.key("idle"), server.connections.idle.0);
    problems.check_not_zero(&at.key("maxAge"), server.connections.max_age.0);
    if server.listen == server.admin && server.listen.port() != 0 {
        problems.error(&path.key("admin"), "`listen` and `admin` are the same address");
    }
}

/// Points out routes whose answers depend on what was built before, where a restart forgets that.
fn check_memory(config: &Config, root: &Path, problems: &mut Problems) {
    if config.cache.path.is_some() {
        return;
    }
    for (index, route) in config.routes.iter().enumerate() {
        if route.backend.takes_notes() && route.lineage.is_some() {
            problems.warning(
                &root.key("routes").index(index).key("lineage"),
                "without `cache.path` a restart forgets the images that stand in for a commit that is not built yet",
                "set `cache.path` to a file on a volume that outlives the process; else such a commit is answered after a restart as \
                 if nothing had ever been built, and with `onMissing: omit` its preview is deleted",
            );
        }
    }
}

/// A count of the requests under way, with an upper limit.
#[derive(Debug)]
pub struct InFlight {
    now: AtomicUsize,
    most: usize,
}

impl InFlight {
    /// A place for one more request, or `None` when all are taken.
    pub fn enter(&self) -> Option<Place<'_>> {
        let place = Place(self);
        if self.now.fetch_add(1, Ordering::Relaxed) < self.most { Some(place) } else { None }
    }

    /// How many requests are under way.
    #[must_use]
    pub fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    /// How many may be.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }
}

/// A request's place, free again when it is dropped.
#[derive(Debug)]
pub struct Place<'a>(&'a InFlight);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_come_back() {
        let in_flight = InFlight { now: AtomicUsize::new(0), most: 2 };
        let (first, second) = (in_flight.enter(), in_flight.enter());
        assert!(first.is_some() && second.is_some());
        assert!(in_flight.enter().is_none());
        assert_eq!(in_flight.now(), 2);
        drop(first);
        assert!(in_flight.enter().is_some());
    }
}
