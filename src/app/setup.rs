//! Everything that is built from one configuration: callers, routes and the parts that routes share. A reload builds a new setup.

use std::sync::Arc;

use serde_json::Value;

use super::{Common, Outline, Repeats, startup::Startup};
use crate::{
    config::{Config, Loaded, Report, ServerConfig},
    routes::{RouteTableBuilder, check_deadline},
};
use argocd::Argocd;
use auth::{Auth, AuthContext};
use backend::{BuildContext, Building, IsolatedClients};
use clouds::Pod;
use domain::{
    clock::Timestamp,
    file::base_dir::BaseDir,
    problem::{Path, Problem, Problems},
    section::Section,
};
use engine::route::RouteTable;
use hooks::Hooks;
use lang::scope::NameScope;
use launcher::Launchers;
use oci::{Registries, RegistriesMeans};
use outbound::{Outbound, SystemNames};

/// The parts of a configuration that all routes share. While they are unchanged, connections and the knowledge about hosts are kept.
const SHARED_PARTS: [&str; 3] = ["outbound", "identities", "registries"];

/// Everything that is built from one configuration. A request keeps the setup with which it began.
pub struct Setup {
    /// The listeners and their limits.
    pub server: ServerConfig,
    /// The callers.
    pub auth: Arc<Auth>,
    /// The routes.
    pub routes: Arc<RouteTable>,
    /// The requests that were sent before.
    pub(crate) repeats: Repeats,
    /// The webhooks.
    pub(crate) hooks: Hooks,
    /// Argo CD's side, if ApplicationSets are refreshed.
    pub(crate) argocd: Option<Arc<Argocd>>,
    /// The outline of the configuration, for comparing it with a new one.
    pub(crate) outline: Outline,
    /// The number of the setup; the first one has 1.
    pub(crate) generation: u64,
    /// When it came into use.
    pub(crate) since: Timestamp,
    /// How many routes were taken over from the previous setup, with everything that they hold.
    pub kept: usize,
    /// The hash of the configuration's files.
    pub(crate) hash: [u8; 32],
    shared: Clients,
}

/// The parts that all routes share.
#[derive(Clone)]
struct Clients {
    /// The parts of the configuration from which it was built.
    raw: Vec<Value>,
    outbound: Arc<Outbound>,
    registries: Arc<Registries>,
    /// The same for the candidates of shadows, if there are any.
    isolated: Option<Arc<IsolatedClients>>,
}

impl Setup {
    /// The parts for events and refreshes.
    pub(super) fn for_push(&self) -> push::Current {
        push::Current { routes: Arc::clone(&self.routes), argocd: self.argocd.clone() }
    }

    /// The HTTP clients of the routes, and those of the candidates of shadows, if there are any.
    pub(crate) fn outbound(&self) -> (&Arc<Outbound>, Option<&Arc<Outbound>>) {
        (&self.shared.outbound, self.shared.isolated.as_ref().map(|isolated| &isolated.outbound))
    }

    /// The registries of the routes.
    pub(crate) fn registries(&self) -> &Registries {
        &self.shared.registries
    }

