//! The six states of a cache, and how a gateway comes into each.

use std::time::Duration;

use serde_json::json;

use super::{
    board::{Board, Outcome},
    expected::Because,
    source::Mode,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Fresh,
    StaleWhileRevalidating,
    StaleIfError,
    Expired,
    Failing,
    Held,
}

impl State {
    pub(super) const ALL: [Self; 6] =
        [Self::Fresh, Self::StaleWhileRevalidating, Self::StaleIfError, Self::Expired, Self::Failing, Self::Held];

    /// In the words of the table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::StaleWhileRevalidating => "stale while revalidating",
            Self::StaleIfError => "stale if error",
            Self::Expired => "expired",
            Self::Failing => "failing",
            Self::Held => "held",
        }
    }

    /// How old the good answer is when the fault comes. A gate remembers for 10 minutes that a commit passed, so that any
    /// other age but none is above that.
    const fn age(self) -> Duration {
        match self {
            Self::Fresh => Duration::ZERO,
            Self::StaleWhileRevalidating => Duration::from_mins(11),
            Self::StaleIfError | Self::Failing | Self::Held => Duration::from_mins(20),
            Self::Expired => Duration::from_hours(48),
        }
    }

    /// Fetches a good answer, enters the state, starts the faults, asks and judges.
    pub(super) async fn lead(self, mut board: Board) -> Vec<Outcome> {
        let (same, other) = (json!({}), json!({"never": "asked before"}));
        board.begin().await;
        board.advance(self.age());
        if self == Self::Held {
            board = board.set_mode(Mode::Nothing).await;
            board.ask(&same, Because::Held).await;
        }
        board = board.set_mode(Mode::AtFault).await;
        if self == Self::Held {
            // A held answer pauses as well, and the gate caches its verdict.
            board.advance(Duration::from_mins(11));
        }
        board.ask(&same, if self == Self::Held { Because::AtFaultHeld } else { Because::AtFault }).await;
        match self {
            Self::Fresh | Self::StaleIfError | Self::Expired => {}
            Self::StaleWhileRevalidating => board.ask(&same, Because::Resting).await,
            Self::Failing => {
                board.ask(&other, Because::AtFaultStill).await;
                board.ask(&same, Because::Resting).await;
                board.ask(&other, Because::Resting).await;
            }
            // Two more runs must agree with the first. This is one. The fault is the other, if it proves absence.
            // A gateway that lost its answers holds nothing.
            Self::Held => {
                if !board.is_lost() {
                    board = board.set_mode(Mode::Nothing).await;
                    // No source may ask for a longer pause than an hour.
                    board.advance(Duration::from_mins(61));
                    board.ask(&same, Because::HeldStill).await;
                }
            }
        }
        board.end()
    }
}
