//! Logs a lasting problem once a minute.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often the same trouble is logged.
const EVERY: Duration = Duration::from_mins(1);

/// When a trouble was logged last.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Option<Instant>>);

impl Throttle {
    /// Whether it is to be logged now.
    pub(super) fn is_due(&self) -> bool {
        let mut logged_at = self.0.lock();
        let is_due = logged_at.is_none_or(|at| at.elapsed() >= EVERY);
        if is_due {
            *logged_at = Some(Instant::now());
        }
        is_due
    }
}
