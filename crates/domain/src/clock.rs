//! Wall-clock time. The clock is handed in, so that tests set the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The last time that can be shown as a date.
const LAST_DATE: u64 = 253_402_300_799_000;

/// Milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// How long ago `earlier` was. `None` if it lies in the future, as after a clock jump.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_millis)
    }

    /// The time for a message, in UTC, to the second (RFC 3339).
    #[must_use]
    pub fn to_date(self) -> String {
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(self.0.min(LAST_DATE))).to_string()
    }

    /// The time after `time` has passed.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// A clock.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
    }
}
