//! The processes of the gateway on their machines, and the Service before them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::{Duration, sleep, timeout};

use crate::{
    api::ApiServer,
    clock::DriftingClock,
    disk::{DiskState, SimulatedDisk, WRITTEN_WITHIN, Writers},
    history::History,
    link::{LinkState, ProcessLink, SharedStore},
    pace::Pace,
    process::{Machine, Process, Reply},
    seed::Seed,
    settings::Settings,
    sources::Sources,
    truth::Set,
    volume::{Damage, Volume},
};
use domain::generator::Selector;
use engine::cache::Trouble;
use telemetry::metrics::Metrics;

/// How many machines there are.
pub const MACHINES: usize = 3;
/// How long Argo CD waits for a reply.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a rollout waits for a process to be ready before it goes on.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// The parts that all processes share.
pub struct Surroundings {
    /// The seed of the run.
    pub seed: Seed,
    /// The events.
    pub history: Arc<History>,
    /// The store.
    pub store: SharedStore,
    /// The sources.
    pub sources: Arc<Sources>,
    /// Whether time is left out.
    pub pace: Arc<Pace>,
    /// The metrics of all processes.
    pub metrics: Arc<Metrics>,
    /// Argo CD's API server.
    pub api: Arc<ApiServer>,
    /// The threads for which time waits.
    pub writers: Arc<Writers>,
    /// How the gateway is deployed.
    pub deployed: Deployed,
}

/// How the gateway is deployed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deployed {
    /// One process with a cache file, and without a store.
    Alone,
    /// So many processes with a store.
    Replicas(usize),
    /// The same, each with a cache file.
    ReplicasWithFiles(usize),
}

impl Deployed {
    /// How many processes there are at first.
    pub const fn count(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Replicas(count) | Self::ReplicasWithFiles(count) => count,
        }
    }
}

/// A machine: it keeps its links and its clock when a process ends.
struct Slot {
    /// Its way to the store.
    link: Arc<Mutex<LinkState>>,
    /// The way of Argo CD to it.
    calls: Mutex<LinkState>,
    clock: Arc<DriftingClock>,
    volume: Option<Mutex<Volume>>,
    process: Mutex<Option<Arc<Process>>>,
}

/// All processes.
pub struct Fleet {
    around: Surroundings,
    slots: Vec<Slot>,
    wanted: Mutex<Wanted>,
}

/// The wishes of operators.
struct Wanted {
    count: usize,
    settings: Settings,
    started: u32,
    calls: u64,
    deliveries: u64,
}

impl Fleet {
    /// A fleet whose processes are started.
    ///
    /// # Errors
    /// When no folder can be made for a volume.
    pub fn start(around: Surroundings) -> std::io::Result<Arc<Self>> {
        let (mut slots, deployed) = (Vec::new(), around.deployed);
        for number in 0..MACHINES {
            let mut dice = around.seed.dice(("clock", number));
            let clock = DriftingClock::new(around.history.start(), dice.i64(-300_000..300_000), dice.i64(-50..50));
            let volume =
                if matches!(deployed, Deployed::Replicas(_)) { None } else { Some(Mutex::new(Volume::new()?)) };
            slots.push(Slot {
                link: Arc::new(Mutex::new(LinkState::Works)),
                calls: Mutex::new(LinkState::Works),
                clock: Arc::new(clock),
                volume,
                process: Mutex::default(),
            });
        }
        let wanted =
            Wanted { count: deployed.count(), settings: Settings::default(), started: 0, calls: 0, deliveries: 0 };
        let fleet = Arc::new(Self { slots, around, wanted: Mutex::new(wanted) });
        (0..deployed.count()).for_each(|number| _ = fleet.begin_once(number));
        Ok(fleet)
    }

    /// Whether processes share a store.
    pub fn is_shared(&self) -> bool {
        self.around.deployed != Deployed::Alone
    }

    /// How much the cache files take, in bytes.
    pub fn size_of_files(&self) -> u64 {
        self.slots.iter().filter_map(|slot| Some(slot.volume.as_ref()?.lock().size())).max().unwrap_or_default()
    }

    /// The settings in use.
    pub fn settings(&self) -> Settings {
        self.wanted.lock().settings.clone()
    }

    /// How many processes operators want.
    pub fn count(&self) -> usize {
        self.wanted.lock().count
    }

