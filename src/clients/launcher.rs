//! The one way to start programs. Each program runs contained, gets only what it needs, and leaves nothing behind.
//!
//! Programs are started by *launchers*: small processes of the gateway's own program. A launcher gives up the rights that
//! programs must not have, and then starts them one after the other. The gateway itself would need `fork`, which copies its
//! page tables: tens of milliseconds with some gigabytes of memory. A launcher reaps all descendants of its program, so it
//! finds and ends every process that leaves its parent. A launcher ends with the gateway, even after `kill -9`.

mod confine;
mod copy;
mod exposure;
mod failure;
mod folder;
mod idle;
mod inside;
mod permits;
mod pool;
mod root;
mod running;
mod slot;
mod starter;
mod terms;
mod tree;
mod usage;
mod wire;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

use self::{confine::has_landlock, exposure::Demands, root::Root, slot::Launcher};
pub(crate) use self::{
    failure::{LaunchError, StartFailure},
    idle::Idle,
    inside::run,
    permits::RunPermit,
    pool::{LauncherPool, Running},
    running::{KillOnDrop, RunningProcess},
    terms::{Identities, LaunchOptions, Network, ProcessLimits, ProgramUser, SYSTEM},
    usage::{Meter, Usage},
    wire::{Copied, Ended, Environment, ExitKind, First, Program},
};
use crate::{
    domain::{count::Count, replay::Sources},
    telemetry::metrics::ProgramMetrics,
};

/// The subcommand that makes the gateway's program a launcher.
pub(crate) const ARGUMENT: &str = "launch";

/// The time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long a launcher may take to end a program, beyond the grace.
const ENDING: Duration = Duration::from_secs(5);

/// All launchers of a gateway.
#[derive(Debug)]
pub struct Launchers {
    /// The gateway's own program.
    program: PathBuf,
    permits: Arc<Semaphore>,
    max: usize,
    metrics: Option<ProgramMetrics>,
    sources: Option<Arc<dyn Sources>>,
    /// The folder of the work folders, once it exists.
    root: Mutex<Option<Root>>,
    demands: Mutex<Demands>,
    running: watch::Sender<usize>,
    is_closed: watch::Sender<bool>,
}

/// The first message to a launcher.
#[derive(Debug, Serialize, Deserialize)]
struct Opening {
    terms: LaunchOptions,
    folder: PathBuf,
}

impl Launchers {
    /// No launchers yet. `program` is the gateway's own. At most `max` programs run at once.
    #[must_use]
    pub fn new(program: PathBuf, max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(max));
        Self {
            program,
            permits,
            max,
            metrics: None,
            sources: None,
            root: Mutex::default(),
            demands: Mutex::default(),
            running: watch::Sender::default(),
            is_closed: watch::Sender::default(),
        }
    }

    /// Counts programs in `metrics` from now on.
    #[must_use]
    pub(crate) fn counted(mut self, metrics: ProgramMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Takes the lists of scripts from `sources`, or notes them there.
    #[must_use]
    pub(crate) fn with_sources(self, sources: Option<Arc<dyn Sources>>) -> Self {
        Self { sources, ..self }
    }

    /// Lists in place of scripts, or notes of them.
    pub(crate) const fn sources(&self) -> Option<&Arc<dyn Sources>> {
        self.sources.as_ref()
    }

    /// What the kernel cannot take away from programs, though a pool demands it. Empty if there are no pools.
    ///
    /// # Errors
    /// When no program could be started.
    pub(crate) async fn lacks(&self) -> Result<Vec<String>, String> {
        let network = self.demands.lock().network;
        let Some(network) = network else { return Ok(Vec::new()) };
        let (slot, lacks) = Launcher::open(self, &LaunchOptions { network, ..LaunchOptions::default() }).await?;
        slot.destroy().await;
        Ok(lacks)
    }

    /// Ends all programs, first with TERM, then with KILL. No other program starts, and the folder is removed.
    pub(crate) async fn close(&self) {
        self.is_closed.send_replace(true);
        let mut running = self.running.subscribe();
        if timeout_at(Instant::now() + GRACE + ENDING, running.wait_for(|running| *running == 0)).await.is_err() {
            tracing::warn!(running = *self.running.borrow(), "some programs have not ended and are killed");
        }
        drop(self.root.lock().take());
    }

    /// A work folder for a launcher of `user`.
    fn folder(&self, user: Option<ProgramUser>) -> std::io::Result<PathBuf> {
        let mut root = self.root.lock();
        if let Some(root) = &*root {
            match root.folder(user) {
                // The folder was removed meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                result => return result,
            }
        }
        root.insert(Root::new()?).folder(user)
    }
}

/// Counts the programs that run.
impl Count for Launchers {
    fn increment(&self) {
        self.running.send_modify(|running| *running += 1);
        if let Some(metrics) = &self.metrics {
            metrics.running.inc();
        }
    }

    fn decrement(&self) {
        self.running.send_modify(|running| *running -= 1);
        if let Some(metrics) = &self.metrics {
            metrics.running.dec();
        }
    }
}

/// Contains this process as a launcher's programs are contained, for an evaluator: only files of the system, no network,
/// and at most `memory` bytes. What the kernel cannot take away remains.
///
/// # Errors
/// When a limit cannot be set.
pub(crate) fn contain_evaluator(memory: u64) -> Result<(), String> {
    let limits = ProcessLimits { memory: Some(memory), file_size: Some(0), ..ProcessLimits::default() };
    let terms = LaunchOptions { limits, network: Network::None, ..LaunchOptions::default() };
    // An evaluator has no work folder.
    confine::confine(&terms, Path::new("")).map(drop)
}

/// The gateway's own program, even if its file has been replaced.
#[must_use]
pub fn own_program() -> &'static Path {
    Path::new("/proc/self/exe")
}
