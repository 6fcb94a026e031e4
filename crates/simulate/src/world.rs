//! A run: everything is started, the plan is carried out, and the oracle looks on.

mod disturbances;
mod operators;
mod truth;
mod webhooks;

use std::{future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{sleep, sleep_until};

use crate::{
    api::{ApiServer, ApiState},
    argocd::Controller,
    clock::DriftingClock,
    disk::{DiskState, Writers},
    fleet::{Fleet, Surroundings},
    history::{History, Invariant},
    link::{LinkState, SharedStore},
    oracle::Oracle,
    pace::Pace,
    plan::{Act, Plan},
    seed::Seed,
    sources::{Sources, Trouble},
    truth::{Set, Truth},
};
use engine::guard::Decision;
use telemetry::metrics::Metrics;

/// How often the oracle looks which Applications there are.
const JUDGED_EVERY: Duration = Duration::from_mins(1);
/// After so long without an act nothing changes any more.
const CALM: Duration = Duration::from_mins(15);
/// How much a cache file may take with the files beside it, in bytes: its limit, and the marks of loss.
const MOST_IN_FILES: u64 = 24 * 1024 * 1024;
/// So many requests to Argo CD's API server in a minute are many while nothing changes: the count of an Event on held answers, twice a minute
/// for each replica and ApplicationSet, and a list.
const MOST_REQUESTS: u64 = 30;
/// How much the answers in memory may take, in bytes.
const MOST_IN_MEMORY: u64 = 4 * 1024 * 1024;

/// Everything of a run.
pub(crate) struct World {
    seed: Seed,
    pub(crate) history: Arc<History>,
    truth: Arc<Mutex<Truth>>,
    sources: Arc<Sources>,
    store: SharedStore,
    fleet: Arc<Fleet>,
    api: Arc<ApiServer>,
    pace: Arc<Pace>,
    oracle: Arc<Oracle>,
    controller: Arc<Controller>,
    /// One change of the store's content or of the processes at a time.
    turn: tokio::sync::Mutex<()>,
    watched: Mutex<Watched>,
}

/// The state at the oracle's last look.
#[derive(Debug, Default)]
struct Watched {
    /// When something was done last.
    acted: Duration,
    /// How often each source was called.
    calls: [u64; Set::COUNT],
    calls_of_elements: u64,
    /// How many requests Argo CD's API server had.
    requests: u64,
    /// Until when each source was in trouble.
    troubled_until: [Duration; Set::COUNT],
}

impl World {
    fn new(plan: &Plan, metrics: &Arc<Metrics>, writers: &Arc<Writers>) -> std::io::Result<Arc<Self>> {
        let seed = plan.seed;
        let history = Arc::<History>::default();
        let truth = Arc::<Mutex<Truth>>::default();
        begin_truth(seed, &mut truth.lock());
        let sources = Sources::new(seed, &history, &truth);
        let store = SharedStore::new(Arc::new(DriftingClock::new(history.start(), 0, 0)));
        let pace = Pace::new(store.clone());
        let api = ApiServer::new(&history);
        let around = Surroundings {
            seed,
            history: Arc::clone(&history),
            store: store.clone(),
            sources: Arc::clone(&sources),
            pace: Arc::clone(&pace),
            metrics: Arc::clone(metrics),
            api: Arc::clone(&api),
            writers: Arc::clone(writers),
            deployed: plan.deployed,
        };
        let fleet = Fleet::start(around)?;
        let oracle = Oracle::new(&history, &truth);
        let controller = Arc::new(Controller {
            seed,
            fleet: Arc::clone(&fleet),
            truth: Arc::clone(&truth),
            history: Arc::clone(&history),
            pace: Arc::clone(&pace),
            oracle: Arc::clone(&oracle),
            applications: Mutex::default(),
            api: Arc::clone(&api),
        });
        let (turn, watched) = (tokio::sync::Mutex::default(), Mutex::default());
        Ok(Arc::new(Self { seed, history, truth, sources, store, fleet, api, pace, oracle, controller, turn, watched }))
    }

    /// Carries out `plan`. Returns at its end, or at the first violation.
    pub(crate) async fn run(plan: &Plan, metrics: &Arc<Metrics>, writers: &Arc<Writers>) -> std::io::Result<Arc<Self>> {
        let world = Self::new(plan, metrics, writers)?;
        let start = world.history.start();
        let busy = world.pace.busy().await;
        sleep(Duration::from_secs(10)).await;
        drop(busy);
        for set in Set::ALL {
            tokio::spawn(Arc::clone(&world.controller).run(set));
        }
        tokio::spawn(Arc::clone(&world).tend());
        let (director, acts) = (Arc::clone(&world), plan.acts.clone());
        tokio::spawn(async move {
            for (at, act) in acts {
                sleep_until(start + at).await;
                tokio::spawn(Arc::clone(&director).act(act));
            }
        });
        while world.history.now() < plan.lasts && world.history.violation().is_none() {
            sleep(JUDGED_EVERY).await;
            world.oracle.judge(&world.controller.applications.lock());
            world.watch();
        }
        Ok(world)
    }

    /// Looks how much everything takes, and how often sources are called while nothing changes.
    fn watch(&self) {
        let files = self.fleet.size_of_files();
        if files > MOST_IN_FILES {
            self.history.violate(Invariant::Bounded, format!("the cache file of a process takes {files} bytes"));
        }
        for process in self.fleet.processes() {
            let size = process.engine.answers().memory().size();
            if size > MOST_IN_MEMORY {
                self.history
                    .violate(Invariant::Bounded, format!("the answers in the memory of a process take {size} bytes"));
            }
        }
        // One record for each list and its former names, two for each question about a commit, and two for each element with it.
        let (records, most) = (self.store.inner.records(), 18 + 5 * self.truth.lock().made());
        if records > most {
            self.history.violate(Invariant::Bounded, format!("the store has {records} records, of {most} at most"));
        }
        let calls = Set::ALL.map(|set| self.sources.calls(set));
        let mut watched = self.watched.lock();
        let is_calm =
            self.history.now() > watched.acted + CALM && self.oracle.is_calm_for(CALM) && !self.oracle.has_failing();
        let open = self.truth.lock().open().count() as u64;
        for set in Set::ALL {
            let called = calls[set as usize] - watched.calls[set as usize];
            let most = if set == Set::Previews { 4 + 4 * open } else { 6 };
            if is_calm && called > most {
                let seen =
                    format!("the source of {} is called {called} times in a minute, and nothing changes", set.name());
                self.history.violate(Invariant::Rate, seen);
            }
        }
        watched.calls = calls;
        let of_elements = self.sources.calls_of_elements();
        let called = of_elements - std::mem::replace(&mut watched.calls_of_elements, of_elements);
        if is_calm && called > 4 + 4 * open {
            let seen = format!("the source of elements is called {called} times in a minute, and nothing changes");
            self.history.violate(Invariant::Rate, seen);
        }
        let requests = self.api.requests();
        let requested = requests - std::mem::replace(&mut watched.requests, requests);
        if is_calm && requested > MOST_REQUESTS {
            let seen = format!("Argo CD's API server has {requested} requests in a minute, and nothing changes");
            self.history.violate(Invariant::Rate, seen);
        }
    }

    /// Carries out one act.
    async fn act(self: Arc<Self>, act: Act) {
        let busy = self.pace.busy().await;
        self.watched.lock().acted = self.history.now();
        self.history.count(act.kind());
        self.history.say(act.to_string());
        let mut dice = self.seed.dice(("act", self.history.now(), act.kind()));
        let now = self.history.now();
        if act.leaves_contact() {
            // Its beginning and its end are played, and all calls meanwhile.
            drop(busy);
        }
        match act {
            Act::Add(_) | Act::Remove(_) | Act::RemoveHalf(_) => self.change_list(&act, now, &mut dice),
            Act::Open(_) | Act::Close | Act::Push(..) | Act::Park | Act::Reopen => {
                self.change_branches(&act, now, &mut dice);
            }
            Act::Source(set, trouble, lasts) => self.trouble(set, trouble, sleep(Duration::from_secs(lasts))).await,
            Act::Elements(share, trouble, lasts) => self.trouble_elements(share, trouble, lasts, &mut dice).await,
            Act::Link(machine, state, lasts) => {
                self.for_a_while(lasts, |on| self.fleet.set_link(machine, if on { state } else { LinkState::Works }))
                    .await;
            }
            Act::Calls(machine, state, lasts) => {
                self.for_a_while(lasts, |on| self.fleet.set_calls(machine, if on { state } else { LinkState::Works }))
                    .await;
            }
            Act::StoreAway(lasts) => self.for_a_while(lasts, |on| self.store.inner.set_away(on)).await,
            Act::StoreReadOnly(lasts) => self.for_a_while(lasts, |on| self.store.set_read_only(on)).await,
            Act::FailOver | Act::Emptied | Act::Backup(_) => self.disturb_store(&act).await,
            Act::Kill(..) | Act::Damage(..) | Act::RollOut | Act::Scale(_) => self.disturb_processes(&act).await,
            // Without a store, a clock that jumps makes the guard's times shorter.
            Act::Jump(machine, by) if self.fleet.is_shared() => {
                self.for_a_while(60, |on| {
                    if on {
                        self.fleet.jump(machine, by);
                    }
                })
                .await;
            }
            Act::Jump(..) => {}
            Act::Reload => self.change_routes(|_| ()).await,
            Act::Rename(set) => self.change_routes(|names| names[set as usize] += 1).await,
            Act::Invalidate(set) => self.invalidate(set).await,
            Act::Reject(set) => self.trouble(set, Trouble::LosesMost, self.reject(set)).await,
            Act::Release(set) => drop(self.decide(set, Decision::Released, |_| true).await),
            Act::Refresh(set) => self.api.annotate(set),
            Act::Deliver(set, delivery) => self.report(set, delivery, dice).await,
            Act::Disk(machine, state, lasts) => {
                self.for_a_while(lasts, |on| {
                    self.fleet.set_disk(machine, if on { state } else { DiskState::Works });
                })
                .await;
            }
            Act::Api(state, lasts) => {
                self.for_a_while(lasts, |on| self.api.set_state(if on { state } else { ApiState::Works })).await;
                // The longest pause between two attempts of a refresh.
                sleep(Duration::from_secs(65)).await;
            }
        }
    }
}

/// The things that exist at first.
fn begin_truth(seed: Seed, truth: &mut Truth) {
    let mut dice = seed.dice("first");
    for set in Set::LISTS {
        for _ in 0..dice.u8(4..14) {
            truth.add(set, Duration::ZERO, &mut dice);
        }
    }
    for _ in 0..3 {
        let name = truth.open_branch(Duration::ZERO);
        truth.push(&name, Some(Duration::ZERO));
    }
}

/// Runs `work` in simulated time, on one thread. Time waits for `writers`.
///
/// # Errors
/// When the runtime cannot be made.
pub(crate) fn in_simulated_time<F: Future>(writers: &Arc<Writers>, work: F) -> std::io::Result<F::Output> {
    let (mut builder, writers) = (tokio::runtime::Builder::new_current_thread(), Arc::clone(writers));
    builder.enable_time().start_paused(true).max_blocking_threads(1).on_thread_park(move || writers.settle());
    Ok(builder.build()?.block_on(work))
}
