//! A launcher that has a program to look after, from the program's start to its end.

use std::{io, sync::Arc};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::{
    ENDING, GRACE, Launchers,
    permits::{PoolState, RunPermit},
    slot::Launcher,
    wire::{Ended, Fate, Report},
};
use crate::domain::{count::CountGuard, error::BackendError};

/// A launcher and its program. Dropped before the program's end, it ends the program: first politely, then by force.
#[derive(Debug)]
pub(crate) struct RunningProcess(Option<Held>);

/// What keeps a program running: when it is lost, the program is ended.
#[derive(Debug)]
pub(crate) struct KillOnDrop(#[expect(dead_code, reason = "its loss is the sign")] oneshot::Sender<()>);

#[derive(Debug)]
struct Held {
    places: Arc<PoolState>,
    slot: Launcher,
    place: ProcessPermit,
    /// Until when the program must have ended, once it was asked to.
    until: Option<Instant>,
}

/// A program that counts as running, and its turn.
#[derive(Debug)]
struct ProcessPermit {
    _running: CountGuard<Arc<Launchers>>,
    _turn: Option<RunPermit>,
}

impl RunningProcess {
    /// The one of `slot`, whose program was just started in its `turn`, if it takes one.
    pub(super) fn new(places: &Arc<PoolState>, slot: Launcher, turn: Option<RunPermit>) -> Self {
        let place = ProcessPermit { _running: CountGuard::new(Arc::clone(&places.launchers)), _turn: turn };
        Self(Some(Held { places: Arc::clone(places), slot, place, until: None }))
    }

    /// How the program ended, once it has, and all that it started too. Who stops to wait may wait again.
    ///
    /// # Errors
    /// When nobody knows, or it could not be started.
    pub(crate) async fn over(&mut self) -> Result<Ended, BackendError> {
        let report = match &mut self.0 {
            Some(held) => held.report().await,
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        told(&report, self.0.take()).0
    }

    /// Looks after the program in a task of its own, for who cannot wait for its end all the time. That is told when nothing is
    /// left of it.
    pub(crate) fn watched(mut self) -> (oneshot::Receiver<Result<Ended, BackendError>>, KillOnDrop) {
        let ((stop, stopped), (end, ended)) = (oneshot::channel(), oneshot::channel());
        tokio::spawn(async move {
            let report = match &mut self.0 {
                Some(held) => {
                    tokio::select! {
                        report = held.report() => report,
                        _ = stopped => held.stop().await,
                    }
                }
                None => Err(io::ErrorKind::NotConnected.into()),
            };
            let (how, destroying) = told(&report, self.0.take());
            if let Some(destroying) = destroying {
                let _ = destroying.await;
            }
            let _ = end.send(how);
        });
        (ended, KillOnDrop(stop))
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // Without a runtime the launcher sees its socket closed, and does the same at once.
        if let (Some(mut held), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                let report = held.stop().await;
                told(&report, Some(held))
            });
        }
    }
}

impl Held {
    /// What the launcher says of the program's end, which comes by itself or when the gateway ends. Who stops to wait may
    /// wait again.
    async fn report(&mut self) -> io::Result<Report> {
        if self.until.is_none() {
            let mut closing = self.places.launchers.is_closed.subscribe();
            tokio::select! {
                report = self.slot.reports().next() => return report,
                _ = closing.wait_for(|is_closed| *is_closed) => {}
            }
            self.ask_to_end().await?;
        }
        let until = self.until.unwrap_or_else(Instant::now);
        timeout_at(until, self.slot.reports().next()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn ask_to_end(&mut self) -> io::Result<()> {
        self.slot.stop(GRACE).await?;
        self.until = Some(Instant::now() + GRACE + ENDING);
        Ok(())
    }

    /// Ends the program, and says what the launcher says of that.
    async fn stop(&mut self) -> io::Result<Report> {
        self.ask_to_end().await?;
        self.report().await
    }
}

/// What `report` says of the program. Its launcher is kept, or destroyed, which is done when the task is.
fn told(report: &io::Result<Report>, held: Option<Held>) -> (Result<Ended, BackendError>, Option<JoinHandle<()>>) {
    let (how, fate) = match report {
        Ok(Report::Ended(ended)) => (Ok(ended.clone()), ended.fate),
        Ok(Report::NotStarted(why)) => (Err(format!("cannot start: {why}")), Fate::Ends),
        Ok(Report::Ready(_)) => (Err("its launcher lost count".to_owned()), Fate::Ends),
        Err(error) => (Err(format!("its launcher has ended: {error}")), Fate::Ends),
    };
    let mut destroying = None;
    if let Some(Held { places, slot, place, .. }) = held {
        match fate {
            Fate::Goes => places.keep(slot),
            Fate::Waits => places.keep_emptied(slot),
            Fate::Ends => {
                destroying = Some(tokio::spawn(async move {
                    slot.destroy().await;
                    // It is free when nothing is left.
                    drop(place);
                }));
            }
        }
    }
    (how.map_err(BackendError::unavailable), destroying)
}
