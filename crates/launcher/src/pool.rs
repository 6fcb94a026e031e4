//! Starts programs of one kind, on idle or new launchers, as soon as there is a permit.

use std::{
    io::PipeReader,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use tokio::{
    net::unix::pipe,
    sync::{Semaphore, oneshot},
    time::{Instant, timeout_at},
};

use super::{
    Launchers,
    exposure::Reader,
    failure::{LaunchError, StartFailure},
    left::LeftFolder,
    permits::{PoolState, RunPermit},
    running::RunningProcess,
    slot::{Ends, Launcher},
    terms::{Identities, LaunchOptions},
    usage::Meter,
    wire::{self, Environment, LauncherRequest, Program, Start},
};
use domain::error::BackendError;

/// The launchers for programs with the same terms.
#[derive(Debug, Clone)]
pub struct LauncherPool(Arc<PoolState>);

/// A program that runs. Dropping its [`RunningProcess`] ends it.
#[derive(Debug)]
pub struct Running {
    /// The program's standard input, unless all input is written already.
    pub stdin: Option<pipe::Sender>,
    /// The program's standard output. Reading never blocks.
    pub stdout: PipeReader,
    /// The program's standard error. Reading never blocks.
    pub stderr: PipeReader,
    /// Measures the program's usage.
    pub meter: Meter,
    /// The launcher that runs the program.
    pub charge: RunningProcess,
}

impl LauncherPool {
    /// A pool for scripts with `terms`: at most `max` run at once.
    #[must_use]
    pub fn new(launchers: &Arc<Launchers>, terms: LaunchOptions, max: usize) -> Self {
        Self::for_reader(launchers, Reader::Script, terms, max)
    }

    /// The same for the programs of `reader`.
    #[must_use]
    pub fn for_reader(launchers: &Arc<Launchers>, reader: Reader, terms: LaunchOptions, max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        launchers.want(&terms, reader);
        Self(PoolState::new(launchers, terms, max, None))
    }

    /// A pool that [`Launchers::lacks`] and [`Launchers::why_exposed`] do not consider, for a process that makes ever new pools, such as one for
    /// each tree of a repository. All such pools together keep as many idle launchers as programs may run at once.
    #[must_use]
    pub fn passing(launchers: &Arc<Launchers>, terms: LaunchOptions, max: usize) -> Self {
        let number = launchers.count.fetch_add(1, Ordering::Relaxed);
        Self(PoolState::new(launchers, terms, max.clamp(1, Semaphore::MAX_PERMITS), Some(number)))
    }

    /// Starts `program` with `environment` as soon as it has a permit. Writes `input` if it is short; otherwise the caller writes
    /// it.
    ///
    /// # Errors
    /// When there is no permit before `deadline`, or no launcher can start the program.
    pub async fn start(
        &self,
        program: &Program,
        environment: &Environment<'_>,
        input: &[u8],
        deadline: Instant,
    ) -> Result<Running, LaunchError> {
        let permit = self.permit(deadline).await?;
        self.launch(program, environment, Some((input, permit)), None, deadline).await
    }

    /// As [`Self::start`], and also hands over the program's work folder as it is when nothing of the program runs any more. The launcher runs no
    /// other program.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_handing_over(
        &self,
        program: &Program,
        environment: &Environment<'_>,
        input: &[u8],
        deadline: Instant,
    ) -> Result<(Running, oneshot::Receiver<LeftFolder>), LaunchError> {
        let permit = self.permit(deadline).await?;
        let (heir, left) = oneshot::channel();
        let running = self.launch(program, environment, Some((input, permit)), Some(heir), deadline).await?;
        Ok((running, left))
    }

    /// Starts `program` as a worker. The worker takes no permit, but each query to it needs one.
    ///
    /// # Errors
    /// When there is no launcher for it before `deadline`.
    pub async fn start_staying(
        &self,
        program: &Program,
        environment: &Environment<'_>,
        deadline: Instant,
    ) -> Result<Running, LaunchError> {
        self.launch(program, environment, None, None, deadline).await
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// When there is no permit before `deadline`.
    pub async fn permit(&self, deadline: Instant) -> Result<RunPermit, BackendError> {
        self.0.permit(deadline).await
    }

    /// Which files its programs may use now, without `known`. A program that started with other files sees the old ones.
    #[must_use]
    pub fn identities_but(&self, known: &Path) -> Identities {
        self.0.terms.identities_but(known)
    }

    /// Counts a worker that gets no further query, because of `why`.
    pub fn worker_ended(&self, why: &'static str) {
        if let Some(metrics) = &self.0.launchers.metrics {
            metrics.worker_ended(why);
        }
    }

    async fn launch(
        &self,
        program: &Program,
        environment: &Environment<'_>,
        once: Option<(&[u8], RunPermit)>,
        heir: Option<oneshot::Sender<LeftFolder>>,
        deadline: Instant,
    ) -> Result<Running, LaunchError> {
        if *self.0.launchers.is_closed.borrow() {
            return Err(StartFailure::from("the gateway is shutting down".to_owned()).into());
        }
        let (streams, mut ends) = Ends::new().map_err(StartFailure::from)?;
        let is_fed = once.as_ref().is_some_and(|(input, _)| ends.feed(input));
        let request = program
            .start(environment)
            .and_then(|start| wire::frame(&LauncherRequest::Start(Start { is_handed_over: heir.is_some(), ..start })));
        let request = request.map_err(StartFailure::from)?;
        let mut slot = None;
        if let Some(mut idle) = self.0.idle_slot() {
            // A launcher that has just ended did not read the request.
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
            let (mut slot, _) = opening.map_err(StartFailure::from)?;
            slot.start(&request, &streams).await.map_err(StartFailure::from)?;
            slot
        };
        drop(streams);
        let meter = slot.meter();
        let charge = RunningProcess::new(&self.0, slot, once.map(|(_, permit)| permit), heir);
        let Ends { stdin, stdout, stderr } = ends;
        // The program waits for the end of its input, so a pipe with nothing left to write must be closed.
        let stdin = (!is_fed).then(|| pipe::Sender::from_owned_fd(stdin.into())).transpose();
        Ok(Running { stdin: stdin.map_err(StartFailure::from)?, stdout, stderr, meter, charge })
    }
}
