//! The one way to start programs: each runs contained, is given what it needs and no more, and leaves nothing behind.
//!
//! Programs are started by *launchers*: small processes, the gateway's own program run again, that give up what programs
//! must not have and then start them one after the other. The gateway itself could do so only by `fork`, which copies its
//! page tables: tens of milliseconds for some gigabytes. A launcher is the reaper of all that its program starts, so that
//! whatever leaves its parents is found and ended too; and it ends when the gateway does, even by `kill -9`.

mod confine;
mod copy;
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
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, timeout_at},
};

pub(crate) use self::{
    idle::Idle,
    inside::run,
    permits::RunPermit,
    pool::{LauncherPool, Running},
    running::KillOnDrop,
    terms::{Identities, LaunchOptions, Limits, Network, SYSTEM, User},
    usage::{Meter, Usage},
    wire::{Copied, Ended, Environment, First, How, Program},
};
use self::{root::Root, slot::Launcher};
use crate::{domain::count::Count, telemetry::metrics::ProgramMetrics};

/// The argument with which the gateway's program lives as a launcher.
pub(crate) const ARGUMENT: &str = "launch";

/// Between the polite and the final signal.
const GRACE: Duration = Duration::from_secs(2);
/// How long a launcher may take to end a program beyond the grace.
const ENDING: Duration = Duration::from_secs(5);

/// All launchers of a gateway.
#[derive(Debug)]
pub struct Launchers {
    /// The gateway's own program.
    program: PathBuf,
    permits: Arc<Semaphore>,
    most: usize,
    metrics: Option<ProgramMetrics>,
    /// Where the launchers' folders are, once there is one.
    root: Mutex<Option<Root>>,
    /// What the programs of all bays must not have, together.
    wanted: Mutex<Option<Network>>,
    running: watch::Sender<usize>,
    is_closed: watch::Sender<bool>,
}

/// What a launcher is told first.
#[derive(Debug, Serialize, Deserialize)]
struct Opening {
    terms: LaunchOptions,
    folder: PathBuf,
}

impl Launchers {
    /// None yet. `program` is the gateway's own; at most `most` programs run at once.
    #[must_use]
    pub fn new(program: PathBuf, most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(most));
        Self {
            program,
            permits,
            most,
            metrics: None,
            root: Mutex::default(),
            wanted: Mutex::default(),
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

    /// What the kernel cannot take from programs, though a bay wants it; nothing where there are no bays.
    ///
    /// # Errors
    /// When no program could be started.
    pub(crate) async fn lacks(&self) -> Result<Vec<String>, String> {
        let wanted = *self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(network) = wanted else { return Ok(Vec::new()) };
        let (slot, lacks) = Launcher::open(self, &LaunchOptions { network, ..LaunchOptions::default() }).await?;
        slot.destroy().await;
        Ok(lacks)
    }

    /// Ends all programs, first politely, then by force; starts no other; and leaves no folder behind.
    pub(crate) async fn close(&self) {
        self.is_closed.send_replace(true);
        let mut running = self.running.subscribe();
        if timeout_at(Instant::now() + GRACE + ENDING, running.wait_for(|running| *running == 0)).await.is_err() {
            tracing::warn!(running = *self.running.borrow(), "some programs have not ended, and are killed");
        }
        drop(self.root.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Notes what a bay wants.
    fn want(&self, network: Network) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if *wanted != Some(Network::None) {
            *wanted = Some(network);
        }
    }

    /// A folder of its own for a launcher, for `user`.
    fn folder(&self, user: Option<User>) -> std::io::Result<PathBuf> {
        let mut root = self.root.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = &*root {
            match root.folder(user) {
                // Somebody cleaned up.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                result => return result,
            }
        }
        root.insert(Root::new()?).folder(user)
    }
}

/// The programs that run.
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

/// Contains this process as a program of a launcher is, for an evaluator: no file but the system's, no network, and no more memory
/// than `memory` bytes. What the kernel cannot take away is left.
///
/// # Errors
/// When a limit cannot be set.
pub(crate) fn contain_evaluator(memory: u64) -> Result<(), String> {
    let limits = Limits { memory: Some(memory), file_size: Some(0), ..Limits::default() };
    let terms = LaunchOptions { limits, network: Network::None, ..LaunchOptions::default() };
    // It has no folder of its own.
    confine::confine(&terms, Path::new("")).map(drop)
}

/// The file of the gateway's own program, even when its file has been replaced since.
#[must_use]
pub fn own_program() -> &'static Path {
    Path::new("/proc/self/exe")
}
