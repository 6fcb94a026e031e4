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
use crate::script::{protocol::Reading, run::Job};
use domain::units::ByteSize;
use launcher::{Environment, Idle, LaunchError, LauncherPool, Program, RunPermit, Usage};

/// How long the start of a worker in the background may take.
const STARTING: Duration = Duration::from_secs(30);

/// The workers of a route.
#[derive(Debug)]
pub(crate) struct Pool(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    launchers: LauncherPool,
    config: WorkerConfig,
    idle: Arc<Idle<Worker>>,
    live: Arc<AtomicUsize>,
}

impl Pool {
    /// An empty pool. The permits of `launchers` limit how many requests run at once.
    #[must_use]
    pub(crate) fn new(launchers: &LauncherPool, config: WorkerConfig) -> Self {
        Self(Arc::new(Shared { launchers: launchers.clone(), config, idle: Arc::default(), live: Arc::default() }))
    }

    /// Starts the workers that the key `ahead` demands.
    pub(crate) fn start(&self, program: &Arc<Program>, environment: Environment<'_>) {
        self.0.refill(Basis::now(&self.0.launchers, program, environment).into_owned());
    }

    /// Sends a request to a worker that runs `program`, and to a second worker if the first ended before it wrote a byte.
    ///
    /// # Errors
    /// When the worker has no answer, or breaks the protocol.
    pub(crate) async fn call(
        &self,
        program: &Arc<Program>,
        environment: Environment<'_>,
        job: &Job<'_>,
    ) -> Result<Reading, LaunchError> {
        let shared = &self.0;
        let permit = shared.launchers.permit(job.deadline).await?;
        let basis = Basis::now(&shared.launchers, program, environment);
        let mut worker = match shared.idle_worker(&basis) {
            Some(worker) => worker,
            None => shared.start(&basis, job.deadline).await?,
        };
        let mut before = job.watch.map(|_| worker.meter.read());
        let mut answer = worker.call(job).await;
        if let Err(Fault::Silent(why)) = &answer {
            tracing::warn!(%why, "a worker ended before it answered; another one gets the request");
            shared.launchers.worker_ended("fault");
            drop(worker);
            worker = shared.start(&basis, job.deadline).await?;
            before = before.map(|_| Usage::default());
            answer = worker.call(job).await;
        }
        if let Some((watch, before)) = job.watch.zip(before) {
            let after = worker.meter.read();
            watch.note(|step| {
                step.stderr = Some(worker.stderr().whole(job.secrets));
                step.cpu = after.cpu.checked_sub(before.cpu);
                step.peak_memory = Some(after.peak).filter(|peak| *peak > 0);
            });
        }
        let reason = answer.as_ref().map_or(Some("fault"), |_| shared.config.reason_to_replace(&worker));
        if let Some(reason) = reason {
            shared.launchers.worker_ended(reason);
            shared.end(worker, permit, basis.into_owned());
        } else {
            shared.keep(worker);
            drop(permit);
        }
        match answer {
            Ok(answer) => answer.map_err(LaunchError::Other),
            Err(Fault::Silent(error) | Fault::Other(error)) => Err(error),
        }
    }
}

impl WorkerConfig {
    /// Why `worker` must be replaced, if it must.
    fn reason_to_replace(&self, worker: &Worker) -> Option<&'static str> {
        if worker.requests >= self.recycle_after {
            return Some("recycled");
        }
        let is_large = |max: ByteSize| worker.meter.read().memory > max.0;
        self.max_memory.is_some_and(is_large).then_some("memory")
    }
}

impl Shared {
    /// An idle worker. Ends idle workers that cannot be used any more.
    fn idle_worker(&self, basis: &Basis<'_>) -> Option<Worker> {
        loop {
            let worker = self.idle.pop()?;
            let Some(why) = worker.why_not(basis) else { return Some(worker) };
            self.launchers.worker_ended(why);
            tracing::debug!("a worker that ended, wrote without a request or is outdated is replaced");
        }
    }

    async fn start(&self, basis: &Basis<'_>, deadline: Instant) -> Result<Worker, LaunchError> {
        Worker::start(&self.launchers, basis.clone(), WorkerPermit::new(Arc::clone(&self.live)), deadline).await
    }

    fn keep(self: &Arc<Self>, worker: Worker) {
        let pool = Arc::downgrade(self);
        self.idle.push(worker, self.config.ahead, move |worker| {
            if let Some(pool) = pool.upgrade() {
                pool.launchers.worker_ended("surplus");
            }
            drop(worker);
        });
    }

    /// Ends `worker`, which keeps its `permit` until it is gone. Starts another worker if fewer than `ahead` are left.
    fn end(self: &Arc<Self>, worker: Worker, permit: RunPermit, basis: Basis<'static>) {
        let ending = worker.end();
        tokio::spawn(async move {
            ending.await;
            drop(permit);
        });
        self.refill(basis);
    }

    /// Starts workers in the background until there are `ahead` of them.
    fn refill(self: &Arc<Self>, basis: Basis<'static>) {
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(pool) = pool.upgrade()
                && let Some(permit) = WorkerPermit::below(Arc::clone(&pool.live), pool.config.ahead)
            {
                match Worker::start(&pool.launchers, basis.clone(), permit, Instant::now() + STARTING).await {
                    Ok(worker) => pool.keep(worker),
                    Err(why) => return tracing::warn!(%why, "no worker could be started before the first request"),
                }
            }
        });
    }
}
