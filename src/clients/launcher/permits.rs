//! How many programs of one kind may run, and the idle launchers of that kind.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{Launchers, idle::Idle, slot::Launcher, terms::LaunchOptions, wire::LauncherReport};
use crate::domain::{error::BackendError, units::plural};

/// How long a launcher may take to empty its folder.
const EMPTYING: Duration = Duration::from_mins(1);

/// The launchers of one kind, and the limit of their programs.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) launchers: Arc<Launchers>,
    pub(super) terms: LaunchOptions,
    permits: Arc<Semaphore>,
    max: usize,
    idle: Arc<Idle<Launcher>>,
}

/// The right to run a program, or to ask a worker.
#[derive(Debug)]
pub(crate) struct RunPermit {
    _of_own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl PoolState {
    /// At most `max` programs run at once.
    pub(super) fn new(launchers: &Arc<Launchers>, terms: LaunchOptions, max: usize) -> Arc<Self> {
        let (launchers, permits) = (Arc::clone(launchers), Arc::new(Semaphore::new(max)));
        Arc::new(Self { launchers, terms, permits, max, idle: Arc::default() })
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// When there is no turn before `deadline`.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<RunPermit, BackendError> {
        let full = |max: usize, of: &str| {
            let s = plural(max);
            BackendError::timeout(format!("no turn in time: {max} run{s} {of} were under way until the deadline"))
        };
        let wait = async |permits: &Arc<Semaphore>| timeout_at(deadline, Arc::clone(permits).acquire_owned()).await;
        let (of_own, of_all) = ("of it (`concurrency`)", "of all scripts (`scripts.concurrency`)");
        let own = wait(&self.permits).await.ok().and_then(Result::ok).ok_or_else(|| full(self.max, of_own))?;
        let all = wait(&self.launchers.permits).await.ok().and_then(Result::ok);
        let all = all.ok_or_else(|| full(self.launchers.max, of_all))?;
        Ok(RunPermit { _of_own: own, _of_all: all })
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

    /// Keeps a launcher for reuse once it has emptied its folder.
    pub(super) fn keep_emptied(self: Arc<Self>, mut slot: Launcher) {
        tokio::spawn(async move {
            match timeout_at(Instant::now() + EMPTYING, slot.reports().next()).await {
                Ok(Ok(LauncherReport::Ready(_))) => self.keep(slot),
                _ => slot.destroy().await,
            }
        });
    }

    /// Keeps a launcher for reuse, for a minute.
    pub(super) fn keep(&self, slot: Launcher) {
        self.idle.push(slot, 0, |slot| drop(tokio::spawn(slot.destroy())));
    }
}

impl Drop for PoolState {
    fn drop(&mut self) {
        // They end by themselves, unless their last program stopped them.
        self.idle.take().iter_mut().for_each(Launcher::kill);
    }
}
