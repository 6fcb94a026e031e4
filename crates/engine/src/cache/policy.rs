//! The state of a stored answer, computed from its age. It is a pure function: the caller passes the time.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::cache::Key;
use domain::{clock::Timestamp, generator::Lasting, units::HumanDuration};

/// How long a route's answers live.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CacheConfig {
    /// For how long, give or take a tenth, an answer is served without asking the backend again. `0s` asks
    /// each time; concurrent calls still share one run.
    pub ttl: HumanDuration,
    /// For how long after that it is still served at once, while one run in the background renews it.
    pub stale_while_revalidate: HumanDuration,
    /// For how long after that it is served when the backend, called first, fails.
    pub stale_if_error: HumanDuration,
    /// Whether answers are prefetched, when an ApplicationSet sends its questions one after the other again. With
    /// `ttl: 0s` none is.
    pub prefetch: bool,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            ttl: HumanDuration::from_secs(60),
            stale_while_revalidate: HumanDuration::from_secs(5 * 60),
            stale_if_error: HumanDuration::from_secs(24 * 60 * 60),
            prefetch: true,
        }
    }
}

/// The rules for a route's answers.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    ttl: Duration,
    while_revalidate: Duration,
    if_error: Duration,
    prefetch: bool,
}

/// For how long an answer is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// For this long. With zero, the backend is called before the answer is served again.
    For(Duration),
    /// For this long. After that, the backend is called before the answer is served again.
    Brief(Duration),
    /// Never: it was stored before a restart, and later changes are unknown.
    Restored,
}

/// The state of an answer at its age (RFC 5861 names the windows).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Served at once.
    Fresh {
        /// The time since it was stored.
        age: Duration,
        /// The time until it is no longer fresh.
        left: Duration,
    },
    /// Served at once, and renewed in the background.
    StaleWhileRevalidate(Stale),
    /// The backend is called first. The answer is served if that fails.
    StaleIfError(Stale),
    /// Not served. The backend is called, and if that fails, so does the call.
    Expired,
}

impl Freshness {
    /// The age of an answer that is served because nothing better is known. `None` if it is too old for that.
    pub const fn stale(&self) -> Option<Stale> {
        match *self {
            Self::Fresh { age, .. } => Some(Stale { age, over: Duration::ZERO }),
            Self::StaleWhileRevalidate(stale) | Self::StaleIfError(stale) => Some(stale),
            Self::Expired => None,
        }
    }
}

/// The age of an answer that is no longer fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// The time since it was stored.
    pub age: Duration,
    /// The time since it was fresh.
    pub over: Duration,
}

impl Freshness {
    /// The name for operators.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh { .. } => "fresh",
            Self::StaleWhileRevalidate(_) => "stale_while_revalidate",
            Self::StaleIfError(_) => "stale_if_error",
            Self::Expired => "expired",
        }
    }
}

impl Policy {
    /// The rules that `config` describes.
    #[must_use]
    pub fn new(config: CacheConfig) -> Self {
        // With `ttl: 0s`, each call wants to ask the backend, so an answer of five minutes ago must not be served at once.
        let while_revalidate = if config.ttl.0.is_zero() { Duration::ZERO } else { config.stale_while_revalidate.0 };
        Self { ttl: config.ttl.0, while_revalidate, if_error: config.stale_if_error.0, prefetch: config.prefetch }
    }

    /// For how long the answer to `key` that is stored at `now` is fresh: the `ttl`, plus or minus a tenth, so
    /// that answers that came together do not expire together. If the source names a time, that time, less up to a tenth.
    #[must_use]
    pub fn life(&self, key: &Key, own: Option<Lasting>, now: Timestamp) -> Life {
        let spread = key.spread(now);
        let usual = || self.ttl.mul_f64(0.9 + 0.2 * spread);
        match own {
            Some(Lasting::For(own)) => Life::For(own.mul_f64(0.9 + 0.1 * spread)),
            Some(Lasting::AtMost(max)) => Life::Brief(usual().min(max.mul_f64(0.9 + 0.1 * spread))),
            None => Life::For(usual()),
        }
    }

    /// Whether answers are prefetched. One that is never fresh would be renewed again for its caller.
    #[must_use]
    pub(crate) const fn prefetches(&self) -> bool {
        self.prefetch && !self.ttl.is_zero()
    }

    /// The state at `now` of an answer that was stored at `stored_at` and is fresh for `life`. After a clock jump the age may be
    /// negative. Such an answer is renewed, and served meanwhile.
    #[must_use]
    pub fn state(&self, stored_at: Timestamp, life: Life, now: Timestamp) -> Freshness {
        let age = now.since(stored_at);
        let over = match (age, life) {
            (None, _) => Duration::ZERO,
            (Some(age), Life::Restored) => age,
            (Some(age), Life::For(life) | Life::Brief(life)) => match age.checked_sub(life) {
                Some(over) => over,
                None => return Freshness::Fresh { age, left: life.saturating_sub(age) },
            },
        };
        let stale = Stale { age: age.unwrap_or_default(), over };
        let must_renew = matches!(life, Life::Brief(_)) || life == Life::For(Duration::ZERO);
        let while_revalidate = if must_renew { Duration::ZERO } else { self.while_revalidate };
        // Only the age decides whether an answer may be served. An answer that is never fresh may be served as long as others.
        let was_fresh = if matches!(life, Life::For(life) | Life::Brief(life) if !life.is_zero()) {
            Duration::ZERO
        } else {
            self.ttl
        };
        let limit = was_fresh.saturating_add(self.while_revalidate).saturating_add(self.if_error);
        if over < while_revalidate {
            Freshness::StaleWhileRevalidate(stale)
        } else if over < limit || age.is_none() {
            Freshness::StaleIfError(stale)
        } else {
            Freshness::Expired
        }
    }

