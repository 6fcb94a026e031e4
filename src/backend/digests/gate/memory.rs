//! Remembers rulings: *passed* for long, *failed* briefly, since somebody may run it again. *Pending* is asked each time,
//! unless the system's rate limit is nearly used up. Equal requests at the same time are sent once.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{Gate, GateQuery, Ruling, RulingState};
use crate::{
    bounded_cache::{self, Bounded},
    domain::{
        clock::{Clock, Timestamp},
        error::BackendError,
    },
    flight::{FlightGuard, Flights, wait::wait},
};

/// How long *passed* is remembered.
const PASSED_FOR: Duration = Duration::from_mins(10);
/// How long *failed* is remembered: a run may be repeated.
const FAILED_FOR: Duration = Duration::from_mins(1);
/// How many times longer rulings are remembered while the rate limit is nearly used up.
const STRETCH: u32 = 4;
/// How long *pending* is remembered, times [`STRETCH`], while the rate limit is nearly used up; otherwise not at all.
const PENDING_FOR: Duration = Duration::from_secs(15);
/// How many rulings are remembered; the least used leave first.
const MAX_RULINGS: u64 = 4096;

type Key = [u8; 32];

/// A hash of what identifies a request to a system. Each part goes in with its length, so that no two lists of parts have
/// the same hash.
#[derive(Debug, Default)]
pub struct RequestKey(Sha256);

impl RequestKey {
    /// Adds a part.
    pub(crate) fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update((part.len() as u64).to_be_bytes());
        self.0.update(part);
    }

    /// Adds a part that may be missing, which differs from an empty one.
    pub(crate) fn add_optional(&mut self, part: Option<impl AsRef<[u8]>>) {
        self.0.update([u8::from(part.is_some())]);
        if let Some(part) = part {
            self.add(part);
        }
    }

    fn finish(self) -> Key {
        self.0.finalize().into()
    }
}

/// A CI system. A query is first turned into a request, so that equal requests are sent once, whichever parameters they
/// come from.
#[async_trait]
pub trait System: fmt::Debug + Send + Sync + 'static {
    /// What is asked, with all parameters filled in.
    type Request: Send + Sync + 'static;

    /// The request that `query` makes.
    ///
    /// # Errors
    /// When the parameters do not make a request.
    async fn request(&self, query: GateQuery<'_>) -> Result<Self::Request, BackendError>;

    /// Adds to `key` what identifies `request` to this system: all that its ruling depends on, but for secrets.
    fn write_key(request: &Self::Request, key: &mut RequestKey);

    /// Asks CI for its ruling by `deadline`, without changing anything.
    ///
    /// # Errors
    /// When there is no clear answer.
    async fn rule(&self, request: &Self::Request, deadline: Instant) -> Result<Ruling, BackendError>;

    /// Whether the rate limit that applies to `request` is nearly used up.
    fn is_low(&self, request: &Self::Request) -> bool;

    /// Whether the request depends on the ApplicationSet's name.
    fn reads_application_set(&self) -> bool;
}

/// A system whose rulings are remembered by request.
#[derive(Debug)]
pub struct Remembered<S> {
    /// The system itself.
    pub(crate) system: Arc<S>,
    rulings: RememberedRulings,
    flights: Flights<Key, Key, Result<Ruling, BackendError>>,
}

/// The remembered rulings, with the time of each.
#[derive(Clone)]
struct RememberedRulings {
    by_key: Bounded<Key, (Ruling, Timestamp)>,
    clock: Arc<dyn Clock>,
}

impl<S: System> Remembered<S> {
    /// `system`, with an empty memory.
    #[must_use]
    pub fn new(system: S, clock: &Arc<dyn Clock>) -> Self {
        let remembered = RememberedRulings { by_key: bounded_cache::new(MAX_RULINGS), clock: Arc::clone(clock) };
        Self { system: Arc::new(system), rulings: remembered, flights: Flights::default() }
    }

    /// The ruling on `request`: a remembered one if `query` allows, otherwise from the system. Callers with an equal request
    /// wait for the same run.
    ///
    /// # Errors
    /// When the system gives no clear answer in time. Errors are not remembered.
    pub(crate) async fn ruling(&self, request: S::Request, query: GateQuery<'_>) -> Result<Ruling, BackendError> {
        let mut key = RequestKey::default();
        S::write_key(&request, &mut key);
        let key = key.finish();
        if !query.may_reuse {
            // A request that began earlier may have missed the change that this query is about.
            self.flights.supersede(|flying| *flying == key, || ());
        } else if let Some(ruling) = self.rulings.recall(&key, || self.system.is_low(&request)) {
            return Ok(ruling);
        }
        let (request, deadline) = (Arc::new(request), query.deadline);
        let join = || {
            let (system, remembered, request) = (Arc::clone(&self.system), self.rulings.clone(), Arc::clone(&request));
            let work = move |guard: FlightGuard<_, _, _>| async move {
                let ruling = system.rule(&request, deadline).await;
                guard.land(|is_current| {
                    if let (Ok(ruling), true) = (&ruling, is_current) {
                        remembered.remember(key, ruling);
                    }
                });
                ruling
            };
            let known = || query.may_reuse.then(|| self.rulings.recall(&key, || false)).flatten();
            self.flights.join(key, || known().map(Ok), || key, work)
        };
        wait(join, deadline).await
    }
}

