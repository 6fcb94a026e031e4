//! A process of the gateway: the real engine, with the tasks that the program starts beside it.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinHandle},
    time::{Instant, sleep, timeout},
};

use crate::{
    api::ApiServer,
    clock::DriftingClock,
    link::ProcessLink,
    pace::{Pace, in_order},
    settings::Settings,
    truth::Set,
    volume::Volume,
};
use domain::{
    clock::Clock,
    generator::{Query, Selector},
    lifecycle::{Lifecycle, Phase},
};
use engine::{
    answer::Engine,
    cache::{CacheLimits, Disk, Elements, Memory, Trouble},
    operators::Operator,
    replica::{Replica, SharedClock},
    route::{ResolvedQuery, RouteTable},
};
use hooks::{Delivery, Subject};
use push::{Current, Push};
use telemetry::metrics::Metrics;

/// How long a call of Argo CD may take.
const DEADLINE: Duration = Duration::from_secs(25);
/// How often a process looks for held answers while time is left out.
const LOOKS_EVERY: Duration = Duration::from_secs(20);
/// How long a process that ends in order may take for what is under way.
const FINISHED_WITHIN: Duration = Duration::from_secs(10);

/// The reply to Argo CD: a status, and a body.
pub type Reply = (u16, Vec<u8>);

/// A process.
pub struct Process {
    /// Its number: no two have the same.
    pub number: u32,
    /// Its engine.
    pub engine: Arc<Engine>,
    push: Arc<Push>,
    lifecycle: Arc<Lifecycle>,
    api: Arc<ApiServer>,
    /// Its configuration, and the routes of that.
    current: RwLock<(Settings, Arc<RouteTable>)>,
    link: ProcessLink,
    tasks: Mutex<Vec<AbortHandle>>,
    /// The tasks that have work until the end.
    working: Mutex<Vec<JoinHandle<()>>>,
    ended: Notify,
    is_ended: AtomicBool,
}

/// Where a process starts.
pub struct Machine<'a> {
    /// Its way to the store.
    pub link: ProcessLink,
    /// Its clock.
    pub clock: Arc<DriftingClock>,
    /// Its volume, if it has one.
    pub volume: Option<&'a Volume>,
    /// Whether it shares the store with others.
    pub is_replica: bool,
    /// The metrics of all.
    pub metrics: &'a Arc<Metrics>,
    /// Argo CD's API server.
    pub api: &'a Arc<ApiServer>,
}

/// An operator.
pub fn operator() -> Operator {
    Operator { caller: "operator".to_owned(), request_id: String::new(), reason: None }
}

impl Process {
    /// Starts process `number`.
    ///
    /// # Errors
    /// When there can be no cache file.
    pub fn start(
        number: u32,
        on: Machine<'_>,
        settings: Settings,
        routes: RouteTable,
        pace: &Arc<Pace>,
    ) -> Result<Arc<Self>, Trouble> {
        let own = on.clock as Arc<dyn Clock>;
        let corrected = Arc::new(SharedClock::new(Arc::clone(&own)));
        let replica = on.is_replica.then(|| {
            let id = format!("replica-{number:05}");
            Arc::new(Replica::new(Arc::new(on.link.clone()), id, Arc::clone(&corrected)))
        });
        let clock: Arc<dyn Clock> = if on.is_replica { corrected } else { own };
        let memory = Memory::new(&CacheLimits::default());
        let engine = Arc::new(Engine::new(memory, replica, Arc::clone(&clock), Arc::clone(on.metrics)));
        if let Some(volume) = on.volume {
            engine.keep_on(volume.open(on.metrics.disk.clone(), &clock)?, &routes);
        }
        let (routes, lifecycle) = (Arc::new(routes), Arc::<Lifecycle>::default());
        let current = Current { routes: Arc::clone(&routes), argocd: Some(on.api.client()) };
        let (metrics, ending) = (Arc::clone(on.metrics), Arc::clone(&lifecycle));
        let push = Arc::new(Push::new(Arc::clone(&engine), metrics, clock, ending, current));
        let process = Arc::new(Self {
            number,
            engine,
            push,
            lifecycle,
            api: Arc::clone(on.api),
            current: RwLock::new((settings, routes)),
            link: on.link,
            tasks: Mutex::default(),
            working: Mutex::default(),
            ended: Notify::new(),
            is_ended: AtomicBool::new(false),
        });
        drop(process.spawn(Arc::clone(&process).follow_store(Arc::clone(pace))));
        drop(process.spawn(Arc::clone(&process).confirm_held(Arc::clone(pace))));
        drop(process.spawn(Arc::clone(&process).warm_up()));
        process.spawn_push(pace);
        Ok(process)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let task = tokio::spawn(task);
        self.tasks.lock().push(task.abort_handle());
        task
    }

