//! Where programs are started that live by the same terms: with their turns, and with launchers that wait for the next one.

use std::{io::PipeReader, path::Path, sync::Arc};

use tokio::{
    net::unix::pipe,
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{
    Launchers,
    permits::{PoolState, RunPermit},
    running::RunningProcess,
    slot::{Ends, Launcher},
    terms::{Identities, LaunchOptions},
    usage::Meter,
    wire::{self, Environment, Program, Request},
};
use crate::domain::error::BackendError;

/// The launchers for programs on one set of terms.
#[derive(Debug, Clone)]
pub(crate) struct LauncherPool(Arc<PoolState>);

/// A program that runs. When its [`RunningProcess`] is dropped, it is ended.
#[derive(Debug)]
pub(crate) struct Running {
    /// What it reads, unless it has been given all of it.
    pub(crate) stdin: Option<pipe::Sender>,
    /// What it writes, which never blocks.
    pub(crate) stdout: PipeReader,
    /// What it tells people, in the same way.
    pub(crate) stderr: PipeReader,
    /// What it uses.
    pub(crate) meter: Meter,
    /// Who looks after it.
    pub(crate) charge: RunningProcess,
}

impl LauncherPool {
    /// A bay for programs on `terms`, of which at most `most` run at once.
    #[must_use]
    pub(crate) fn new(launchers: &Arc<Launchers>, terms: LaunchOptions, most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        launchers.want(terms.network);
        Self(PoolState::new(launchers, terms, most))
    }

    /// Starts `program` with `environment`, as soon as it is its turn, to read `input`: what is not short is left to the caller
    /// to write.
    ///
    /// # Errors
    /// When that is not before `deadline`, or there is no launcher for it.
    pub(crate) async fn start(
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
    pub(crate) async fn start_staying(
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
    pub(crate) async fn turn(&self, deadline: Instant) -> Result<RunPermit, BackendError> {
        self.0.turn(deadline).await
    }

    /// Which files its programs may use now, but for `known`: one that was started with others sees the old ones.
    #[must_use]
    pub(crate) fn identities_but(&self, known: &Path) -> Identities {
        self.0.terms.identities_but(known)
    }

    /// Notes that a worker is not asked any more; `why` says it.
    pub(crate) fn worker_ended(&self, why: &'static str) {
        if let Some(metrics) = &self.0.launchers.metrics {
            metrics.worker_ended(why);
        }
    }

    async fn launch(
        &self,
        program: &Program,
        environment: &Environment<'_>,
        once: Option<(&[u8], RunPermit)>,
        deadline: Instant,
    ) -> Result<Running, BackendError> {
        let cannot = |why: String| BackendError::unavailable(format!("cannot start: {why}"));
        if *self.0.launchers.is_closed.borrow() {
            return Err(cannot("the gateway is about to end".to_owned()));
        }
        let (streams, mut ends) = Ends::new().map_err(|error| cannot(error.to_string()))?;
        let is_fed = once.as_ref().is_some_and(|(input, _)| ends.feed(input));
        let request = program.start(environment).and_then(|start| wire::frame(&Request::Start(start)));
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
            let opening = timeout_at(deadline, Launcher::open(&self.0.launchers, &self.0.terms)).await;
            let opening = opening.map_err(|_| BackendError::timeout("its launcher was not ready in time"))?;
            let (mut slot, _) = opening.map_err(cannot)?;
            slot.start(&request, &streams).await.map_err(|error| cannot(error.to_string()))?;
            slot
        };
        drop(streams);
        let meter = slot.meter();
        let charge = RunningProcess::new(&self.0, slot, once.map(|(_, turn)| turn));
        let Ends { stdin, stdout, stderr } = ends;
        // What is not left to write must be closed: its end is what the program waits for.
        let stdin = (!is_fed).then(|| pipe::Sender::from_owned_fd(stdin.into())).transpose();
        Ok(Running { stdin: stdin.map_err(|error| cannot(error.to_string()))?, stdout, stderr, meter, charge })
    }
}
