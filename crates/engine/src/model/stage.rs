//! What all cases share: the routes and the source behind them. Also how an engine is started and inspected.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::sleep;

use crate::{
    answer::Engine,
    cache::{CacheLimits, Disk, Entry, Key, Life, Memory},
    guard::{Guard, GuardConfig},
    model::{
        oracle::Spread,
        rules::{ModelQuery, ROUTES, Rules, Slot, Wall},
        source::ModelSource,
    },
    replica::{Replica, SharedClock},
    route::{Accepts, Origin, ResolvedQuery, Route, RouteParts, RouteTable},
    shape::{Nulls, Shape, ShapeConfig},
};
use domain::{
    clock::{Clock, Timestamp},
    file::base_dir::BaseDir,
    generator::Question,
    problem::{Path, Problems, Severity},
    units::HumanDuration,
};
use lang::{evaluator::Evaluator, scope::NameScope};
use source::Backend;
use store::{MIN_RECOVERY, MemoryStore, Store};
use telemetry::metrics::Metrics;

/// What the engines of a case remember in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setup {
    /// One engine, in memory only.
    Memory,
    /// One engine with a file.
    Disk,
    /// This many engines with a shared store.
    Replicas(u32),
}

/// What all cases of a test share.
pub(super) struct Stage {
    pub source: Arc<ModelSource>,
    pub routes: Arc<RouteTable>,
    pub metrics: Arc<Metrics>,
    keys: BTreeMap<Slot, Key>,
}

impl Default for Stage {
    fn default() -> Self {
        let (metrics, source) = (Metrics::new().unwrap(), Arc::new(ModelSource::default()));
        let route = |rules: &Rules| Arc::new(route(rules, Arc::clone(&source) as Arc<dyn Backend>, &metrics));
        let routes = RouteTable::new(ROUTES.iter().map(route).collect());
        Self::new(source, routes, metrics)
    }
}

impl Stage {
    /// With these routes, in front of a source of any kind.
    pub(super) fn of(route: Route, metrics: Metrics) -> Self {
        let (source, routes) = (Arc::default(), Arc::new(RouteTable::new(vec![Arc::new(route)])));
        Self { source, routes, metrics: Arc::new(metrics), keys: BTreeMap::new() }
    }

    fn new(source: Arc<ModelSource>, routes: RouteTable, metrics: Metrics) -> Self {
        let keys = ModelQuery::all().flat_map(|query| [Slot::Own(query), query.lineage()]);
        let keys = keys.map(|slot| (slot, key(&routes, slot))).collect();
        Self { source, routes: Arc::new(routes), metrics: Arc::new(metrics), keys }
    }
}

/// The route with these rules.
fn route(rules: &Rules, backend: Arc<dyn Backend>, metrics: &Metrics) -> Route {
    route_of(rules.name, rules.config(), backend, metrics)
}

/// The route `name` with the configuration `raw`.
pub(super) fn route_of(name: &str, raw: Value, backend: Arc<dyn Backend>, metrics: &Metrics) -> Route {
    let (path, mut problems) = (Path::root(), Problems::default());
    let read = |part: &str| raw.get(part).cloned().unwrap_or_default();
    let guard: GuardConfig = serde_json::from_value(read("guard")).unwrap();
    let shape = ShapeConfig { output: None, echo: &[], stringify: true, nulls: Nulls::default() };
    let route = Route::new(RouteParts {
        name: name.to_owned(),
        formerly: Vec::new(),
        kind: "model",
        backend,
        matcher: None,
        input: Accepts::All,
        shape: Shape::build(shape, &NameScope::input(), &Evaluator::none(), &path, &mut problems),
        cache: serde_json::from_value(read("cache")).unwrap(),
        lineage: serde_json::from_value(read("lineage")).unwrap(),
        guard: Guard::build(&guard, &path.key("guard"), &mut problems),
        deadline: Duration::from_secs(25),
        shadow: None,
        metrics: metrics.route(name, "model"),
        origin: Origin { raw, base: BaseDir::default(), deadline: HumanDuration::from_secs(25), package: None },
    });
    assert!(problems.into_vec().iter().all(|problem| problem.severity == Severity::Warning));
    route
}

impl Stage {
    /// Starts a process.
    pub(super) fn start(&self, wall: &Arc<Wall>, disk: Option<&Disk>) -> Arc<Engine> {
        let clock = Arc::clone(wall) as Arc<dyn Clock>;
        let engine = Engine::new(Memory::new(&CacheLimits::default()), None, clock, Arc::clone(&self.metrics));
        if let Some(disk) = disk {
            engine.keep_on(disk.clone(), &self.routes);
        }
        Arc::new(engine)
    }

