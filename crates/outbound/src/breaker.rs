//! The circuit breaker of one destination. It opens after several failures in a row, or when an answer demands a pause. After
//! the backoff, one call probes whether the destination works again.

use std::{sync::Arc, time::Duration};

use parking_lot::{Mutex, MutexGuard};

use domain::{clock::Timestamp, error::BackendError};

/// The breaker opens after this number of failures in a row.
const FAILURES: u32 = 5;
/// The first backoff.
const SHORTEST: Duration = Duration::from_secs(1);
/// The longest backoff that the breaker chooses itself.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest pause that an answer may demand. It is short because one answer stops all calls to the destination.
const LONGEST_DEMANDED: Duration = Duration::from_mins(10);
/// When a call that comes while another one probes the destination may try again.
const PROBED: Duration = Duration::from_secs(1);

/// The breaker of one destination.
#[derive(Debug, Default)]
pub(crate) struct Breaker(Mutex<BreakerState>);

#[derive(Debug, Default)]
struct BreakerState {
    /// Increases when the breaker opens or closes. Results of calls from an earlier era are ignored.
    era: u64,
    failures: u32,
    first: Option<Timestamp>,
    why: String,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    since: Timestamp,
    lasts: Duration,
    /// The backoff that the breaker chooses itself. It doubles each time.
    backoff: Duration,
    is_probed: bool,
}

/// The result of a call, as evidence about the destination.
#[derive(Debug)]
pub(crate) enum End {
    /// The destination works.
    Well,
    /// The destination failed, with the reason.
    Failed(String),
    /// The destination failed, with the reason, and demands a pause of this length.
    RetryAfter(String, Duration),
    /// The destination may work or not. Counts as a failure only for a probe.
    Unclear(String),
}

/// Lets one call through. A pass that is dropped without an [`End`] changes nothing.
#[derive(Debug)]
pub(crate) struct BreakerPass {
    breaker: Arc<Breaker>,
    era: u64,
    is_probe: bool,
}

/// The state of a breaker, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerNow {
    /// Whether calls pass.
    pub position: BreakerPosition,
    /// Failures in a row.
    pub failures: u32,
    /// When the first of these failures came.
    pub failing_since: Option<Timestamp>,
    /// The last of these failures. Empty without a failure.
    pub why: String,
    /// How long no call passes.
    pub backoff: Duration,
}

/// Whether calls pass a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerPosition {
    /// Calls pass.
    Closed,
    /// No call passes.
    Open,
    /// One call at a time passes, and tries whether the destination works again.
    Probing,
}

impl Breaker {
    /// The state at `now`.
    pub(crate) fn now(&self, now: Timestamp) -> BreakerNow {
        let state = self.state();
        let backoff = state.open.as_ref().and_then(|open| open.left(now)).unwrap_or_default();
        let position = match &state.open {
            None => BreakerPosition::Closed,
            Some(_) if !backoff.is_zero() => BreakerPosition::Open,
            Some(_) => BreakerPosition::Probing,
        };
        BreakerNow { position, failures: state.failures, failing_since: state.first, why: state.why.clone(), backoff }
    }

    /// Checks whether a call may pass at `now`.
    ///
    /// # Errors
    /// When it may not. The error names the reason.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), BackendError> {
        self.state().check(now)
    }

    /// Lets a call through. While the breaker is open, only one call at a time passes, and only after the backoff.
    ///
    /// # Errors
    /// When the call may not pass. The error names the reason.
    pub(crate) fn enter(self: &Arc<Self>, now: Timestamp) -> Result<BreakerPass, BackendError> {
        let mut state = self.state();
        state.check(now)?;
        let is_probe = state.open.is_some();
        if let Some(open) = &mut state.open {
            open.is_probed = true;
        }
        Ok(BreakerPass { breaker: Arc::clone(self), era: state.era, is_probe })
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.0.lock()
    }
}

impl BreakerPass {
    /// Whether this call probes if the destination works again.
    pub(crate) const fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Notes the result of the call.
    pub(crate) fn end(mut self, end: End, now: Timestamp) {
        let mut state = self.breaker.state();
        // A call of an earlier era began before the breaker changed: its result is old news.
        if state.era == self.era {
            state.note(end, self.is_probe, now);
        }
        drop(state);
        self.is_probe = false;
    }
}

impl Drop for BreakerPass {
    fn drop(&mut self) {
        if self.is_probe {
            let mut state = self.breaker.state();
            if state.era == self.era
                && let Some(open) = &mut state.open
            {
                open.is_probed = false;
            }
        }
    }
}

impl Open {
    /// How long the backoff still lasts. If the clock was set back, the elapsed time is unknown, and the backoff counts as over.
    fn left(&self, now: Timestamp) -> Option<Duration> {
        self.lasts.checked_sub(now.since(self.since)?).filter(|left| !left.is_zero())
    }
}

impl BreakerState {
    fn check(&self, now: Timestamp) -> Result<(), BackendError> {
        let Some(open) = &self.open else { return Ok(()) };
        let left = open.left(now);
        if left.is_none() && !open.is_probed {
            return Ok(());
        }
        // The text has no counts or waits, so it stays the same. Argo CD writes a condition again if its text changes.
        let since = self.first.map(|first| format!(" since {}", first.to_date())).unwrap_or_default();
        let error = BackendError::unavailable(format!("no request sent: it failed{since} (last: {})", self.why));
        Err(error.retried_in(Some(left.unwrap_or(PROBED))))
    }