    /// Starts the tasks of push, as the program does.
    fn spawn_push(&self, pace: &Arc<Pace>) {
        let [events, notices, requesters] = [(); 3].map(|()| Arc::clone(&self.push));
        let events = async move { in_order(events.follow_events()).await };
        let notices = async move { notices.follow_notices().await };
        let requesters = async move { requesters.publish_requesters().await };
        let tasks = [
            self.spawn(Arc::clone(pace).within(events)),
            self.spawn(Arc::clone(pace).within(notices)),
            self.spawn(Arc::clone(pace).within(requesters)),
        ];
        self.working.lock().extend(tasks);
    }

    /// Its cache file, if it has one.
    pub fn disk(&self) -> Option<&Disk> {
        self.engine.answers().disk()
    }

    /// The routes in use.
    pub fn routes(&self) -> Arc<RouteTable> {
        Arc::clone(&self.current.read().1)
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.link.end();
        self.tasks.lock().drain(..).for_each(|task| task.abort());
        self.ended.notify_waiters();
    }

    /// Takes no new calls from now on.
    pub fn drain(&self) {
        self.lifecycle.enter(Phase::Draining);
    }

    /// Ends what is under way, as the program does after the last call.
    pub async fn finish(&self) {
        self.lifecycle.enter(Phase::Closing);
        let working = std::mem::take(&mut *self.working.lock());
        let ended = async {
            for (number, task) in working.into_iter().enumerate() {
                // The requesters are published at the very end.
                if number == 2 {
                    self.lifecycle.enter(Phase::Ended);
                }
                let _ = task.await;
            }
        };
        let _ = timeout(FINISHED_WITHIN, ended).await;
    }

    /// Whether the Service sends calls to it.
    pub fn is_ready(&self) -> bool {
        let is_informed = self.engine.replica().is_none_or(|replica| replica.is_informed());
        is_informed && self.lifecycle.phase() == Phase::Serving
    }

    /// Whether it is in contact with the store.
    pub fn is_in_contact(&self) -> bool {
        self.engine.replica().is_none_or(|replica| replica.is_in_contact())
    }

    /// Follows the store, as `App::follow_store` does.
    async fn follow_store(self: Arc<Self>, pace: Arc<Pace>) {
        let Some(replica) = self.engine.replica() else { return };
        let mut watching = pin!(replica.watch());
        loop {
            pace.awake().await;
            let synced = async {
                let result = self.engine.sync(&self.routes()).await;
                replica.note_result(&result);
                replica.due(&result).await;
            };
            tokio::select! {
                biased;
                () = synced => {}
                () = &mut watching => {}
            }
        }
    }

