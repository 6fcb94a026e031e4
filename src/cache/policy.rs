//! The state of a remembered answer, from its age alone: a pure function, with the clock handed in.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{clock::Timestamp, units::HumanDuration};

/// How long a route's answers live.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CacheConfig {
    /// For how long an answer is served without asking the backend again. `0s` asks each time;
    /// concurrent calls still share one run.
    pub ttl: HumanDuration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self { ttl: HumanDuration::from_secs(60) }
    }
}

/// The rules for a route's answers.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    ttl: Duration,
}

/// What an answer's age makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Served at once.
    Fresh {
        /// Since it was stored.
        age: Duration,
        /// Until it is fresh no more.
        left: Duration,
    },
    /// Of no use: the backend is asked.
    Expired,
}

impl From<CacheConfig> for Policy {
    fn from(config: CacheConfig) -> Self {
        Self { ttl: config.ttl.0 }
    }
}

impl Policy {
    /// The state at `now` of what was stored at `stored_at`. An age below zero, as after a clock
    /// jump, says nothing about freshness and counts as expired.
    #[must_use]
    pub fn state(&self, stored_at: Timestamp, now: Timestamp) -> State {
        match now.since(stored_at) {
            Some(age) if age < self.ttl => State::Fresh { age, left: self.ttl.saturating_sub(age) },
            _ => State::Expired,
        }
    }

    /// For how long an answer is fresh.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_by_age() {
        let policy = Policy::from(CacheConfig { ttl: HumanDuration::from_secs(60) });
        let at = |milliseconds: u64| policy.state(Timestamp(100_000), Timestamp(milliseconds));
        let fresh = |age, left| State::Fresh { age: Duration::from_millis(age), left: Duration::from_millis(left) };
        assert_eq!(at(100_000), fresh(0, 60_000));
        assert_eq!(at(159_999), fresh(59_999, 1));
        assert_eq!(at(160_000), State::Expired);
        assert_eq!(at(99_999), State::Expired, "the clock went back");
        assert_eq!(at(u64::MAX), State::Expired);
    }
}