    /// About how long an answer is fresh.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(ttl: u64, while_revalidate: u64, if_error: u64) -> Policy {
        let config = CacheConfig {
            ttl: HumanDuration::from_secs(ttl),
            stale_while_revalidate: HumanDuration::from_secs(while_revalidate),
            stale_if_error: HumanDuration::from_secs(if_error),
            prefetch: true,
        };
        Policy::new(config)
    }

    #[test]
    fn states_by_age() {
        let policy = policy(60, 300, 3600);
        let life = Life::For(Duration::from_mins(1));
        let at = |milliseconds: u64| policy.state(Timestamp(100_000), life, Timestamp(milliseconds));
        let fresh = |age, left| Freshness::Fresh { age: Duration::from_millis(age), left: Duration::from_millis(left) };
        let stale = |age, over| Stale { age: Duration::from_millis(age), over: Duration::from_millis(over) };
        assert_eq!(at(100_000), fresh(0, 60_000));
        assert_eq!(at(159_999), fresh(59_999, 1));
        assert_eq!(at(160_000), Freshness::StaleWhileRevalidate(stale(60_000, 0)));
        assert_eq!(at(459_999), Freshness::StaleWhileRevalidate(stale(359_999, 299_999)));
        assert_eq!(at(460_000), Freshness::StaleIfError(stale(360_000, 300_000)));
        assert_eq!(at(4_059_999), Freshness::StaleIfError(stale(3_959_999, 3_899_999)));
        assert_eq!(at(4_060_000), Freshness::Expired);
        assert_eq!(at(u64::MAX), Freshness::Expired);
        assert_eq!(at(99_999), Freshness::StaleWhileRevalidate(stale(0, 0)), "the clock went back");
    }

    #[test]
    fn a_ttl_of_zero_asks_each_time() {
        let policy = policy(0, 300, 3600);
        let stale = Stale { age: Duration::ZERO, over: Duration::ZERO };
        assert_eq!(policy.state(Timestamp(5), Life::For(Duration::ZERO), Timestamp(5)), Freshness::StaleIfError(stale));
        assert_eq!(policy.state(Timestamp(6), Life::For(Duration::ZERO), Timestamp(5)), Freshness::StaleIfError(stale));
    }

    #[test]
    fn what_was_never_fresh_waits_for_the_backend_and_what_was_kept_is_renewed() {
        let policy = policy(60, 300, 3600);
        let at = |life, milliseconds: u64| policy.state(Timestamp(0), life, Timestamp(milliseconds));
        assert!(matches!(at(Life::For(Duration::ZERO), 0), Freshness::StaleIfError(_)));
        assert!(matches!(at(Life::For(Duration::ZERO), 3_959_999), Freshness::StaleIfError(_)));
        assert_eq!(at(Life::For(Duration::ZERO), 3_960_000), Freshness::Expired);
        assert!(matches!(at(Life::Brief(Duration::from_secs(15)), 14_999), Freshness::Fresh { .. }));
        assert!(matches!(at(Life::Brief(Duration::from_secs(15)), 15_000), Freshness::StaleIfError(_)));
        assert!(matches!(at(Life::Restored, 0), Freshness::StaleWhileRevalidate(_)));
        assert!(matches!(at(Life::Restored, 300_000), Freshness::StaleIfError(_)));
        assert!(matches!(at(Life::Restored, 3_959_999), Freshness::StaleIfError(_)));
        assert_eq!(at(Life::Restored, 3_960_000), Freshness::Expired);
    }

    #[test]
    fn lives_differ_by_a_tenth() {
        let policy = policy(100, 0, 0);
        let lives = |own: Option<Lasting>| -> Vec<f64> {
            let life = |n| match policy.life(&Key::of_bytes([7; 32]), own, Timestamp(n)) {
                Life::For(life) | Life::Brief(life) => life.as_secs_f64(),
                Life::Restored => panic!("it is new"),
            };
            (0..1000).map(life).collect()
        };
        let usual = lives(None);
        assert!(usual.iter().all(|life| (90.0..=110.0).contains(life)));
        assert!(usual.iter().any(|life| *life < 92.0) && usual.iter().any(|life| *life > 108.0));
        let own = lives(Some(Lasting::For(Duration::from_secs(1000))));
        assert!(own.iter().all(|life| (900.0..=1000.0).contains(life)));
        assert!(own.iter().any(|life| *life < 910.0) && own.iter().any(|life| *life > 990.0));
        let capped = lives(Some(Lasting::AtMost(Duration::from_secs(10))));
        assert!(capped.iter().all(|life| (9.0..=10.0).contains(life)));
        let longer = lives(Some(Lasting::AtMost(Duration::from_secs(1000))));
        assert!(longer.iter().all(|life| (90.0..=110.0).contains(life)));
    }
}
