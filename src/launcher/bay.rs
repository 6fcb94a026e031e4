//! Where programs are started that live by the same terms: with their turns, and with launchers that wait for the next one.

use std::{io::PipeReader, sync::Arc, time::Duration};

use tokio::{
    net::unix::pipe,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, timeout_at},
};

use super::{
    ENDING, GRACE, Launchers,
    idle::Idle,
    slot::{Ends, Slot},
    terms::{Identities, Terms},
    usage::Meter,
    wire::{self, Ended, Fate, Program, Report},
};
use crate::error::BackendError;

/// How long a launcher may take to empty its folder.
const EMPTYING: Duration = Duration::from_mins(1);

/// The launchers for programs on one set of terms.
#[derive(Debug, Clone)]
pub struct Bay(Arc<Places>);

#[derive(Debug)]
struct Places {
    launchers: Arc<Launchers>,
    terms: Terms,
    permits: Arc<Semaphore>,
    most: usize,
    idle: Arc<Idle<Slot>>,
}

/// A program that runs. When its leash is dropped, it is ended: first politely, then by force.
#[derive(Debug)]
pub struct Running {
    /// What it reads, unless it has been given all of it.
    pub stdin: Option<pipe::Sender>,
    /// What it writes, which never blocks.
    pub stdout: PipeReader,
    /// What it tells people, in the same way.
    pub stderr: PipeReader,
    /// How it ended, once it has, and all that it started too.
    pub ended: oneshot::Receiver<Result<Ended, BackendError>>,
    /// What it uses.
    pub meter: Meter,
    /// What keeps it running.
    pub leash: Leash,
}

