//! How many programs of one kind may run, and the launchers that wait for the next one.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{Launchers, idle::Idle, slot::Launcher, terms::LaunchOptions, wire::Report};
use crate::domain::error::BackendError;

/// How long a launcher may take to empty its folder.
const EMPTYING: Duration = Duration::from_mins(1);

/// Launchers of one kind, and how many of their programs may run.
#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) launchers: Arc<Launchers>,
    pub(super) terms: LaunchOptions,
    permits: Arc<Semaphore>,
    most: usize,
    idle: Arc<Idle<Launcher>>,
}

/// The right to run a program, or to have one do something.
#[derive(Debug)]
pub(crate) struct RunPermit {
    _of_own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl PoolState {
    /// With at most `most` programs at once.
    pub(super) fn new(launchers: &Arc<Launchers>, terms: LaunchOptions, most: usize) -> Arc<Self> {
        let (launchers, permits) = (Arc::clone(launchers), Arc::new(Semaphore::new(most)));
        Arc::new(Self { launchers, terms, permits, most, idle: Arc::default() })
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// When there is none before `deadline`.
    pub(super) async fn turn(&self, deadline: Instant) -> Result<RunPermit, BackendError> {
        let full = |most: usize, of: &str| {
            let s = if most == 1 { "" } else { "s" };
            BackendError::timeout(format!("no turn in time: {most} run{s} {of} were under way all the while"))
        };
        let wait = async |permits: &Arc<Semaphore>| timeout_at(deadline, Arc::clone(permits).acquire_owned()).await;
        let (of_own, of_all) = ("of it (`concurrency`)", "of all scripts (`scripts.concurrency`)");
        let own = wait(&self.permits).await.ok().and_then(Result::ok).ok_or_else(|| full(self.most, of_own))?;
        let all = wait(&self.launchers.permits).await.ok().and_then(Result::ok);
        let all = all.ok_or_else(|| full(self.launchers.most, of_all))?;
        Ok(RunPermit { _of_own: own, _of_all: all })
    }

    /// A launcher that waits for a program and may still be used.
    pub(super) fn idle_slot(&self) -> Option<Launcher> {
        loop {
            let slot = self.idle.pop()?;
            if slot.is_good(&self.terms) {
                return Some(slot);
            }
            tokio::spawn(slot.destroy());
        }
    }

    /// Keeps a launcher for the next program once it has emptied its folder.
    pub(super) fn keep_emptied(self: Arc<Self>, mut slot: Launcher) {
        tokio::spawn(async move {
            match timeout_at(Instant::now() + EMPTYING, slot.reports().next()).await {
                Ok(Ok(Report::Ready(_))) => self.keep(slot),
                _ => slot.destroy().await,
            }
        });
    }

    /// Keeps a launcher for the next program, for a while.
    pub(super) fn keep(&self, slot: Launcher) {
        self.idle.push(slot, 0, |slot| drop(tokio::spawn(slot.destroy())));
    }
}

impl Drop for PoolState {
    fn drop(&mut self) {
        // They end by themselves, but for one that its last program stopped.
        self.idle.take().iter_mut().for_each(Launcher::kill);
    }
}
