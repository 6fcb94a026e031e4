//! A launcher with a program, from the program's start to its end.

use std::{io, sync::Arc};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, oneshot},
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::{
    ENDING, GRACE, Launchers,
    failure::LaunchError,
    left::LeftFolder,
    permits::{PoolState, RunPermit},
    slot::Launcher,
    wire::{Ended, Fate, LauncherReport},
};
use domain::error::BackendError;
use telemetry::count::CountGuard;

/// A launcher and its program. Dropping it before the program's end ends the program: first with TERM, then with KILL.
#[derive(Debug)]
pub struct RunningProcess(Option<Held>);

/// Dropping this ends the program.
#[derive(Debug)]
pub struct KillOnDrop(#[expect(dead_code, reason = "dropping it is the signal")] oneshot::Sender<()>);

#[derive(Debug)]
struct Held {
    places: Arc<PoolState>,
    slot: Launcher,
    place: ProcessPermit,
    /// Who gets the work folder, if it is handed over.
    heir: Option<oneshot::Sender<LeftFolder>>,
    /// When the program must have ended. Set when it got the request to end.
    until: Option<Instant>,
}

/// A program that counts as running, and its permit.
#[derive(Debug)]
struct ProcessPermit {
    _running: CountGuard<Arc<Launchers>>,
    permit: Option<RunPermit>,
}

impl ProcessPermit {
    /// The part of the permit that only this program's pool lacks, for as long as its folder is not empty. All other scripts
    /// have theirs back.
    fn of_own(self) -> Option<OwnedSemaphorePermit> {
        self.permit.map(RunPermit::into_own)
    }
}

impl RunningProcess {
    /// The program that `slot` has just started. `permit` is `None` for a worker. `heir` gets its work folder.
    pub(super) fn new(
        places: &Arc<PoolState>,
        slot: Launcher,
        permit: Option<RunPermit>,
        heir: Option<oneshot::Sender<LeftFolder>>,
    ) -> Self {
        let place = ProcessPermit { _running: CountGuard::new(Arc::clone(&places.launchers)), permit };
        Self(Some(Held { places: Arc::clone(places), slot, place, heir, until: None }))
    }

    /// Waits until the program and all its descendants have ended. A cancelled call loses nothing.
    ///
    /// # Errors
    /// When the program could not be started, or the launcher failed.
    pub async fn over(&mut self) -> Result<Ended, LaunchError> {
        let report = match &mut self.0 {
            Some(held) => held.report().await,
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        finish(&report, self.0.take()).0
    }

    /// Moves the program to a task of its own, for a caller that cannot always wait for it. The receiver gets the result
    /// when nothing of the program is left.
    pub fn watched(mut self) -> (oneshot::Receiver<Result<Ended, LaunchError>>, KillOnDrop) {
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
            let (ended_as, destroying) = finish(&report, self.0.take());
            if let Some(destroying) = destroying {
                let _ = destroying.await;
            }
            let _ = end.send(ended_as);
        });
        (ended, KillOnDrop(stop))
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // Without a runtime, the launcher sees its socket closed and ends the program at once.
        if let (Some(mut held), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                let report = held.stop().await;
                finish(&report, Some(held))
            });
        }
    }
}

impl Held {
    /// Waits until the launcher reports the program's end. When the gateway shuts down, requests that end. A cancelled call
    /// loses nothing.
    async fn report(&mut self) -> io::Result<LauncherReport> {
        if self.until.is_none() {
            let mut closing = self.places.launchers.is_closed.subscribe();
            tokio::select! {
                report = self.slot.next_report() => return report,
                _ = closing.wait_for(|is_closed| *is_closed) => {}
            }
            self.request_end().await?;
        }
        // A launcher that does not report in time has a program that cannot be ended: it is destroyed.
        let until = self.until.unwrap_or_else(Instant::now);
        timeout_at(until, self.slot.next_report()).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    async fn request_end(&mut self) -> io::Result<()> {
        self.slot.stop(GRACE).await?;
        self.until = Some(Instant::now() + GRACE + ENDING);
        Ok(())
    }

    /// Requests the program's end and waits for the report.
    async fn stop(&mut self) -> io::Result<LauncherReport> {
        self.request_end().await?;
        self.report().await
    }
}

/// The program's result in `report`. Keeps the launcher, or destroys it in the returned task.
fn finish(
    report: &io::Result<LauncherReport>,
    held: Option<Held>,
) -> (Result<Ended, LaunchError>, Option<JoinHandle<()>>) {
    let failed = |why: String| Err(BackendError::unavailable(why).into());
    let (result, fate) = match report {
        Ok(LauncherReport::Ended(ended)) => (Ok(ended.clone()), ended.fate),
        Ok(LauncherReport::NotStarted(failure)) => (Err(failure.clone().into()), Fate::Ends),
        Ok(LauncherReport::Ready(_)) => (failed("its launcher sent an unexpected message".to_owned()), Fate::Ends),
        Err(error) => (failed(format!("its launcher has ended: {error}")), Fate::Ends),
    };
    let mut destroying = None;
    if let Some(Held { places, slot, place, heir, .. }) = held {
        match fate {
            Fate::Goes => places.keep(slot),
            Fate::Waits => places.keep_emptied(slot, place.of_own()),
            Fate::Ends => {
                destroying = Some(tokio::spawn(async move {
                    let left = slot.end().await;
                    // The program counts as running until no process of it is left.
                    let left = left.holding(place.of_own());
                    // It is not handed over, or its receiver has gone.
                    let unwanted = match heir {
                        Some(heir) => heir.send(left).err(),
                        None => Some(left),
                    };
                    drop(unwanted);
                }));
            }
        }
    }
    (result, destroying)
}
