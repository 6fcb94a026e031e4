//! The one way to start programs. Each program runs contained, gets only what it needs, and leaves nothing behind.
//!
//! Programs are started by *launchers*: small processes of the gateway's own program. A launcher gives up the rights that
//! programs must not have, and then starts them one after the other. The gateway itself would need `fork`, which copies its
//! page tables: tens of milliseconds with some gigabytes of memory. A launcher reaps all descendants of its program, so it
//! finds and ends every process that leaves its parent. A launcher ends with the gateway, even after `kill -9`. Launchers are started by a
//! *supervisor*, which ends the processes of a launcher that was killed.
//!
//! Start at [`LauncherPool`].
//!
//! - In the gateway: `pool` starts programs, `permits` limits them, `slot` is one launcher, `running` a launcher with a program, `host` what all
//!   launchers share, `supervisor` the supervisor seen from here, `idle` the launchers kept for reuse, and `usage` a program's memory and time.
//! - In the launcher: `inside` is its main loop, `confine` gives up rights, `starter` starts a program, and `tree` ends its descendants.
//! - Both: `wire` is the protocol and `link` its socket; `terms` are the rights and limits of a program, `open_files` is the limit that they have
//!   from the gateway, and [`belongings`] the files that come with it; `failure` is why one did not run.
//! - Files: `root` is the folder of all work folders, `folder` one of them, `copy` fills and `emptying` empties it, `reuse` says whether a program
//!   changed a copy, and `left` is what a launcher that has ended leaves of it. `exposure` finds files of the gateway that scripts could read.

pub mod belongings;
mod confine;
mod copy;
mod emptying;
mod exposure;
mod failure;
mod folder;
mod host;
mod idle;
mod inside;
mod left;
mod link;
mod open_files;
mod permits;
mod pool;
mod reuse;
mod root;
mod running;
mod slot;
mod starter;
mod supervisor;
mod terms;
mod tree;
mod usage;
mod wire;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

pub use self::{
    confine::ConfineError,
    exposure::{Exposure, Reader},
    failure::{LaunchError, StartFailure},
    idle::Idle,
    inside::run,
    left::{KeptFolder, LeftFolder},
    open_files::raise_open_files,
    permits::RunPermit,
    pool::{LauncherPool, Running},
    running::{KillOnDrop, RunningProcess},
    terms::{Identities, LaunchOptions, Network, ProcessLimits, ProgramUser, SYSTEM},
    usage::{Meter, Usage},
    wire::{Copied, Ended, Environment, ExitKind, First, Program},
};
use self::{confine::has_landlock, exposure::Demands, host::LauncherHost, permits::PassingIdle, slot::Launcher};
use domain::replay::Sources;
use telemetry::count::Count;
use telemetry::metrics::ProgramMetrics;

/// The subcommand that makes the gateway's program a launcher.
pub const ARGUMENT: &str = "launch";

/// The time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);
/// How long a launcher may take to end a program, beyond the grace.
const ENDING: Duration = Duration::from_secs(5);

/// All launchers of a gateway.
#[derive(Debug)]
pub struct Launchers {
    host: Arc<LauncherHost>,
    permits: Arc<Semaphore>,
    max: usize,
    metrics: Option<ProgramMetrics>,
    sources: Option<Arc<dyn Sources>>,
    demands: Mutex<Demands>,
    /// The idle launchers of passing pools.
    passing: PassingIdle,
    /// How many passing pools were made.
    count: AtomicU64,
    running: watch::Sender<usize>,
    is_closed: watch::Sender<bool>,
}

/// The first message to a process that was started as [`ARGUMENT`]: its task.
#[derive(Debug, Serialize, Deserialize)]
enum Opening {
    /// Start launchers, with this soft limit of open files, if it is not the gateway's.
    Supervisor { open_files: Option<u64> },
    /// Start programs with these terms, which have this work folder.
    Launcher { terms: LaunchOptions, folder: PathBuf },
    /// Empty this folder.
    Emptying { terms: LaunchOptions, folder: PathBuf },
}

impl Launchers {
    /// No launchers yet. `program` is the gateway's own. At most `max` programs run at once.
    #[must_use]
    pub fn new(program: PathBuf, max: usize) -> Self {
        let max = max.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(max));
        Self {
            host: Arc::new(LauncherHost::new(program)),
            permits,
            max,
            metrics: None,
            sources: None,
            demands: Mutex::default(),
            passing: PassingIdle::default(),
            count: AtomicU64::new(0),
            running: watch::Sender::default(),
            is_closed: watch::Sender::default(),
        }
    }

    /// Counts programs in `metrics` from now on.
    #[must_use]
    pub fn counted(mut self, metrics: ProgramMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Takes the lists of scripts from `sources`, or notes them there.
    #[must_use]
    pub fn with_sources(self, sources: Option<Arc<dyn Sources>>) -> Self {
        Self { sources, ..self }
    }

    /// Lists in place of scripts, or notes of them.
    pub const fn sources(&self) -> Option<&Arc<dyn Sources>> {
        self.sources.as_ref()
    }

    /// The rights that the kernel cannot take away from programs, though a pool demands it. Empty if there are no pools.
    ///
    /// # Errors
    /// When no program could be started.
    pub async fn lacks(&self) -> Result<Vec<String>, String> {
        let network = self.demands.lock().network;
        let Some(network) = network else { return Ok(Vec::new()) };
        let (slot, lacks) = Launcher::open(self, &LaunchOptions { network, ..LaunchOptions::default() }).await?;
        slot.destroy().await;
        Ok(lacks)
    }

    /// Ends all programs, first with TERM, then with KILL. No other program starts, and the folder is removed.
    pub async fn close(&self) {
        self.is_closed.send_replace(true);
        let mut running = self.running.subscribe();
        if timeout_at(Instant::now() + GRACE + ENDING, running.wait_for(|running| *running == 0)).await.is_err() {
            tracing::warn!(running = *self.running.borrow(), "some programs have not ended and are killed");
        }
        self.host.close().await;
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
/// and at most `memory` bytes. Rights that the kernel cannot take away remain.
///
/// # Errors
/// When a limit cannot be set.
pub fn contain_evaluator(memory: u64) -> Result<(), ConfineError> {
    let limits = ProcessLimits { memory: Some(memory), file_size: Some(0), ..ProcessLimits::default() };
    let terms = LaunchOptions { limits, network: Network::None, ..LaunchOptions::default() };
    // An evaluator has no work folder, and starts no program that could signal others.
    confine::confine(&terms, Some(Path::new(""))).map(|confined| drop(confined.refuse_calls(&[])))
}

/// The gateway's own program, even if its file has been replaced.
#[must_use]
pub fn own_program() -> &'static Path {
    Path::new("/proc/self/exe")
}