impl RememberedRulings {
    fn recall(&self, key: &Key, is_low: impl FnOnce() -> bool) -> Option<Ruling> {
        let (ruling, since) = self.by_key.get(key)?;
        let age = self.clock.now().since(since)?;
        let (life, stretched) = lives(ruling.state);
        (age < life || age < stretched && is_low()).then_some(ruling)
    }

    fn remember(&self, key: Key, ruling: &Ruling) {
        self.by_key.insert(key, (ruling.clone(), self.clock.now()));
    }
}

/// How long a ruling is remembered, and how long while the rate limit is nearly used up.
const fn lives(state: RulingState) -> (Duration, Duration) {
    let (life, base) = match state {
        RulingState::Passed => (PASSED_FOR, PASSED_FOR),
        RulingState::Failed => (FAILED_FOR, FAILED_FOR),
        RulingState::Pending => (Duration::ZERO, PENDING_FOR),
    };
    (life, base.saturating_mul(STRETCH))
}

#[async_trait]
impl<S: System> Gate for Remembered<S> {
    async fn ask(&self, query: GateQuery<'_>) -> Result<Ruling, BackendError> {
        self.ruling(self.system.request(query).await?, query).await
    }

    fn reads_application_set(&self) -> bool {
        self.system.reads_application_set()
    }

    /// Forgets all rulings, also those of requests in flight.
    fn forget(&self) {
        self.flights.supersede(|_| true, || self.rulings.by_key.invalidate_all());
    }
}

