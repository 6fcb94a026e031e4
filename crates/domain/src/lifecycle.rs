//! The phase that the process is in. There is one [`Lifecycle`] per process; listeners, probes and background work watch it.

use tokio::sync::watch;

/// How far the process is on its way to its exit. Phases only move forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It serves, and is ready.
    Serving,
    /// It still serves, but `/readyz` fails and each answer closes its connection, so that callers move to another replica.
    Draining,
    /// It accepts no new connections and finishes the requests under way.
    Closing,
    /// The last request is finished, or its time is over. Now the admin listener closes too.
    Ended,
}

impl Phase {
    /// The name for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Closing => "closing",
            Self::Ended => "ended",
        }
    }
}

/// The phase of the process.
#[derive(Debug)]
pub struct Lifecycle {
    phase: watch::Sender<Phase>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { phase: watch::Sender::new(Phase::Serving) }
    }
}

impl Lifecycle {
    /// Moves on to `phase`; a phase that has passed does not come back.
    pub fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|current| {
            let is_later = phase > *current;
            if is_later {
                *current = phase;
            }
            is_later
        });
    }

    /// The phase now.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// A receiver of this phase and of all later ones.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Waits until the process is in `phase`, or in a later one.
    pub async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.watch().wait_for(|current| *current >= phase).await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn phases_only_move_forward() {
        let lifecycle = Lifecycle::default();
        assert!(lifecycle.reached(Phase::Serving).now_or_never().is_some());
        assert!(lifecycle.reached(Phase::Draining).now_or_never().is_none());
        lifecycle.enter(Phase::Closing);
        lifecycle.enter(Phase::Draining);
        assert_eq!(lifecycle.phase(), Phase::Closing);
        assert!(lifecycle.reached(Phase::Draining).now_or_never().is_some());
    }
}
