//! The workers of a route.

use std::{
    sync::{Arc, atomic::AtomicUsize},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    WorkerConfig,
    basis::Basis,
    permit::WorkerPermit,
    process::{Fault, Worker},
};
use crate::{
    backend::script::{protocol::Reading, run::Job},
    clients::launcher::{Environment, Idle, LaunchError, LauncherPool, Program, RunPermit, Usage},
    domain::units::ByteSize,
};

/// How long the start of one may take that nobody waits for.
const STARTING: Duration = Duration::from_secs(30);

/// The workers of a route.
#[derive(Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bay: LauncherPool,
    config: WorkerConfig,
    idle: Arc<Idle<Worker>>,
    live: Arc<AtomicUsize>,
}

impl Pool {
    /// No worker yet. As many questions as have a turn in `bay` are asked at once.
    #[must_use]
    pub(crate) fn new(bay: &LauncherPool, config: WorkerConfig) -> Self {
        Self(Arc::new(Shared { bay: bay.clone(), config, idle: Arc::default(), live: Arc::default() }))
    }

    /// Starts what should be there before anybody asks.
    pub(crate) fn start_ahead(&self, program: &Arc<Program>, environment: Environment<'_>) {
        self.0.refill(Basis::now(&self.0.bay, program, environment).into_owned());
    }

    /// Asks a worker that runs `program`, and another one where the first was gone before it wrote a byte.
    ///
    /// # Errors
    /// When it does not know, or does not do as a worker should.
    pub(crate) async fn ask(
        &self,
        program: &Arc<Program>,
        environment: Environment<'_>,
        job: &Job<'_>,
    ) -> Result<Reading, LaunchError> {
        let shared = &self.0;
        let turn = shared.bay.turn(job.until).await?;
        let basis = Basis::now(&shared.bay, program, environment);
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
            shared.end(worker, turn, basis.into_owned());
        } else {
            shared.keep(worker);
            drop(turn);
        }
        match said {
            Ok(answer) => answer.map_err(LaunchError::Other),
            Err(Fault::Silent(error) | Fault::Other(error)) => Err(error),
        }
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
    /// One that has nothing to do. Those that are of no use any more are ended.
    fn idle_worker(&self, basis: &Basis<'_>) -> Option<Worker> {
        loop {
            let worker = self.idle.pop()?;
            let Some(why) = worker.why_not(basis) else { return Some(worker) };
            self.bay.worker_ended(why);
            tracing::debug!("a worker that ended, wrote unasked or knows something old is replaced");
        }
    }

    async fn start(&self, basis: &Basis<'_>, deadline: Instant) -> Result<Worker, LaunchError> {
        Worker::start(&self.bay, basis.clone(), WorkerPermit::new(Arc::clone(&self.live)), deadline).await
    }

    fn keep(self: &Arc<Self>, worker: Worker) {
        let pool = Arc::downgrade(self);
        self.idle.push(worker, self.config.ahead, move |worker| {
            if let Some(pool) = pool.upgrade() {
                pool.bay.worker_ended("surplus");
            }
            drop(worker);
        });
    }

    /// Ends `worker`, which has a `turn` until it is gone, and starts another one if there should be one.
    fn end(self: &Arc<Self>, worker: Worker, turn: RunPermit, basis: Basis<'static>) {
        let ending = worker.end();
        tokio::spawn(async move {
            ending.await;
            drop(turn);
        });
        self.refill(basis);
    }

    /// Starts workers in the background until there are as many as are kept ahead.
    fn refill(self: &Arc<Self>, basis: Basis<'static>) {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(pool) = pool.upgrade()
                && let Some(place) = WorkerPermit::below(Arc::clone(&pool.live), pool.config.ahead)
            {
                match Worker::start(&pool.bay, basis.clone(), place, Instant::now() + STARTING).await {
                    Ok(worker) => pool.keep(worker),
                    Err(why) => return tracing::warn!(%why, "no worker could be started ahead"),
                }
            }
        });
    }
}
