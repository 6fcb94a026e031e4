//! A launcher that has a program to look after, from the program's start to its end.

use std::{io, sync::Arc};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    ENDING, GRACE, Launchers,
    bay::{Places, Turn},
    slot::Slot,
    wire::{Ended, Fate, Report},
};
use crate::error::BackendError;

/// A launcher and its program. Dropped before the program's end, it ends the program: first politely, then by force.
#[derive(Debug)]
pub struct Charge(Option<Held>);

/// What keeps a program running: when it is lost, the program is ended.
#[derive(Debug)]
pub struct Leash(#[expect(dead_code, reason = "its loss is the sign")] oneshot::Sender<()>);

#[derive(Debug)]
struct Held {
    places: Arc<Places>,
    slot: Slot,
    place: Place,
    /// Until when the program must have ended, once it was asked to.
    until: Option<Instant>,
}

/// The place of a program that runs.
#[derive(Debug)]
struct Place {
    launchers: Arc<Launchers>,
    _turn: Option<Turn>,
}

impl Charge {
    /// The one of `slot`, whose program was just started in its `turn`, if it takes one.
    pub(super) fn new(places: &Arc<Places>, slot: Slot, turn: Option<Turn>) -> Self {
        let launchers = Arc::clone(&places.launchers);
        launchers.begun();
        let place = Place { launchers, _turn: turn };
        Self(Some(Held { places: Arc::clone(places), slot, place, until: None }))
    }

    /// How the program ended, once it has, and all that it started too. Who stops to wait may wait again.
    ///
    /// # Errors
    /// When nobody knows, or it could not be started.
    pub async fn over(&mut self) -> Result<Ended, BackendError> {
        let report = match &mut self.0 {
            Some(held) => held.report().await,
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        told(&report, self.0.take())
    }

    /// Looks after the program in a task of its own, for who cannot wait for its end all the time.
    pub fn watched(mut self) -> (oneshot::Receiver<Result<Ended, BackendError>>, Leash) {
        let ((stop, stopped), (end, ended)) = (oneshot::channel(), oneshot::channel());
        tokio::spawn(async move {
            tokio::select! {
                how = self.over() => {
                    let _ = end.send(how);
                }
                // Nobody wants to know how it ends but who waits for it.
                _ = stopped => {
                    if let Some(held) = self.0.take() {
                        let _ = end.send(held.stop().await);
                    }
                }
            }
        });
        (ended, Leash(stop))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        // Without a runtime the launcher sees its socket closed, and does the same at once.
        if let (Some(held), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(held.stop());
        }
    }
}

impl Held {
    /// What the launcher says of the program's end, which comes by itself or when the gateway ends. Who stops to wait may
    /// wait again.
    async fn report(&mut self) -> io::Result<Report> {
        if self.until.is_none() {
            let mut closing = self.place.launchers.is_closed.subscribe();
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
        self.until = Some(Instant::now() + GRACE + ENDING);
        self.slot.stop(GRACE).await
    }

    async fn stop(mut self) -> Result<Ended, BackendError> {
        let report = match self.ask_to_end().await {
            Ok(()) => self.report().await,
            Err(error) => Err(error),
        };
        told(&report, Some(self))
    }
}

/// What `report` says of the program; and its launcher is kept, or destroyed.
fn told(report: &io::Result<Report>, held: Option<Held>) -> Result<Ended, BackendError> {
    let (how, fate) = match report {
        Ok(Report::Ended(ended)) => (Ok(ended.clone()), ended.fate),
        Ok(Report::NotStarted(why)) => (Err(format!("cannot start: {why}")), Fate::Ends),
        Ok(Report::Ready(_)) => (Err("its launcher lost count".to_owned()), Fate::Ends),
        Err(error) => (Err(format!("its launcher has ended: {error}")), Fate::Ends),
    };
    if let Some(Held { places, slot, place, .. }) = held {
        match fate {
            Fate::Goes => places.keep(slot),
            Fate::Waits => places.keep_emptied(slot),
            // Its place is free when nothing is left of it.
            Fate::Ends => drop(tokio::spawn(async move {
                slot.destroy().await;
                drop(place);
            })),
        }
    }
    how.map_err(BackendError::unavailable)
}

impl Drop for Place {
    fn drop(&mut self) {
        self.launchers.ended();
    }
}