    /// Builds everything that `loaded` describes, and takes over the unchanged parts of `before`. Opens no socket and runs no backend. What is
    /// used at the start only is returned beside it: a reload reports its problems, and drops it.
    ///
    /// # Errors
    /// A report with all problems of the configuration. On success, the report may have warnings.
    pub(super) fn build(
        mut loaded: Loaded,
        common: &Common,
        before: Option<&Self>,
    ) -> Result<(Self, Startup, Report), Report> {
        let (root, mut problems) = (Path::root(), Problems::default());
        let Some(config) = loaded.config.clone() else { return Err(loaded.report(Vec::new())) };
        check_server(&config, &root, &mut problems);
        let base = &loaded.base.clone();
        let part = |name: &str| loaded.raw.get(name).cloned().unwrap_or_default();
        let raw: Vec<Value> = SHARED_PARTS.map(part).into();
        let mut shared = match before {
            Some(before) if before.shared.raw == raw => before.shared.clone(),
            _ => Clients::build(&config, raw, base, common, &mut problems),
        };
        shared.set_isolated(&config, base, common);
        let parts = Parts { config: &config, loaded: &loaded, clients: &shared, before };
        let auth = parts.auth(common, &mut problems);
        let startup = Startup::build(&config, base, &shared.outbound, &common.metrics, &mut problems);
        let context = BuildContext {
            raw: &Value::Null,
            base,
            clock: &common.clock,
            outbound: &shared.outbound,
            launchers: &common.launchers,
            evaluator: &common.evaluators.of_route(),
            registries: &shared.registries,
            scope: &NameScope::input(),
            is_route: true,
            package: None,
            isolated: shared.isolated.as_deref(),
        };
        let (deadline, metrics) = (config.server.deadline, &*common.metrics);
        let raw = loaded.raw.get("routes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let at = root.key("routes");
        let mut routes = RouteTableBuilder::new(deadline, metrics);
        routes.add_all(&config.routes, raw, &mut Building::new(context, at.clone(), &mut problems));
        for problem in add_plugins(&mut routes, &mut loaded, context) {
            problems.add(problem);
        }
        if routes.is_empty() && loaded.plugins.is_empty() {
            let help = "a route has at least a `name` and a `backend`";
            problems.error_with_help(&at, "there are no routes", help);
        }
        let mut routes = routes.finish(&mut problems);
        let hooks = Hooks::build(&config.hooks, base, &common.evaluators.of_route(), &root.key("hooks"), &mut problems);
        hooks.iter().for_each(|hook| common.metrics.hooks.of(&hook.name));
        let parts = Parts { config: &config, loaded: &loaded, clients: &shared, before };
        let argocd = parts.argocd(&mut problems);
        check_memory(&config, &routes, &root, &mut problems);
        let (outline, hash) = (Outline::of(&loaded), loaded.hash);
        let report = loaded.report(problems.into_vec());
        if report.has_errors() {
            return Err(report);
        }
        let generation = before.map_or(1, |before| before.generation + 1);
        let before = before.filter(|before| Arc::ptr_eq(&before.shared.outbound, &shared.outbound));
        let kept = before.map_or(0, |before| routes.keep(&before.routes));
        Ok((
            Self {
                server: config.server,
                auth,
                routes: Arc::new(routes),
                repeats: Repeats::beside(config.cache.memory.0),
                hooks,
                argocd,
                outline,
                generation,
                since: common.clock.now(),
                kept,
                hash,
                shared,
            },
            startup,
            report,
        ))
    }
}

/// What the parts for callers and for Argo CD are built from.
struct Parts<'a> {
    config: &'a Config,
    loaded: &'a Loaded,
    clients: &'a Clients,
    /// The previous setup.
    before: Option<&'a Setup>,
}

impl<'a> Parts<'a> {
    /// The previous setup, if the part `key` of the configuration and the clients are unchanged.
    fn unchanged(&self, key: &str) -> Option<&'a Setup> {
        self.before.filter(|before| {
            before.outline.is_same(key, &self.loaded.raw)
                && Arc::ptr_eq(&before.shared.outbound, &self.clients.outbound)
        })
    }

    /// Argo CD's side. An unchanged configuration keeps its notes about the ApplicationSets.
    fn argocd(&self, problems: &mut Problems) -> Option<Arc<Argocd>> {
        if let Some(before) = self.unchanged("argocd") {
            return before.argocd.clone();
        }
        let (base, path) = (&self.loaded.base, Path::root().key("argocd"));
        Argocd::build(&self.config.argocd, base, &self.clients.outbound, &path, problems).map(Arc::new)
    }

    /// The callers. An unchanged configuration keeps the records of its callers.
    fn auth(&self, common: &Common, problems: &mut Problems) -> Arc<Auth> {
        if let Some(before) = self.unchanged("auth") {
            return Arc::clone(&before.auth);
        }
        let context = AuthContext {
            base: &self.loaded.base,
            clock: &common.clock,
            outbound: &self.clients.outbound,
            metrics: &common.metrics,
        };
        let mut auth = Auth::build(&self.config.auth, context, &Path::root().key("auth"), problems);
        if let Some(before) = self.before {
            auth.take_over(&before.auth);
        }
        Arc::new(auth)
    }
}

impl Clients {
    fn build(config: &Config, raw: Vec<Value>, base: &BaseDir, common: &Common, problems: &mut Problems) -> Self {
        let (outbound, registries) = clients(config, base, common, &common.launchers, problems);
        Self { raw, outbound, registries: Arc::new(registries), isolated: None }
    }

    /// Gives the candidates of shadows clients of their own.
    fn set_isolated(&mut self, config: &Config, base: &BaseDir, common: &Common) {
        if config.routes.iter().all(|route| route.shadow.is_none()) {
            self.isolated = None;
        } else if self.isolated.is_none() {
            // Its problems are those of the other clients.
            let launchers = Arc::clone(&common.isolated_launchers);
            let (outbound, registries) = clients(config, base, common, &launchers, &mut Problems::default());
            let evaluators = Arc::clone(&common.isolated_evaluators);
            self.isolated = Some(Arc::new(IsolatedClients { outbound, registries, launchers, evaluators }));
        }
    }
}