    /// Starts replica number `n` on `store`, with the file `disk`. Its own clock is off. It syncs whenever the store changes, until it is
    /// dropped.
    pub(crate) fn start_replica(
        &self,
        n: u32,
        wall: &Arc<Wall>,
        store: Arc<dyn Store>,
        disk: Option<&Disk>,
    ) -> Arc<Engine> {
        let offset = Duration::from_mins(5) * (n % 5);
        let clock = Arc::new(SharedClock::new(Arc::new(OffsetClock(Arc::clone(wall), offset))));
        let shared = Arc::new(Replica::new(store, format!("replica-{n}"), Arc::clone(&clock)));
        let memory = Memory::new(&CacheLimits::default());
        let engine = Engine::new(memory, Some(Arc::clone(&shared)), clock, Arc::clone(&self.metrics));
        if let Some(disk) = disk {
            engine.keep_on(disk.clone(), &self.routes);
        }
        let engine = Arc::new(engine);
        let (watched, syncing, routes) = (Arc::clone(&shared), Arc::downgrade(&engine), Arc::clone(&self.routes));
        tokio::spawn(async move { watched.watch().await });
        tokio::spawn(async move {
            while let Some(engine) = syncing.upgrade() {
                let _ = engine.sync(&routes).await;
                drop(engine);
                shared.wanted().await;
            }
        });
        engine
    }

    /// Starts replicas with an empty store, and waits until they are in contact.
    pub(crate) async fn start_all(&self, count: u32, wall: &Arc<Wall>) -> Vec<Arc<Engine>> {
        let store = MemoryStore::new(Arc::clone(wall) as Arc<dyn Clock>);
        let all = (0..count).map(|n| self.start_replica(n, wall, Arc::new(store.clone()), None)).collect();
        sleep(MIN_RECOVERY + Duration::from_secs(2)).await;
        all
    }

    /// Evicts the answers in `slots` from memory.
    pub(crate) fn evict(&self, engine: &Engine, slots: impl IntoIterator<Item = Slot>) {
        slots.into_iter().for_each(|slot| engine.answers().evict(&self.key(slot)));
    }

    /// Loses all records of `query` and of its lineage.
    pub(super) fn lose(&self, engine: &Engine, query: ModelQuery) {
        for slot in [Slot::Own(query), query.lineage()] {
            engine.answers().lose(&self.key(slot));
        }
        engine.known.baselines.lose(&self.key(query.lineage()));
    }

    /// The key under which an answer is stored.
    pub(super) fn key(&self, slot: Slot) -> Key {
        self.keys[&slot]
    }
}

pub(super) fn question(query: ModelQuery) -> Question {
    let parameters = Arc::new(query.parameters());
    Question { route: query.rules().name.into(), application_set: None, parameters, part: None }
}

fn key(routes: &RouteTable, slot: Slot) -> Key {
    let route = routes.by_name(slot.query().rules().name).unwrap();
    let resolved = ResolvedQuery::again(Arc::clone(route), &question(slot.query()));
    if let Slot::Own(_) = slot { resolved.key } else { resolved.lineage() }
}

/// A clock that is off by some time.
struct OffsetClock(Arc<Wall>, Duration);

impl Clock for OffsetClock {
    fn now(&self) -> Timestamp {
        self.0.now().plus(self.1)
    }
}

/// A view into the engine.
pub(super) struct Peek<'a> {
    pub engine: &'a Engine,
    pub stage: &'a Stage,
    pub(crate) wall: &'a Wall,
}

impl Peek<'_> {
    /// The answer stored in `slot`. Unlike a caller's lookup, this does not load it from disk into memory.
    pub(super) fn entry(&self, slot: Slot) -> Option<Arc<Entry>> {
        let (key, answers) = (self.stage.key(slot), self.engine.answers());
        answers.memory().get(&key).or_else(|| answers.disk()?.get(&key).ok().flatten().map(Arc::new))
    }
}

impl Spread for Peek<'_> {
    fn life(&self, query: ModelQuery, at: Timestamp) -> Option<u64> {
        let entry = self.entry(Slot::Own(query)).filter(|entry| entry.stored_at == at)?;
        if let Life::For(life) = entry.life { Some(ceil(life)) } else { None }
    }

    fn backoff(&self, query: ModelQuery, since: Timestamp) -> Option<u64> {
        let now = self.wall.now();
        let (_, left) = self.engine.known.failing.backoff(&self.stage.key(Slot::Own(query)), now)?;
        Some(ceil(left + now.since(since)?))
    }
}

fn ceil(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap()
}
