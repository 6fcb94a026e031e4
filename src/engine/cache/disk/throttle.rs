//! Trouble that goes on is logged once a minute.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How often the same trouble is logged.
const EVERY: Duration = Duration::from_mins(1);

/// When a trouble was logged last.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Whether it is to be logged now.
    pub(super) fn is_due(&self) -> bool {
        let mut logged_at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = logged_at.is_none_or(|at| at.elapsed() >= EVERY);
        if is_due {
            *logged_at = Some(Instant::now());
        }
        is_due
    }
}
