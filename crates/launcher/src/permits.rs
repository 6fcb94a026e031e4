//! How many programs of one kind may run, and the idle launchers of that kind.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{Launchers, host::EMPTYING, idle::Idle, slot::Launcher, terms::LaunchOptions, wire::LauncherReport};
use domain::{error::BackendError, units::plural};

/// How long the next program of a passing pool waits for the launcher of the last one. To look whether that one changed its copy takes
/// milliseconds, to make another copy much longer.
const LOOK: Duration = Duration::from_millis(100);

/// The idle launchers of all passing pools, each with the number of its pool.
pub(super) type PassingIdle = Arc<Idle<(u64, Launcher)>>;

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
    /// Set if its idle launchers are among those that all passing pools share.
    passing: Option<u64>,
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
    /// At most `max` programs run at once. `passing` is the number of a passing pool.
    pub(super) fn new(launchers: &Arc<Launchers>, terms: LaunchOptions, max: usize, passing: Option<u64>) -> Arc<Self> {
        let (permits, emptying) = (Arc::new(Semaphore::new(max)), Arc::new(Semaphore::new(max)));
        Arc::new(Self {
            launchers: Arc::clone(launchers),
            terms,
            permits,
            max,
            emptying,
            idle: Arc::default(),
            passing,
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
            let slot = match self.passing {
                Some(own) => self.launchers.passing.pop_if(|(pool, _)| *pool == own)?.1,
                None => self.idle.pop()?,
            };
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
        let (began, looks) = (Instant::now(), self.passing.is_some());
        let mut place = if beside.is_some() && !looks { None } else { place };
        tokio::spawn(async move {
            let mut report = None;
            if looks {
                report = timeout_at(began + LOOK, slot.next_report()).await.ok();
                place = place.filter(|_| report.is_some() || beside.is_none());
            }
            let report = match report {
                Some(report) => Ok(report),
                None => timeout_at(began + EMPTYING, slot.next_report()).await,
            };
            match report {
                Ok(Ok(LauncherReport::Ready(_))) => self.keep(slot),
                _ => slot.destroy().await,
            }
            drop((place, beside));
        });
    }

    /// Keeps a launcher for reuse, for a minute. All passing pools together keep as many as may run at once.
    pub(super) fn keep(&self, slot: Launcher) {
        let destroy = |slot: Launcher| drop(tokio::spawn(slot.destroy()));
        let Some(own) = self.passing else { return self.idle.push(slot, 0, destroy) };
        let passing = &self.launchers.passing;
        passing.push((own, slot), 0, move |(_, slot)| destroy(slot));
        passing.surplus(self.launchers.max).into_iter().for_each(|(_, slot)| destroy(slot));
    }
}

impl Drop for PoolState {
    fn drop(&mut self) {
        // They end by themselves, unless their last program stopped them.
        self.idle.take().iter().for_each(Launcher::kill);
        // These may hold a copy of a folder. Without a runtime, it goes with the folder of all work folders.
        while let Some((_, slot)) = self.passing.and_then(|own| self.launchers.passing.pop_if(|(pool, _)| *pool == own))
        {
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(slot.destroy())),
                Err(_) => slot.kill(),
            }
        }
    }
}