    fn note(&mut self, end: End, is_probe: bool, now: Timestamp) {
        let (why, demanded) = match end {
            End::Well => return *self = Self { era: self.era + u64::from(is_probe), ..Self::default() },
            End::Unclear(_) if !is_probe => return,
            End::Unclear(why) | End::Failed(why) => (why, Duration::ZERO),
            End::RetryAfter(why, pause) => (why, pause.min(LONGEST_DEMANDED)),
        };
        self.failures = self.failures.saturating_add(1);
        self.first.get_or_insert(now);
        self.why = why;
        // A failed probe finds the breaker open, and doubles the backoff; the first opening resets it.
        let backoff = match &self.open {
            Some(open) => (open.backoff * 2).min(LONGEST),
            None => SHORTEST,
        };
        if is_probe || self.failures >= FAILURES || !demanded.is_zero() {
            // One answer may demand a pause before the failures suffice. Then only its own pause counts, not the backoff.
            let enough = is_probe || self.failures >= FAILURES;
            let lasts = demanded.max(if enough { backoff } else { Duration::ZERO });
            self.open = Some(Open { since: now, lasts, backoff, is_probed: false });
            self.era += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(784_111_777_000);

    fn later(seconds: u64) -> Timestamp {
        Timestamp(NOW.0 + seconds * 1000)
    }

    fn fail(breaker: &Arc<Breaker>, times: u32, now: Timestamp) {
        for _ in 0..times {
            breaker.enter(now).unwrap().end(End::Failed("cannot connect".into()), now);
        }
    }

    fn opened() -> Arc<Breaker> {
        let breaker = Arc::default();
        fail(&breaker, FAILURES, NOW);
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let breaker = Arc::new(Breaker::default());
        fail(&breaker, 4, NOW);
        breaker.enter(NOW).unwrap().end(End::Well, NOW);
        fail(&breaker, 4, NOW);
        breaker.enter(NOW).unwrap().end(End::Unclear("it broke off".into()), NOW);
        assert!(breaker.check(NOW).is_ok());
        fail(&breaker, 1, NOW);
        let refused = breaker.enter(NOW).unwrap_err();
        assert_eq!(refused.message, "no request sent: it failed since 1994-11-06T08:49:37Z (last: cannot connect)");
        assert_eq!(refused.retry_in, Some(SHORTEST), "then it gets a request again");
    }

    #[test]
    fn one_call_finds_out() {
        let breaker = opened();
        let probe = breaker.enter(later(1)).unwrap();
        assert!(probe.is_probe());
        for _ in 0..100 {
            assert!(breaker.enter(later(1)).is_err());
        }
        probe.end(End::Well, later(1));
        assert!(!breaker.enter(later(1)).unwrap().is_probe());
        fail(&breaker, 4, later(1));
        assert!(breaker.check(later(1)).is_ok(), "the count restarts");
    }

    #[test]
    fn a_probe_that_fails_doubles_the_rest() {
        let breaker = opened();
        let mut now = 1;
        for backoff in [2, 4, 8, 16, 30, 30] {
            breaker.enter(later(now)).unwrap().end(End::Unclear("reset".into()), later(now));
            assert!(breaker.check(later(now + backoff - 1)).is_err(), "{backoff}");
            now += backoff;
            assert!(breaker.check(later(now)).is_ok(), "{backoff}");
        }
    }

    #[test]
    fn a_probe_that_leaves_gives_its_place_back() {
        let breaker = opened();
        drop(breaker.enter(later(1)).unwrap());
        assert!(breaker.enter(later(1)).unwrap().is_probe());
    }

    #[test]
    fn what_began_before_says_nothing() {
        let breaker = Arc::new(Breaker::default());
        let (early, late) = (breaker.enter(NOW).unwrap(), breaker.enter(NOW).unwrap());
        fail(&breaker, 5, NOW);
        early.end(End::Well, NOW);
        assert!(breaker.check(NOW).is_err());
        breaker.enter(later(1)).unwrap().end(End::Well, later(1));
        late.end(End::RetryAfter("503".into(), Duration::from_secs(9)), later(1));
        assert!(breaker.check(later(1)).is_ok());
    }

    #[test]
    fn it_rests_as_long_as_it_asks_for() {
        let breaker = Arc::new(Breaker::default());
        for (demanded, lasts) in [(120, 120), (100_000, 600)] {
            breaker.enter(NOW).unwrap().end(End::RetryAfter("503".into(), Duration::from_secs(demanded)), NOW);
            assert!(breaker.check(later(lasts - 1)).is_err());
            breaker.enter(later(lasts)).unwrap().end(End::Well, later(lasts));
        }
    }

    #[test]
    fn a_clock_that_jumps_ends_the_rest() {
        let breaker = opened();
        assert!(breaker.check(Timestamp(NOW.0 - 1)).is_ok());
        breaker.enter(Timestamp(0)).unwrap().end(End::Failed("x".into()), Timestamp(u64::MAX));
        assert!(breaker.check(Timestamp(u64::MAX)).is_err());
    }
}