    /// Runs the backends for held answers again, as `App::confirm_held` does.
    async fn confirm_held(self: Arc<Self>, pace: Arc<Pace>) {
        loop {
            let _busy = if pace.is_busy() {
                None
            } else {
                let _ = timeout(LOOKS_EVERY, pace.awake()).await;
                if self.is_confirming() { Some(pace.busy().await) } else { None }
            };
            if pace.is_busy() {
                self.engine.confirm_due(&self.routes());
                sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Whether further runs may confirm the held answer.
    fn is_confirming(&self) -> bool {
        self.engine.held_count() > 0 && self.engine.held().iter().any(|(_, held)| held.may_be_confirmed())
    }

    /// Renews answers of before the start, as `App::warm_up` does.
    async fn warm_up(self: Arc<Self>) {
        if let Some(replica) = self.engine.replica() {
            replica.first_contact().await;
        }
        self.engine.warm_up(&self.routes()).await;
    }

    /// Answers a call to the route `path`, as `http::server::getparams` does. `None`: the connection broke.
    pub async fn call(&self, path: &str, of: Set, parameters: serde_json::Value) -> Option<Reply> {
        if self.is_ended.load(Ordering::Relaxed) {
            return None;
        }
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        let answer = self.answer(path, of, parameters);
        tokio::select! {
            biased;
            () = ended => None,
            reply = answer => Some(reply),
        }
    }

    async fn answer(&self, path: &str, of: Set, parameters: serde_json::Value) -> Reply {
        let error = |status: u16, why: String| (status, serde_json::json!({"message": why}).to_string().into_bytes());
        let routes = self.routes();
        let Some(route) = routes.by_name(path) else { return error(404, format!("no route {path}")) };
        let parameters = Arc::new(parameters.as_object().cloned().unwrap_or_default());
        let until = Instant::now() + DEADLINE;
        let parameters = match route.admit(parameters, until).await {
            Ok(parameters) => parameters,
            Err(why) => return error(422, why.message.clone()),
        };
        let query = Query::new(of.name().into(), parameters, until);
        let resolved = Arc::new(ResolvedQuery::new(Arc::clone(route), query));
        match self.engine.answer(&resolved).await {
            Ok(answer) => {
                self.count_elements(answer.entry.elements.as_deref());
                (200, answer.entry.encoded.body().to_vec())
            }
            Err(unknown) => error(503, unknown.failure.to_string()),
        }
    }

    /// Counts which states the elements of an answer had.
    fn count_elements(&self, elements: Option<&Elements>) {
        let Some(counts) = elements.map(|elements| elements.counts) else { return };
        self.link.history().count("answer with elements");
        if counts.last_known > 0 {
            self.link.history().count("answer with elements as last known");
        }
        if counts.unknown > 0 {
            self.link.history().count("answer without elements that were never known");
        }
    }

    /// Takes the delivery `id` of a webhook, which is about the questions of `selector`, as `http::server::hooks` does. `None`: the
    /// connection broke.
    pub async fn deliver(&self, id: String, selector: Selector) -> Option<&'static str> {
        if self.is_ended.load(Ordering::Relaxed) {
            return None;
        }
        let mut ended = pin!(self.ended.notified());
        ended.as_mut().enable();
        let delivery = Delivery { id: Some(id), subjects: vec![Subject::Questions(selector)] };
        let hook = Arc::from("simulated");
        tokio::select! {
            biased;
            () = ended => None,
            outcome = self.push.take_delivery(&hook, delivery) => Some(outcome),
        }
    }

    /// Takes another configuration into use, as `App::reload` does.
    pub fn reload(&self, settings: Settings, mut routes: RouteTable) {
        let before = self.routes();
        routes.keep(&before);
        let routes = Arc::new(routes);
        let started: Vec<_> = routes.new_beside(&before).map(|route| Arc::clone(&route.name)).collect();
        *self.current.write() = (settings, Arc::clone(&routes));
        self.push.set_current(Current { routes: Arc::clone(&routes), argocd: Some(self.api.client()) });
        if let Some(replica) = self.engine.replica() {
            replica.want_sync();
        }
        self.engine.rename(&routes);
        self.engine.forget_failures(|name| started.iter().any(|started| **started == *name));
    }
}