impl fmt::Debug for RememberedRulings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberedRulings").field("rulings", &self.by_key.entry_count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    };

    use tokio::time::{sleep, timeout_at};

    use super::*;
    use crate::lang::evaluator::Context;

    #[derive(Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::SeqCst))
        }
    }

    #[test]
    fn a_key_tells_parts_apart() {
        let key = |parts: &[Option<&str>]| {
            let mut key = RequestKey::default();
            for part in parts {
                key.add_optional(*part);
            }
            key.finish()
        };
        let keys = [
            key(&[]),
            key(&[None]),
            key(&[Some("")]),
            key(&[Some("ab")]),
            key(&[Some("a"), Some("b")]),
            key(&[Some("a"), None, Some("b")]),
            key(&[Some("b"), Some("a")]),
        ];
        let distinct: std::collections::HashSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(key(&[Some("ab")]), keys[3]);
    }

    /// Answers a given state after a given time, and counts its requests.
    #[derive(Debug)]
    struct Oracle {
        says: Mutex<Option<RulingState>>,
        takes: Duration,
        is_low: AtomicBool,
        asked: AtomicU64,
    }

    #[async_trait]
    impl System for Oracle {
        type Request = ();

        async fn request(&self, _: GateQuery<'_>) -> Result<(), BackendError> {
            Ok(())
        }

        fn write_key((): &(), _: &mut RequestKey) {}

        async fn rule(&self, (): &(), deadline: Instant) -> Result<Ruling, BackendError> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let says = *self.says.lock().unwrap();
            timeout_at(deadline, sleep(self.takes)).await.map_err(|_| BackendError::timeout("too slow"))?;
            let state = says.ok_or_else(|| BackendError::unavailable("x"))?;
            Ok(Ruling { state, commit: None, is_earlier: false, evidence: Vec::new(), run_url: None, built_at: None })
        }

        fn is_low(&self, (): &()) -> bool {
            self.is_low.load(Ordering::SeqCst)
        }

        fn reads_application_set(&self) -> bool {
            false
        }
    }

    #[derive(Clone)]
    struct Desk {
        hands: Arc<Hands>,
        gate: Arc<Remembered<Oracle>>,
    }

    impl Desk {
        fn new(takes: Duration) -> Self {
            let hands = Arc::new(Hands::default());
            let clock: Arc<dyn Clock> = hands.clone();
            let (says, is_low, asked) = Default::default();
            let oracle = Oracle { says, takes, is_low, asked };
            Self { hands, gate: Arc::new(Remembered::new(oracle, &clock)) }
        }

        fn says(&self, says: Option<RulingState>) {
            *self.gate.system.says.lock().unwrap() = says;
        }

        fn asked(&self) -> u64 {
            self.gate.system.asked.load(Ordering::SeqCst)
        }

        async fn ask(&self, may_reuse: bool, patience: Duration) -> Result<RulingState, BackendError> {
            let (context, parameters) = (Context::here(minijinja::Value::UNDEFINED), Arc::default());
            let deadline = Instant::now() + patience;
            let asked = GateQuery { context: &context, parameters: &parameters, deadline, may_reuse };
            self.gate.ask(asked).await.map(|ruling| ruling.state)
        }

        /// The same in a task of its own.
        fn asks(&self, patience: Duration) -> tokio::task::JoinHandle<Result<RulingState, BackendError>> {
            let desk = self.clone();
            tokio::spawn(async move { desk.ask(true, patience).await })
        }
    }

    const PATIENT: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn each_ruling_holds_for_its_time() {
        for (state, is_low, lasts) in [
            (RulingState::Passed, false, 600),
            (RulingState::Failed, false, 60),
            (RulingState::Pending, false, 0),
            (RulingState::Passed, true, 2400),
            (RulingState::Failed, true, 240),
            (RulingState::Pending, true, 60),
        ] {
            let desk = Desk::new(Duration::ZERO);
            desk.gate.system.is_low.store(is_low, Ordering::SeqCst);
            desk.says(Some(state));
            assert_eq!(desk.ask(true, PATIENT).await.unwrap(), state);
            // Asked anew, it would be remembered anew: an error is not.
            desk.says(None);
            let mut second = 0;
            while desk.ask(true, PATIENT).await.is_ok() {
                desk.hands.0.fetch_add(1000, Ordering::SeqCst);
                second += 1;
            }
            assert_eq!((second, desk.asked()), (lasts, 2), "{state:?} {is_low}");
        }
    }

    #[tokio::test]
    async fn who_may_not_reuse_asks_and_corrects_what_is_remembered() {
        let desk = Desk::new(Duration::ZERO);
        for (may_reuse, says, hears) in [
            (true, RulingState::Passed, RulingState::Passed),
            (false, RulingState::Failed, RulingState::Failed),
            (true, RulingState::Passed, RulingState::Failed),
            (false, RulingState::Pending, RulingState::Pending),
            (true, RulingState::Passed, RulingState::Passed),
        ] {
            desk.says(Some(says));
            assert_eq!(desk.ask(may_reuse, PATIENT).await.unwrap(), hears);
        }
        assert_eq!(desk.asked(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn equal_questions_share_one_even_when_the_first_one_leaves() {
        let desk = Desk::new(Duration::from_secs(1));
        desk.says(Some(RulingState::Pending));
        let callers: Vec<_> = (0..100).map(|_| desk.asks(PATIENT)).collect();
        sleep(Duration::from_millis(500)).await;
        callers[0].abort();
        for caller in callers.into_iter().skip(1) {
            assert_eq!(caller.await.unwrap().unwrap(), RulingState::Pending);
        }
        assert_eq!(desk.asked(), 1);
        assert!(desk.gate.flights.len() == 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_more_time_waits_longer() {
        let desk = Desk::new(Duration::from_secs(1));
        desk.says(Some(RulingState::Passed));
        let hasty = desk.asks(Duration::from_millis(100));
        tokio::task::yield_now().await;
        let patient = desk.asks(PATIENT);
        assert_eq!(hasty.await.unwrap().unwrap_err().message, "too slow");
        assert_eq!((patient.await.unwrap().unwrap(), desk.asked()), (RulingState::Passed, 2));

        // And who has less, not so long.
        desk.gate.forget();
        let patient = desk.asks(PATIENT);
        tokio::task::yield_now().await;
        let began = Instant::now();
        let error = desk.ask(true, Duration::from_millis(100)).await.unwrap_err();
        assert!(error.message.contains("in time") && began.elapsed() < Duration::from_millis(200), "{error}");
        assert_eq!((patient.await.unwrap().unwrap(), desk.asked()), (RulingState::Passed, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn what_began_before_all_was_forgotten_is_not_remembered() {
        let desk = Desk::new(Duration::from_secs(1));
        desk.says(Some(RulingState::Failed));
        let slow = desk.asks(PATIENT);
        sleep(Duration::from_millis(500)).await;
        desk.gate.forget();
        desk.says(Some(RulingState::Passed));
        assert_eq!(slow.await.unwrap().unwrap(), RulingState::Failed);
        assert_eq!(desk.ask(true, PATIENT).await.unwrap(), RulingState::Passed);
    }

    #[tokio::test(start_paused = true)]
    async fn what_began_before_somebody_asked_anew_is_not_remembered() {
        let desk = Desk::new(Duration::from_secs(1));
        desk.says(Some(RulingState::Failed));
        let slow = desk.asks(PATIENT);
        sleep(Duration::from_millis(500)).await;
        desk.says(Some(RulingState::Passed));
        assert_eq!(desk.ask(false, PATIENT).await.unwrap(), RulingState::Passed);
        assert_eq!(slow.await.unwrap().unwrap(), RulingState::Failed);
        assert_eq!((desk.ask(true, PATIENT).await.unwrap(), desk.asked()), (RulingState::Passed, 2));
    }
}