/// HTTP clients and registries that nothing uses yet.
fn clients(
    config: &Config,
    base: &BaseDir,
    common: &Common,
    launchers: &Arc<Launchers>,
    problems: &mut Problems,
) -> (Arc<Outbound>, Registries) {
    let (root, clock) = (Path::root(), &common.clock);
    let (allowed, proxy) = config.outbound.build(base, &root.key("outbound"), problems);
    let reaching = || Outbound::new(Arc::clone(clock)).reaching(Arc::new(SystemNames), &allowed, proxy.clone());
    // Of its own: what clouds reply is neither recorded nor replayed.
    let to_clouds = Arc::new(reaching().counted(common.metrics.outbound.clone()));
    let reach = clouds::Reach { public: &to_clouds, clock, base };
    // Automatic identities would send requests where none may be sent.
    let pod = if base.is_offline() { Pod::default() } else { Pod::of_process() };
    let identities = clouds::build(&config.identities, &pod, reach, &root.key("identities"), problems);
    let outbound = reaching().counted(common.metrics.outbound.clone()).with_sources(common.sources.clone());
    let outbound = Arc::new(outbound.with_identities(identities));
    let means = RegistriesMeans { outbound: &outbound, launchers, clock };
    let mut section = Section::new(base, root.key("registries"), problems);
    let registries = Registries::build(&config.registries, means, &mut section);
    (outbound, registries)
}

/// Builds the routes of all plugins, after the routes of the file. Returns the problems that belong to the gateway's own file.
fn add_plugins(routes: &mut RouteTableBuilder<'_>, loaded: &mut Loaded, context: BuildContext<'_>) -> Vec<Problem> {
    let mut main_file_problems = Vec::new();
    for plugin in &mut loaded.plugins {
        let mut found = Vec::new();
        for (index, (config, raw)) in plugin.routes.iter().enumerate() {
            let context = BuildContext { base: &plugin.base, package: Some(&plugin.package), ..context };
            let mut problems = Problems::default();
            routes.add(config, raw, &mut Building::new(context, Path::root(), &mut problems));
            // The second route differs from the first in its name only.
            let is_new = |problem: &Problem| index == 0 || problem.path == Path::root().key("name");
            found.extend(problems.into_vec().into_iter().filter(is_new));
        }
        main_file_problems.extend(found.into_iter().filter_map(|problem| plugin.note(problem)));
    }
    main_file_problems
}

fn check_server(config: &Config, root: &Path, problems: &mut Problems) {
    let (server, path) = (&config.server, &root.key("server"));
    check_deadline(server.deadline, &path.key("deadline"), problems);
    if server.max_in_flight == 0 {
        problems.error(&path.key("maxInFlight"), "with 0 every request would be refused");
    }
    let at = path.key("connections");
    for (key, limit) in [("most", server.connections.most), ("perPeer", server.connections.per_peer)] {
        if limit == 0 {
            problems.error(&at.key(key), "with 0 nobody could connect");
        }
    }
    problems.check_not_zero(&at.key("idle"), server.connections.idle.0);
    problems.check_not_zero(&at.key("maxAge"), server.connections.max_age.0);
    if server.listen == server.admin && server.listen.port() != 0 {
        let help = "give one of them another port, such as `admin: 0.0.0.0:4356`";
        problems.error_with_help(&path.key("admin"), "`listen` and `admin` are the same address", help);
    }
    let is_taken = |hooks| [server.listen, server.admin].contains(hooks);
    if let Some(hooks) = server.hooks.as_ref().filter(|hooks| hooks.port() != 0 && is_taken(*hooks)) {
        problems.error(&path.key("hooks"), format!("another listener has the address {hooks}"));
    }
    if server.hooks.is_none() && !config.hooks.is_empty() {
        let help = "set the address of their listener, for example `server: { hooks: 0.0.0.0:4357 }`";
        problems.error_with_help(&root.key("hooks"), "hooks need `server.hooks`", help);
    }
    if !config.auth.certificates.is_empty() && server.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none()) {
        problems.error_with_help(
            &root.key("auth").key("certificates"),
            "no client can show a certificate",
            "say which certificates are accepted: `server.tls.clientCa`",
        );
    }
    if config.scripts.concurrency == 0 {
        problems.error(&root.key("scripts").key("concurrency"), "with 0 no script would ever run");
    }
}

/// Warns if a restart would lose notes on which the answers of `routes` depend. A shared store remembers it for its replicas.
fn check_memory(config: &Config, routes: &RouteTable, root: &Path, problems: &mut Problems) {
    if config.cache.path.is_some() || config.cache.shared.is_some() {
        return;
    }
    for (index, route) in config.routes.iter().enumerate() {
        if route.backend.serves_last_build() && route.lineage.is_some() {
            problems.warning(
                &root.key("routes").index(index).key("lineage"),
                "without `cache.path` a restart forgets the fallback images for a commit that is not built yet",
                "set `cache.path` to a file on a volume that outlives the process; else such a commit is answered after a restart as \
                 if nothing had ever been built, and with `onMissing: omit` its preview is deleted",
            );
        }
    }
    if routes.iter().any(|route| route.guard.compares()) {
        problems.warning(
            &root.key("cache"),
            "without `cache.path` a restart makes the guard blind: it forgets all last good answers, held answers and decisions, and \
             accepts the first answer afterwards, even an empty one, for which Argo CD deletes every Application",
            "set `cache: { path: … }` to a file on a volume that outlives the process, or `cache.shared` for several replicas",
        );
    }
}
