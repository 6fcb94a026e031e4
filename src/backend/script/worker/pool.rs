//! The workers of a route.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    WorkerConfig,
    basis::Basis,
    place::Place,
    process::{Fault, Worker},
};
use crate::{
    backend::script::{protocol::Reading, run::Job},
    error::BackendError,
    launcher::{Bay, Program, Turn, Usage},
    units::ByteSize,
};

/// How long a worker may have nothing to do, where there are more than are kept ahead.
const IDLE: Duration = Duration::from_mins(1);
/// How long the start of one may take that nobody waits for.
const STARTING: Duration = Duration::from_secs(30);

/// The workers of a route.
#[derive(Debug)]
pub struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bay: Bay,
    config: WorkerConfig,
    /// Who was busy last stands last, and is asked first.
    idle: Mutex<Vec<Worker>>,
    live: Arc<AtomicUsize>,
    is_swept: AtomicBool,
}

impl Pool {
    /// No worker yet. As many questions as have a turn in `bay` are asked at once.
    #[must_use]
    pub fn new(bay: &Bay, config: WorkerConfig) -> Self {
        let (bay, idle, live) = (bay.clone(), Mutex::default(), Arc::default());
        Self(Arc::new(Shared { bay, config, idle, live, is_swept: AtomicBool::new(false) }))
    }

    /// Starts what should be there before anybody asks.
    pub fn start_ahead(&self, program: &Program) {
        self.0.refill(Basis::now(&self.0.bay, program));
    }

    /// Asks a worker, and another one where the first was gone before it wrote a byte.
    ///
    /// # Errors
    /// When it does not know, or does not do as a worker should.
    pub async fn ask(&self, job: &Job<'_>) -> Result<Reading, BackendError> {
        let shared = &self.0;
        let turn = shared.bay.turn(job.until).await?;
        let basis = Basis::now(&shared.bay, &job.program);
        let mut worker = match shared.idle_worker(&basis) {
            Some(worker) => worker,
            None => shared.start(&basis, job.until).await?,
        };
        let mut before = job.watch.map(|_| worker.meter.read());
        let mut said = worker.ask(job).await;
        if let Err(Fault::Silent(why)) = &said {
            tracing::warn!(%why, "a worker ended before it answered; another one is asked");
            shared.bay.worker_ended("fault");
            drop(worker);
            worker = shared.start(&basis, job.until).await?;
            before = before.map(|_| Usage::default());
            said = worker.ask(job).await;
        }
        if let Some((watch, before)) = job.watch.zip(before) {
            let after = worker.meter.read();
            watch.note(|step| {
                step.stderr = Some(worker.told().whole(job.secrets));
                step.cpu = after.cpu.checked_sub(before.cpu);
                step.peak_memory = Some(after.peak).filter(|peak| *peak > 0);
            });
        }
        let reason = said.as_ref().map_or(Some("fault"), |_| shared.config.has_had_enough(&worker));
        if let Some(reason) = reason {
            shared.bay.worker_ended(reason);
            shared.end(worker, turn, basis);
        } else {
            shared.keep(worker);
            drop(turn);
        }
        said.unwrap_or_else(|(Fault::Silent(why) | Fault::Other(why))| Err(why))
    }
}

impl WorkerConfig {
    /// Why `worker` is not asked any more, if it has had enough.
    fn has_had_enough(&self, worker: &Worker) -> Option<&'static str> {
        if worker.asked >= self.recycle_after {
            return Some("recycled");
        }
        let is_large = |most: ByteSize| worker.meter.read().memory > most.0;
        self.max_memory.is_some_and(is_large).then_some("memory")
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that has nothing to do. Those that are of no use any more are ended.
    fn idle_worker(&self, basis: &Basis) -> Option<Worker> {
        loop {
            let worker = self.lock().pop()?;
            let Some(why) = worker.why_not(basis) else { return Some(worker) };
            self.bay.worker_ended(why);
            tracing::debug!("a worker that ended, wrote unasked or knows something old is replaced");
        }
    }

    async fn start(&self, basis: &Basis, deadline: Instant) -> Result<Worker, BackendError> {
        Worker::start(&self.bay, basis.clone(), Place::new(&self.live), deadline).await
    }

    fn keep(self: &Arc<Self>, mut worker: Worker) {
        worker.idle = Instant::now();
        let mut idle = self.lock();
        idle.push(worker);
        let is_surplus = idle.len() > self.config.ahead;
        drop(idle);
        if is_surplus && !self.is_swept.swap(true, Ordering::Relaxed) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Ends `worker`, which has a `turn` until it is gone, and starts another one if there should be one.
    fn end(self: &Arc<Self>, worker: Worker, turn: Turn, basis: Basis) {
        let ending = worker.end();
        tokio::spawn(async move {
            ending.await;
            drop(turn);
        });
        self.refill(basis);
    }

    /// Starts workers in the background until there are as many as are kept ahead.
    fn refill(self: &Arc<Self>, basis: Basis) {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(pool) = pool.upgrade()
                && let Some(place) = Place::take(&pool.live, pool.config.ahead)
            {
                match Worker::start(&pool.bay, basis.clone(), place, Instant::now() + STARTING).await {
                    Ok(worker) => pool.keep(worker),
                    Err(why) => return tracing::warn!(%why, "no worker could be started ahead"),
                }
            }
        });
    }
}

/// Ends those that have nothing to do, but for those that are kept ahead.
async fn sweep(pool: Weak<Shared>) {
    loop {
        sleep(IDLE).await;
        let Some(pool) = pool.upgrade() else { return };
        let mut idle = pool.lock();
        let surplus = idle.len().saturating_sub(pool.config.ahead);
        let old = idle.iter().take(surplus).filter(|worker| worker.idle.elapsed() >= IDLE).count();
        let ended: Vec<Worker> = idle.drain(..old).collect();
        let is_done = idle.len() <= pool.config.ahead;
        if is_done {
            pool.is_swept.store(false, Ordering::Relaxed);
        }
        drop(idle);
        for worker in ended {
            pool.bay.worker_ended("surplus");
            drop(worker);
        }
        if is_done {
            return;
        }
    }
}
