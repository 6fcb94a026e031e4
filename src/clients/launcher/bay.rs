//! Where programs are started that live by the same terms: with their turns, and with launchers that wait for the next one.

use std::{io::PipeReader, path::Path, sync::Arc, time::Duration};

use tokio::{
    net::unix::pipe,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

use super::{
    Launchers,
    charge::Charge,
    idle::Idle,
    slot::{Ends, Slot},
    terms::{Identities, Terms},
    usage::Meter,
    wire::{self, Environment, Program, Report},
};
use crate::domain::error::BackendError;

/// How long a launcher may take to empty its folder.
const EMPTYING: Duration = Duration::from_mins(1);

/// The launchers for programs on one set of terms.
#[derive(Debug, Clone)]
pub struct Bay(Arc<Places>);

#[derive(Debug)]
pub(super) struct Places {
    pub(super) launchers: Arc<Launchers>,
    terms: Terms,
    permits: Arc<Semaphore>,
    most: usize,
    idle: Arc<Idle<Slot>>,
}

/// A program that runs. When its [`Charge`] is dropped, it is ended.
#[derive(Debug)]
pub struct Running {
    /// What it reads, unless it has been given all of it.
    pub stdin: Option<pipe::Sender>,
    /// What it writes, which never blocks.
    pub stdout: PipeReader,
    /// What it tells people, in the same way.
    pub stderr: PipeReader,
    /// What it uses.
    pub meter: Meter,
    /// Who looks after it.
    pub charge: Charge,
}

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

    /// Starts `program` with `environment`, as soon as it is its turn, to read `input`: what is not short is left to the caller
    /// to write.
    ///
    /// # Errors
    /// When that is not before `deadline`, or there is no launcher for it.
    pub async fn start(
        &self,
        program: &Program,
        environment: &Environment<'_>,
        input: &[u8],
        deadline: Instant,
    ) -> Result<Running, BackendError> {
        let turn = self.turn(deadline).await?;
        self.launch(program, environment, Some((input, turn)), deadline).await
    }

    /// Starts `program`, which stays: it takes no turn, but whoever has it do something needs one.
    ///
    /// # Errors
    /// When there is no launcher for it before `deadline`.
    pub async fn start_staying(
        &self,
        program: &Program,
        environment: &Environment<'_>,
        deadline: Instant,
    ) -> Result<Running, BackendError> {
        self.launch(program, environment, None, deadline).await
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// When there is none before `deadline`.
    pub async fn turn(&self, deadline: Instant) -> Result<Turn, BackendError> {
        self.0.turn(deadline).await
    }

    /// Which files its programs may use now, but for `known`: one that was started with others sees the old ones.
    #[must_use]
    pub fn identities_but(&self, known: &Path) -> Identities {
        self.0.terms.identities_but(known)
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
        environment: &Environment<'_>,
        once: Option<(&[u8], Turn)>,
        deadline: Instant,
    ) -> Result<Running, BackendError> {
        let cannot = |why: String| BackendError::unavailable(format!("cannot start: {why}"));
        if *self.0.launchers.is_closed.borrow() {
            return Err(cannot("the gateway is about to end".to_owned()));
        }
        let (streams, mut ends) = Ends::new().map_err(|error| cannot(error.to_string()))?;
        let is_fed = once.as_ref().is_some_and(|(input, _)| ends.feed(input));
        let request = program.start(environment).and_then(|start| wire::frame(&start));
        let request = request.map_err(|error| cannot(error.to_string()))?;
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
        let charge = Charge::new(&self.0, slot, once.map(|(_, turn)| turn));
        let Ends { stdin, stdout, stderr } = ends;
        // What is not left to write must be closed: its end is what the program waits for.
        let stdin = (!is_fed).then(|| pipe::Sender::from_owned_fd(stdin.into())).transpose();
        Ok(Running { stdin: stdin.map_err(|error| cannot(error.to_string()))?, stdout, stderr, meter, charge })
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

    /// Keeps a launcher for the next program once it has emptied its folder.
    pub(super) fn keep_emptied(self: Arc<Self>, mut slot: Slot) {
        tokio::spawn(async move {
            match timeout_at(Instant::now() + EMPTYING, slot.reports().next()).await {
                Ok(Ok(Report::Ready(_))) => self.keep(slot),
                _ => slot.destroy().await,
            }
        });
    }

    /// Keeps a launcher for the next program, for a while.
    pub(super) fn keep(&self, slot: Slot) {
        self.idle.push(slot, 0, |slot| drop(tokio::spawn(slot.destroy())));
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // They end by themselves, but for one that its last program stopped.
        self.idle.take().iter_mut().for_each(Slot::kill);
    }
}
