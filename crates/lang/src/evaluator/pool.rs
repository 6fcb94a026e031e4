//! Evaluators of one size, and the queue for them.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    error::Cause,
    process::Process,
    wire::{self, EvaluatorAnswer, Task},
};
use launcher::Idle;
use telemetry::count::{Count, CountGuard};

/// How long an evaluation may take while others wait.
const SHARE: Duration = Duration::from_secs(2);
/// An evaluator that took longer, or got a larger task, is replaced: its memory is fragmented.
const LIGHT: (Duration, usize) = (Duration::from_millis(200), 64 * 1024);

/// Evaluators of one size.
#[derive(Debug)]
pub(super) struct EvaluatorPool {
    program: PathBuf,
    memory: u64,
    permits: Arc<Semaphore>,
    waiting: Waiting,
    idle: Arc<Idle<Process>>,
}

/// An evaluator at work, and its permit. Both end together.
struct Busy(Option<(Process, OwnedSemaphorePermit)>);

/// How many callers wait for a permit.
#[derive(Debug, Default)]
struct Waiting(watch::Sender<usize>);

impl EvaluatorPool {
    /// At most `count` evaluators, each with `memory` bytes.
    pub(super) fn new(program: PathBuf, count: usize, memory: u64) -> Self {
        let permits = Arc::new(Semaphore::new(count));
        Self { program, memory, permits, waiting: Waiting::default(), idle: Arc::default() }
    }

    /// The answer to `task`. The evaluator is killed at the `deadline`, or when the caller is cancelled.
    pub(super) async fn answer(&self, task: &Task<'_>, deadline: Instant) -> Result<EvaluatorAnswer, Cause> {
        let permit = self.permit(deadline).await?;
        // Encoded only now: the frame is a copy of everything that the task reads, and many tasks may wait.
        let frame = wire::frame(task).map_err(|error| Cause::Crashed(error.to_string()))?;
        let process = match self.idle.pop().and_then(Process::if_fit) {
            Some(process) => process,
            None => Process::start(&self.program, self.memory)?,
        };
        let began = Instant::now();
        let mut busy = Busy(Some((process, permit)));
        let Some((process, _)) = &mut busy.0 else { return Err(Cause::NoSlot) };
        let answer = tokio::select! {
            answer = process.answer(&frame) => answer?,
            () = sleep_until(deadline) => return Err(Cause::Time),
            () = self.is_wanted() => return Err(Cause::Share),
        };
        // All other endings drop `busy`, which ends the process before its permit.
        if began.elapsed() < LIGHT.0
            && frame.len() < LIGHT.1
            && let Some((process, permit)) = busy.0.take()
        {
            self.idle.push(process, 0, drop);
            drop(permit);
        }
        Ok(answer)
    }

    async fn permit(&self, deadline: Instant) -> Result<OwnedSemaphorePermit, Cause> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let _waiting = CountGuard::new(&self.waiting);
        let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or(Cause::NoSlot)
    }

    /// Waits until the evaluation has had its share, and another one waits.
    async fn is_wanted(&self) {
        sleep(SHARE).await;
        let mut waiting = self.waiting.0.subscribe();
        // The sender lives as long as `self`.
        let _ = waiting.wait_for(|waiting| *waiting > 0).await;
    }
}

impl Count for Waiting {
    fn increment(&self) {
        self.0.send_modify(|waiting| *waiting += 1);
    }

    fn decrement(&self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // Without a runtime, dropping the process kills it.
        if let (Some((process, permit)), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move {
                process.end().await;
                drop(permit);
            });
        }
    }
}
