//! How many programs of one kind may run, and the idle launchers of that kind.

use std::sync::Arc;

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{Launchers, host::EMPTYING, idle::Idle, slot::Launcher, terms::LaunchOptions, wire::LauncherReport};
use domain::{error::BackendError, units::plural};

/// The launchers of one kind, and the limit of their programs.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) launchers: Arc<Launchers>,
    pub(super) terms: LaunchOptions,
    permits: Arc<Semaphore>,
    max: usize,
    /// How many launchers may empty their folders while other programs run in their places.
    emptying: Arc<Semaphore>,
    idle: Arc<Idle<Launcher>>,
    /// Whether a launcher is kept for the next program.
    keeps_idle: bool,
}

/// The right to run a program, or to send a query to a worker.
#[derive(Debug)]
pub struct RunPermit {
    of_own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl RunPermit {
    /// The place among the programs of its own kind. The place among all programs is free again.
    pub(super) fn into_own(self) -> OwnedSemaphorePermit {
        self.of_own
    }
}

impl PoolState {
    /// At most `max` programs run at once.
    pub(super) fn new(launchers: &Arc<Launchers>, terms: LaunchOptions, max: usize, keeps_idle: bool) -> Arc<Self> {
        let (permits, emptying) = (Arc::new(Semaphore::new(max)), Arc::new(Semaphore::new(max)));
        Arc::new(Self {
            launchers: Arc::clone(launchers),
            terms,
            permits,
            max,
            emptying,
            idle: Arc::default(),
            keeps_idle,
        })
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// When there is no permit before `deadline`.
    pub(super) async fn permit(&self, deadline: Instant) -> Result<RunPermit, BackendError> {
        let full = |max: usize, of: &str| {
            let s = plural(max);
            BackendError::timeout(format!("no free slot in time: {max} run{s} {of} were under way until the deadline"))
        };
        let wait = async |permits: &Arc<Semaphore>| timeout_at(deadline, Arc::clone(permits).acquire_owned()).await;
        let (of_own, of_all) = ("of it (`concurrency`)", "of all scripts (`scripts.concurrency`)");
        // The own permit first: a program that waits for its own kind must not hold a place that others could use.
        let own = wait(&self.permits).await.ok().and_then(Result::ok).ok_or_else(|| full(self.max, of_own))?;
        let all = wait(&self.launchers.permits).await.ok().and_then(Result::ok);
        let all = all.ok_or_else(|| full(self.launchers.max, of_all))?;
        Ok(RunPermit { of_own: own, _of_all: all })
    }

    /// An idle launcher that may still be used.
    pub(super) fn idle_slot(&self) -> Option<Launcher> {
        loop {
            let slot = self.idle.pop()?;
            if slot.is_good(&self.terms) {
                return Some(slot);
            }
            tokio::spawn(slot.destroy());
        }
    }

    /// Keeps a launcher for reuse once it has emptied its folder. Another program takes its `place` meanwhile, unless many
    /// launchers do that already: programs that leave much behind must not make ever more of them.
    pub(super) fn keep_emptied(self: Arc<Self>, mut slot: Launcher, place: Option<OwnedSemaphorePermit>) {
        let beside = Arc::clone(&self.emptying).try_acquire_owned().ok();
        let place = if beside.is_some() { None } else { place };
        tokio::spawn(async move {
            match timeout_at(Instant::now() + EMPTYING, slot.next_report()).await {
                Ok(Ok(LauncherReport::Ready(_))) => self.keep(slot),
                _ => slot.destroy().await,
            }
            drop((place, beside));
        });
    }

    /// Keeps a launcher for reuse, for a minute, if the pool keeps any.
    pub(super) fn keep(&self, slot: Launcher) {
        if !self.keeps_idle {
            tokio::spawn(slot.destroy());
            return;
        }
        self.idle.push(slot, 0, |slot| drop(tokio::spawn(slot.destroy())));
    }
}

impl Drop for PoolState {
    fn drop(&mut self) {
        // They end by themselves, unless their last program stopped them.
        self.idle.take().iter().for_each(Launcher::kill);
    }
}