    /// The processes that run.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        self.slots.iter().filter_map(|slot| slot.process.lock().clone()).collect()
    }

    /// Sets the state of the link from a machine to the store.
    pub fn set_link(&self, machine: usize, state: LinkState) {
        *self.slots[machine].link.lock() = state;
    }

    /// Sets the state of the link from Argo CD to a machine.
    pub fn set_calls(&self, machine: usize, state: LinkState) {
        *self.slots[machine].calls.lock() = state;
    }

    /// Puts the clock of a machine forward or back.
    pub fn jump(&self, machine: usize, seconds: i64) {
        self.slots[machine].clock.jump(seconds);
    }

    /// Sets the state of the disk of a machine. Returns whether it has one.
    pub fn set_disk(&self, machine: usize, state: DiskState) -> bool {
        let Some(volume) = &self.slots[machine].volume else { return false };
        let process = self.slots[machine].process.lock().clone();
        let disk = process.as_ref().and_then(|process| process.disk());
        // All that was ordered before is done before.
        if let Some(disk) = disk {
            disk.flush(WRITTEN_WITHIN);
        }
        volume.lock().disk.set_state(state);
        self.around.writers.set(machine, disk.filter(|_| state != DiskState::Works));
        true
    }

    /// The disks of the processes that run.
    pub fn disks(&self) -> Vec<Arc<SimulatedDisk>> {
        let running = self.slots.iter().filter(|slot| slot.process.lock().is_some());
        running.filter_map(|slot| Some(Arc::clone(&slot.volume.as_ref()?.lock().disk))).collect()
    }

    /// Starts a process on a machine, as soon as its disk lets it.
    async fn begin(&self, machine: usize) {
        while machine < self.count() && !self.begin_once(machine) {
            sleep(Duration::from_secs(10)).await;
        }
    }

    /// Starts a process on a machine. Returns false if there can be no cache file.
    fn begin_once(&self, machine: usize) -> bool {
        let (number, settings) = {
            let mut wanted = self.wanted.lock();
            wanted.started += 1;
            (wanted.started, wanted.settings.clone())
        };
        let (slot, around) = (&self.slots[machine], &self.around);
        let link = ProcessLink::new(&around.store, &slot.link, &around.history);
        let volume = slot.volume.as_ref().map(|volume| volume.lock());
        let on = Machine {
            link,
            clock: Arc::clone(&slot.clock),
            volume: volume.as_deref(),
            is_replica: self.is_shared(),
            metrics: &around.metrics,
            api: &around.api,
        };
        let routes = settings.routes(&around.sources, &around.metrics);
        match Process::start(number, on, settings, routes, &around.pace) {
            Ok(process) => {
                if let Some(volume) = volume.filter(|volume| volume.disk.state() != DiskState::Works) {
                    around.writers.set(machine, process.disk());
                    drop(volume);
                }
                *slot.process.lock() = Some(process);
                true
            }
            Err(why) => {
                around.history.say(format!("a process of machine {machine} does not start: {}", shortened(&why)));
                false
            }
        }
    }

    /// Leaves the file of a process that has ended to the next one, and damages it.
    fn leave(&self, machine: usize, process: &Process, damage: Damage) {
        let Some(volume) = &self.slots[machine].volume else { return };
        self.around.writers.set(machine, None);
        let mut dice = self.around.seed.dice(("damage", process.number));
        if let Some(disk) = process.disk()
            && let Err(error) = volume.lock().next(disk, damage, &mut dice)
        {
            self.around.history.say(format!("the simulation's own folder cannot be copied: {error}"));
        }
    }

    /// Kills the process of a machine, damages its volume, and starts another process after `later`.
    pub async fn kill(&self, machine: usize, later: Duration, damage: Damage) {
        let killed = self.slots[machine].process.lock().take();
        let Some(process) = killed else { return };
        process.kill();
        self.leave(machine, &process, damage);
        drop(process);
        sleep(later).await;
        self.begin(machine).await;
    }

    /// Ends the process of a machine in order.
    async fn end(&self, machine: usize) {
        let process = self.slots[machine].process.lock().clone();
        if let Some(process) = process {
            process.drain();
            sleep(Duration::from_secs(3)).await;
            process.finish().await;
            process.kill();
            self.slots[machine].process.lock().take();
            self.leave(machine, &process, Damage::None);
        }
    }

    /// Changes how many processes there are.
    pub async fn scale(&self, count: usize) {
        self.wanted.lock().count = count;
        for machine in 0..MACHINES {
            let runs = self.slots[machine].process.lock().is_some();
            match (machine < count, runs) {
                (true, false) => {
                    self.begin(machine).await;
                    self.until_ready(machine).await;
                }
                (false, true) => self.end(machine).await,
                _ => {}
            }
        }
    }

    /// Replaces all processes, one after the other.
    pub async fn roll_out(&self) {
        for machine in 0..self.count() {
            self.end(machine).await;
            self.begin(machine).await;
            self.until_ready(machine).await;
        }
    }

    async fn until_ready(&self, machine: usize) {
        let process = self.slots[machine].process.lock().clone();
        let ready = async {
            while !process.as_ref().is_some_and(|process| process.is_ready()) {
                sleep(Duration::from_millis(500)).await;
            }
        };
        let _ = timeout(READY_WITHIN, ready).await;
    }

    /// Changes the configuration of all processes, one some seconds after the other.
    pub async fn reload(&self, change: impl FnOnce(&mut Settings)) {
        let settings = {
            let mut wanted = self.wanted.lock();
            wanted.settings.generation += 1;
            change(&mut wanted.settings);
            wanted.settings.clone()
        };
        for process in self.processes() {
            process.reload(settings.clone(), settings.routes(&self.around.sources, &self.around.metrics));
            sleep(Duration::from_secs(4)).await;
        }
    }

    /// A machine whose process is ready, by these dice.
    fn any_ready(&self, purpose: (&str, u64)) -> Option<&Slot> {
        let ready = |slot: &&Slot| slot.process.lock().as_ref().is_some_and(|process| process.is_ready());
        let ready: Vec<&Slot> = self.slots.iter().filter(ready).collect();
        if ready.is_empty() {
            return None;
        }
        Some(ready[self.around.seed.dice(purpose).usize(..ready.len())])
    }

    /// The delivery `id` of a webhook by the Service, which picks any ready process. Returns the result; `None`: it did not arrive.
    pub async fn deliver(&self, id: String, selector: Selector) -> Option<&'static str> {
        let number = {
            let mut wanted = self.wanted.lock();
            wanted.deliveries += 1;
            wanted.deliveries
        };
        let process = self.any_ready(("delivery", number))?.process.lock().clone()?;
        process.deliver(id, selector).await
    }

    /// A call of Argo CD by the Service, which picks any ready process. `Err`: why no reply came.
    pub async fn call(&self, set: Set, parameters: serde_json::Value) -> Result<Reply, String> {
        let number = {
            let mut wanted = self.wanted.lock();
            wanted.calls += 1;
            wanted.calls
        };
        let Some(slot) = self.any_ready(("call", number)) else { return Err("no process is ready".to_owned()) };
        let (process, state) = (slot.process.lock().clone(), *slot.calls.lock());
        let Some(process) = process else { return Err("connection refused".to_owned()) };
        let path = self.settings().route(set);
        match state {
            LinkState::Cut => return Err("connection refused".to_owned()),
            LinkState::Silent => {
                sleep(TIMEOUT).await;
                return Err("no reply within 30 s".to_owned());
            }
            LinkState::Slow(each) => sleep(Duration::from_millis(each)).await,
            LinkState::Twice => drop(process.call(&path, set, parameters.clone()).await),
            LinkState::Works | LinkState::OneWay => {}
        }
        let reply = timeout(TIMEOUT, process.call(&path, set, parameters)).await;
        if state == LinkState::OneWay {
            sleep(TIMEOUT).await;
            return Err("no reply within 30 s".to_owned());
        }
        let from = process.number;
        reply
            .map_err(|_| "no reply within 30 s".to_owned())?
            .ok_or_else(|| format!("process {from} broke the connection"))
    }
}

/// Why there is no cache file, without the path, which is another one each time.
fn shortened(why: &Trouble) -> &'static str {
    match why {
        Trouble::Locked(_) => "its file is locked",
        Trouble::Damaged(_) => "its file is damaged",
        Trouble::Other(_) => "its file cannot be used",
    }
}
