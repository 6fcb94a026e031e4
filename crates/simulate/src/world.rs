//! A run: everything is started, the plan is carried out, and the oracle looks on.

mod operators;

use std::{future::Future, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{sleep, sleep_until},
};

use crate::{
    argocd::Controller,
    clock::DriftingClock,
    fleet::{Fleet, Surroundings},
    history::{History, Invariant},
    link::{LinkState, SharedStore},
    oracle::Oracle,
    pace::Pace,
    plan::{Act, Plan},
    seed::Seed,
    sources::{Sources, Trouble},
    truth::{Set, Truth},
    volume::Damage,
};
use engine::guard::Decision;
use telemetry::metrics::Metrics;

/// How often the oracle looks which Applications there are.
const JUDGED_EVERY: Duration = Duration::from_mins(1);
/// After so long without an act nothing changes any more.
const CALM: Duration = Duration::from_mins(15);
/// How much a cache file may take with the files beside it, in bytes: its limit, and the marks of loss.
const MOST_IN_FILES: u64 = 24 * 1024 * 1024;
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
    calls: [u64; 4],
    /// Until when each source was in trouble.
    troubled_until: [Duration; 4],
}

impl World {
    fn new(plan: &Plan, metrics: &Arc<Metrics>) -> std::io::Result<Arc<Self>> {
        let seed = plan.seed;
        let history = Arc::<History>::default();
        let truth = Arc::<Mutex<Truth>>::default();
        begin_truth(seed, &mut truth.lock());
        let sources = Sources::new(seed, &history, &truth);
        let store = SharedStore::new(Arc::new(DriftingClock::new(history.start(), 0, 0)));
        let pace = Pace::new(store.clone());
        let around = Surroundings {
            seed,
            history: Arc::clone(&history),
            store: store.clone(),
            sources: Arc::clone(&sources),
            pace: Arc::clone(&pace),
            metrics: Arc::clone(metrics),
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
            refresh: std::array::from_fn(|_| Notify::new()),
        });
        let (turn, watched) = (tokio::sync::Mutex::default(), Mutex::default());
        Ok(Arc::new(Self { seed, history, truth, sources, store, fleet, pace, oracle, controller, turn, watched }))
    }

    /// Carries out `plan`. Returns at its end, or at the first violation.
    pub(crate) async fn run(plan: &Plan, metrics: &Arc<Metrics>) -> std::io::Result<Arc<Self>> {
        let world = Self::new(plan, metrics)?;
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
        // One record for each list and its former names, and two for each question about a commit.
        let (records, most) = (self.store.inner.records(), 16 + 3 * self.truth.lock().made());
        if records > most {
            self.history.violate(Invariant::Bounded, format!("the store has {records} records, of {most} at most"));
        }
        let calls = Set::ALL.map(|set| self.sources.calls(set));
        let mut watched = self.watched.lock();
        let is_calm = self.history.now() > watched.acted + CALM && self.oracle.is_calm_for(CALM);
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
            Act::Add(_) | Act::Remove(_) | Act::RemoveHalf(_) | Act::Open(_) | Act::Close | Act::Push(..) => {
                self.change_truth(&act, now, &mut dice);
            }
            Act::Source(set, trouble, lasts) => self.trouble(set, trouble, sleep(Duration::from_secs(lasts))).await,
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
            Act::Refresh(set) => self.controller.refresh[set as usize].notify_one(),
            Act::Deliver(set) => {
                self.change_truth(&Act::Add(set), now, &mut dice);
                self.invalidate(set).await;
                // The second reconciliation may ask another replica a moment after the first one had its answer.
                for _ in 0..3 {
                    self.controller.refresh[set as usize].notify_one();
                    sleep(Duration::from_millis(dice.u64(5..400))).await;
                }
            }
        }
    }

    /// Lets the source of `set` be in trouble during `work`. One trouble after the other, and lies with time between them: two equal lies one
    /// after the other are one that lasts longer.
    async fn trouble(&self, set: Set, trouble: Trouble, work: impl Future<Output = ()>) {
        let is_close = {
            let mut watched = self.watched.lock();
            let until = &mut watched.troubled_until[set as usize];
            let is_close = self.history.now() < *until + CALM;
            if !is_close {
                *until = Duration::MAX / 2;
            }
            is_close
        };
        if is_close {
            return self.history.say("… but its source has just been in trouble");
        }
        let _fault = self.oracle.fault();
        self.history.count(if trouble.is_lie() { "lie" } else { "source fault" });
        self.sources.set_trouble(set, Some(trouble));
        work.await;
        self.sources.set_trouble(set, None);
        self.watched.lock().troubled_until[set as usize] = self.history.now();
        self.history.say(format!("the source of {} tells the truth again", set.name()));
    }

    async fn for_a_while(&self, lasts: u64, set: impl Fn(bool)) {
        let _fault = self.oracle.fault();
        set(true);
        sleep(Duration::from_secs(lasts)).await;
        set(false);
        self.store.wake();
        self.history.say("… and that is over");
        self.recovered().await;
    }

    /// Waits until all processes are in contact again, for some minutes at most.
    async fn recovered(&self) {
        for _ in 0..1200 {
            sleep(Duration::from_secs(1)).await;
            if self.fleet.processes().iter().all(|process| process.is_in_contact()) {
                return;
            }
        }
        self.history.say("some processes are not in contact with the store twenty minutes later");
    }

    fn change_truth(&self, act: &Act, now: Duration, dice: &mut fastrand::Rng) {
        let mut truth = self.truth.lock();
        let said = match *act {
            Act::Add(set) => format!("{} exists", truth.add(set, now, dice)),
            Act::Remove(set) | Act::RemoveHalf(set) => {
                let mut items = truth.items(set);
                dice.shuffle(&mut items);
                let count = if matches!(act, Act::Remove(_)) { 1 } else { items.len() / 2 };
                items.truncate(count.min(items.len().saturating_sub(set.least())));
                for name in &items {
                    truth.remove(set, name, now);
                }
                format!("gone: {}", items.join(", "))
            }
            Act::Open(builds) => {
                let name = truth.open_branch(now);
                let commit = truth.push(&name, Some(now + Duration::from_secs(builds)));
                format!("{name} is open with {commit}")
            }
            Act::Close | Act::Push(..) => {
                let open: Vec<String> = truth.open().map(|(name, _)| name.clone()).collect();
                if open.is_empty() {
                    return;
                }
                let name = &open[dice.usize(..open.len())];
                if let Act::Push(builds, passes) = *act {
                    let commit = truth.push(name, passes.then(|| now + Duration::from_secs(builds)));
                    format!("{name} has {commit}")
                } else {
                    truth.close(name, now);
                    format!("{name} is closed")
                }
            }
            _ => return,
        };
        drop(truth);
        self.history.say(said);
    }

    /// The store loses something. The only copy is never lost: then its content could not be known.
    async fn disturb_store(&self, act: &Act) {
        let _turn = self.turn.lock().await;
        self.recovered().await;
        let _fault = self.oracle.fault();
        let inner = &self.store.inner;
        match *act {
            Act::FailOver => {
                inner.replicate();
                sleep(Duration::from_millis(self.seed.dice(("lost", self.history.now())).u64(..1000))).await;
                inner.fail_over();
            }
            Act::Emptied => inner.flush_all(),
            Act::Backup(since) => {
                inner.replicate();
                sleep(Duration::from_secs(since)).await;
                let _busy = self.pace.busy().await;
                inner.roll_back();
                self.store.wake();
                sleep(Duration::from_secs(20)).await;
            }
            _ => {}
        }
        self.store.wake();
        self.history.say("the store has lost something");
        self.recovered().await;
    }

    async fn disturb_processes(&self, act: &Act) {
        let _turn = self.turn.lock().await;
        self.recovered().await;
        let _fault = self.oracle.fault();
        match *act {
            Act::Kill(machine, later) => self.fleet.kill(machine, Duration::from_secs(later), Damage::None).await,
            Act::Damage(machine, later, damage) => {
                self.fleet.kill(machine, Duration::from_secs(later), damage).await;
                if !self.fleet.is_shared() {
                    self.oracle.forgotten();
                }
                // What is unknown now is confirmed, or an operator sees it.
                for _ in 0..40 {
                    sleep(Duration::from_mins(1)).await;
                    self.tend_once().await;
                    self.controller.refresh[Set::Previews as usize].notify_one();
                }
            }
            Act::RollOut => self.fleet.roll_out().await,
            Act::Scale(count) if self.fleet.is_shared() => self.fleet.scale(count).await,
            _ => {}
        }
        self.recovered().await;
    }

    async fn change_routes(&self, change: impl FnOnce(&mut [u32; 4])) {
        let _turn = self.turn.lock().await;
        let _fault = self.oracle.fault();
        self.fleet.reload(|settings| change(&mut settings.names)).await;
        sleep(Duration::from_secs(15)).await;
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

/// Runs `work` in simulated time, on one thread.
///
/// # Errors
/// When the runtime cannot be made.
pub(crate) fn in_simulated_time<F: Future>(work: F) -> std::io::Result<F::Output> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(work))
}
