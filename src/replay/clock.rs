//! The time in a test case: it stands still, unless the case has time pass.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use domain::clock::{Clock, Timestamp};

/// A clock that is moved by hand.
#[derive(Debug)]
pub(crate) struct CaseClock(AtomicU64);

impl CaseClock {
    /// A clock that shows `time`.
    pub(crate) const fn at(time: Timestamp) -> Self {
        Self(AtomicU64::new(time.0))
    }

    /// Lets `time` pass.
    pub(crate) fn advance(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for CaseClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
