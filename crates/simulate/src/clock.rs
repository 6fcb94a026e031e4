//! The clocks of machines: each is off by some time, runs a little fast or slow, and can be put forward or back.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

use domain::clock::{Clock, Timestamp};

/// The time at the start of a run, in milliseconds since 1970.
const START: i64 = 1_700_000_000_000;

/// The clock of a machine.
#[derive(Debug)]
pub struct DriftingClock {
    start: Instant,
    /// How much it is off, in milliseconds.
    offset: AtomicI64,
    /// How much too fast it runs, in millionths.
    drift: i64,
}

impl DriftingClock {
    /// A clock that is off by `offset` at `start`, and runs too fast by so many millionths.
    pub const fn new(start: Instant, offset: i64, drift: i64) -> Self {
        Self { start, offset: AtomicI64::new(offset), drift }
    }

    /// Puts it forward or back.
    pub fn jump(&self, seconds: i64) {
        self.offset.fetch_add(seconds * 1000, Ordering::Relaxed);
    }
}

impl Clock for DriftingClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX / 4);
        let shown = START + passed + passed / 1_000_000 * self.drift + self.offset.load(Ordering::Relaxed);
        Timestamp(u64::try_from(shown).unwrap_or_default())
    }
}

/// `time` in milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