/// What keeps a program running: when it is lost, the program is ended.
#[derive(Debug)]
pub struct Leash(#[expect(dead_code, reason = "its loss is the sign")] oneshot::Sender<()>);

/// The right to run a program, or to have one do something.
#[derive(Debug)]
pub struct Turn {
    _of_own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Bay {
    /// A bay for programs on `terms`, of which at most `most` run at once.
    #[must_use]
    pub fn new(launchers: &Arc<Launchers>, terms: Terms, most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        launchers.want(terms.network);
        let (launchers, permits) = (Arc::clone(launchers), Arc::new(Semaphore::new(most)));
        Self(Arc::new(Places { launchers, terms, permits, most, idle: Arc::default() }))
    }

    /// Starts `program`, as soon as it is its turn, to read `input`: what is not short is left to the caller to write.
    ///
    /// # Errors
    /// When that is not before `deadline`, or there is no launcher for it.
    pub async fn start(&self, program: &Program, input: &[u8], deadline: Instant) -> Result<Running, BackendError> {
        let turn = self.turn(deadline).await?;
        self.launch(program, Some(input), deadline, Some(turn)).await
    }

    /// Starts `program`, which stays: it takes no turn, but whoever has it do something needs one.
    ///
    /// # Errors
    /// When there is no launcher for it before `deadline`.
    pub async fn start_staying(&self, program: &Program, deadline: Instant) -> Result<Running, BackendError> {
        self.launch(program, None, deadline, None).await
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// When there is none before `deadline`.
    pub async fn turn(&self, deadline: Instant) -> Result<Turn, BackendError> {
        self.0.turn(deadline).await
    }

    /// Which files its programs may use now: one that was started with others sees the old ones.
    #[must_use]
    pub fn identities(&self) -> Identities {
        self.0.terms.identities()
    }

    /// Notes that a worker is not asked any more; `why` says it.
    pub fn worker_ended(&self, why: &'static str) {
        if let Some(metrics) = &self.0.launchers.metrics {
            metrics.worker_ended(why);
        }
    }

    async fn launch(
        &self,
        program: &Program,
        input: Option<&[u8]>,
        deadline: Instant,
        turn: Option<Turn>,
    ) -> Result<Running, BackendError> {
        let cannot = |why: String| BackendError::unavailable(format!("cannot start: {why}"));
        if *self.0.launchers.is_closed.borrow() {
            return Err(cannot("the gateway is about to end".to_owned()));
        }
        let (streams, mut ends) = Ends::new().map_err(|error| cannot(error.to_string()))?;
        let is_fed = input.is_some_and(|input| ends.feed(input));
        let request =
            program.start().and_then(|start| wire::frame(&start)).map_err(|error| cannot(error.to_string()))?;
        let mut slot = None;
        if let Some(mut idle) = self.0.idle_slot() {
            // One that ended just now has not read it.
            if idle.start(&request, &streams).await.is_ok() {
                slot = Some(idle);
            } else {
                tokio::spawn(idle.destroy());
            }
        }
        let slot = if let Some(slot) = slot {
            slot
        } else {
            let opening = timeout_at(deadline, Slot::open(&self.0.launchers, &self.0.terms)).await;
            let opening = opening.map_err(|_| BackendError::timeout("its launcher was not ready in time"))?;
            let (mut slot, _) = opening.map_err(cannot)?;
            slot.start(&request, &streams).await.map_err(|error| cannot(error.to_string()))?;
            slot
        };
        drop(streams);
        let meter = slot.meter();
        self.0.launchers.begun();
        let ((stop, stopped), (end, ended)) = (oneshot::channel(), oneshot::channel());
        tokio::spawn(Arc::clone(&self.0).attend(slot, stopped, end, turn));
        let Ends { stdin, stdout, stderr } = ends;
        // What is not left to write must be closed: its end is what the program waits for.
        let stdin = (!is_fed).then(|| pipe::Sender::from_owned_fd_unchecked(stdin.into())).transpose();
        Ok(Running {
            stdin: stdin.map_err(|error| cannot(error.to_string()))?,
            stdout,
            stderr,
            ended,
            meter,
            leash: Leash(stop),
        })
    }
}

impl Places {
    async fn turn(&self, deadline: Instant) -> Result<Turn, BackendError> {
        let full = |most: usize, of: &str| {
            let s = if most == 1 { "" } else { "s" };
            BackendError::timeout(format!("no turn in time: {most} run{s} {of} were under way all the while"))
        };
        let wait = async |permits: &Arc<Semaphore>| timeout_at(deadline, Arc::clone(permits).acquire_owned()).await;
        let (of_own, of_all) = ("of it (`concurrency`)", "of all scripts (`scripts.concurrency`)");
        let own = wait(&self.permits).await.ok().and_then(Result::ok).ok_or_else(|| full(self.most, of_own))?;
        let all = wait(&self.launchers.permits).await.ok().and_then(Result::ok);
        let all = all.ok_or_else(|| full(self.launchers.most, of_all))?;
        Ok(Turn { _of_own: own, _of_all: all })
    }

    fn idle_slot(&self) -> Option<Slot> {
        loop {
            let slot = self.idle.pop()?;
            if slot.is_good(&self.terms) {
                return Some(slot);
            }
            tokio::spawn(slot.destroy());
        }
    }

    /// Waits for the program's end, which comes by itself or when `stopped` says so.
    async fn attend(
        self: Arc<Self>,
        mut slot: Slot,
        mut stopped: oneshot::Receiver<()>,
        end: oneshot::Sender<Result<Ended, BackendError>>,
        turn: Option<Turn>,
    ) {
        let mut closing = self.launchers.is_closed.subscribe();
        let to_be_ended = async {
            tokio::select! {
                _ = &mut stopped => {}
                _ = closing.wait_for(|is_closed| *is_closed) => {}
            }
        };
        let report = {
            let (reports, requests) = slot.halves();
            let mut report = std::pin::pin!(reports.next());
            tokio::select! {
                report = &mut report => report,
                () = to_be_ended => {
                    let late = Err(std::io::ErrorKind::TimedOut.into());
                    match requests.stop(GRACE).await {
                        Ok(()) => timeout_at(Instant::now() + GRACE + ENDING, report).await.unwrap_or(late),
                        Err(error) => Err(error),
                    }
                }
            }
        };
        let (how, fate) = match report {
            Ok(Report::Ended(ended)) => {
                let fate = ended.fate;
                (Ok(ended), fate)
            }
            Ok(Report::NotStarted(why)) => (Err(BackendError::unavailable(format!("cannot start: {why}"))), Fate::Ends),
            Ok(Report::Ready(_)) => (Err(BackendError::unavailable("its launcher lost count")), Fate::Ends),
            Err(error) => (Err(BackendError::unavailable(format!("its launcher has ended: {error}"))), Fate::Ends),
        };
        match fate {
            Fate::Goes => self.keep(slot),
            Fate::Ends => slot.destroy().await,
            Fate::Waits => {
                let places = Arc::clone(&self);
                tokio::spawn(async move {
                    match timeout_at(Instant::now() + EMPTYING, slot.halves().0.next()).await {
                        Ok(Ok(Report::Ready(_))) => places.keep(slot),
                        _ => slot.destroy().await,
                    }
                });
            }
        }
        self.launchers.ended();
        drop(turn);
        let _ = end.send(how);
    }

    /// Keeps a launcher for the next program, for a while.
    fn keep(&self, slot: Slot) {
        self.idle.push(slot, 0, |slot| drop(tokio::spawn(slot.destroy())));
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // They end by themselves, but for one that its last program stopped.
        self.idle.take().iter_mut().for_each(Slot::kill);
    }
}
