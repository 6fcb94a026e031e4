use std::sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tokio::time::{sleep, timeout_at};

use super::*;
use lang::evaluator::Context;

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

/// Answers a certain state after a certain time, and counts its requests.
#[derive(Debug)]
struct Oracle {
    says: Mutex<Option<CiState>>,
    takes: Duration,
    is_low: AtomicBool,
    calls: AtomicU64,
}

#[async_trait]
impl System for Oracle {
    type Request = ();

    async fn request(&self, _: GateQuery<'_>) -> Result<(), BackendError> {
        Ok(())
    }

    fn write_key((): &(), _: &mut RequestKey) {}

    async fn check(&self, (): &(), deadline: Instant) -> Result<CiVerdict, BackendError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let says = *self.says.lock().unwrap();
        timeout_at(deadline, sleep(self.takes)).await.map_err(|_| BackendError::timeout("too slow"))?;
        let state = says.ok_or_else(|| BackendError::unavailable("x"))?;
        Ok(CiVerdict { state, commit: None, is_earlier: false, evidence: Vec::new(), run_url: None, built_at: None })
    }

    fn is_low(&self, (): &()) -> bool {
        self.is_low.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct GateContext {
    hands: Arc<Hands>,
    gate: Arc<Remembered<Oracle>>,
}

impl GateContext {
    fn new(takes: Duration) -> Self {
        let hands = Arc::new(Hands::default());
        let clock: Arc<dyn Clock> = hands.clone();
        let (says, is_low, calls) = Default::default();
        let oracle = Oracle { says, takes, is_low, calls };
        Self { hands, gate: Arc::new(Remembered::new(oracle, &clock)) }
    }

    fn says(&self, says: Option<CiState>) {
        *self.gate.system.says.lock().unwrap() = says;
    }

    fn calls(&self) -> u64 {
        self.gate.system.calls.load(Ordering::SeqCst)
    }

    async fn ask(&self, may_reuse: bool, patience: Duration) -> Result<CiState, BackendError> {
        let (context, parameters) = (Context::here(minijinja::Value::UNDEFINED), Arc::default());
        let deadline = Instant::now() + patience;
        let query = GateQuery { context: &context, parameters: &parameters, item: None, deadline, may_reuse };
        self.gate.check(query).await.map(|verdict| verdict.state)
    }

    /// The same in a task of its own.
    fn asks(&self, patience: Duration) -> tokio::task::JoinHandle<Result<CiState, BackendError>> {
        let context = self.clone();
        tokio::spawn(async move { context.ask(true, patience).await })
    }
}

const PATIENT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn each_verdict_holds_for_its_time() {
    for (state, is_low, lasts) in [
        (CiState::Passed, false, 600),
        (CiState::Failed, false, 60),
        (CiState::Pending, false, 0),
        (CiState::Passed, true, 2400),
        (CiState::Failed, true, 240),
        (CiState::Pending, true, 60),
    ] {
        let context = GateContext::new(Duration::ZERO);
        context.gate.system.is_low.store(is_low, Ordering::SeqCst);
        context.says(Some(state));
        assert_eq!(context.ask(true, PATIENT).await.unwrap(), state);
        // A second verdict would be remembered again: an error is not.
        context.says(None);
        let mut second = 0;
        while context.ask(true, PATIENT).await.is_ok() {
            context.hands.0.fetch_add(1000, Ordering::SeqCst);
            second += 1;
        }
        assert_eq!((second, context.calls()), (lasts, 2), "{state:?} {is_low}");
    }
}

#[tokio::test]
async fn who_may_not_reuse_asks_and_corrects_what_is_remembered() {
    let context = GateContext::new(Duration::ZERO);
    for (may_reuse, says, hears) in [
        (true, CiState::Passed, CiState::Passed),
        (false, CiState::Failed, CiState::Failed),
        (true, CiState::Passed, CiState::Failed),
        (false, CiState::Pending, CiState::Pending),
        (true, CiState::Passed, CiState::Passed),
    ] {
        context.says(Some(says));
        assert_eq!(context.ask(may_reuse, PATIENT).await.unwrap(), hears);
    }
    assert_eq!(context.calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn equal_questions_share_one_even_when_the_first_one_leaves() {
    let context = GateContext::new(Duration::from_secs(1));
    context.says(Some(CiState::Pending));
    let callers: Vec<_> = (0..100).map(|_| context.asks(PATIENT)).collect();
    sleep(Duration::from_millis(500)).await;
    callers[0].abort();
    for caller in callers.into_iter().skip(1) {
        assert_eq!(caller.await.unwrap().unwrap(), CiState::Pending);
    }
    assert_eq!(context.calls(), 1);
    assert!(context.gate.flights.len() == 0);
}

#[tokio::test(start_paused = true)]
async fn who_has_more_time_waits_longer() {
    let context = GateContext::new(Duration::from_secs(1));
    context.says(Some(CiState::Passed));
    let hasty = context.asks(Duration::from_millis(100));
    tokio::task::yield_now().await;
    let patient = context.asks(PATIENT);
    assert_eq!(hasty.await.unwrap().unwrap_err().message, "too slow");
    assert_eq!((patient.await.unwrap().unwrap(), context.calls()), (CiState::Passed, 2));

    // A caller with less time stops waiting earlier.
    context.gate.forget();
    let patient = context.asks(PATIENT);
    tokio::task::yield_now().await;
    let began = Instant::now();
    let error = context.ask(true, Duration::from_millis(100)).await.unwrap_err();
    assert!(error.message.contains("in time") && began.elapsed() < Duration::from_millis(200), "{error}");
    assert_eq!((patient.await.unwrap().unwrap(), context.calls()), (CiState::Passed, 3));
}

#[tokio::test(start_paused = true)]
async fn what_began_before_all_was_forgotten_is_not_remembered() {
    let context = GateContext::new(Duration::from_secs(1));
    context.says(Some(CiState::Failed));
    let slow = context.asks(PATIENT);
    sleep(Duration::from_millis(500)).await;
    context.gate.forget();
    context.says(Some(CiState::Passed));
    assert_eq!(slow.await.unwrap().unwrap(), CiState::Failed);
    assert_eq!(context.ask(true, PATIENT).await.unwrap(), CiState::Passed);
}

#[tokio::test(start_paused = true)]
async fn a_query_that_began_before_a_recheck_is_not_remembered() {
    let context = GateContext::new(Duration::from_secs(1));
    context.says(Some(CiState::Failed));
    let slow = context.asks(PATIENT);
    sleep(Duration::from_millis(500)).await;
    context.says(Some(CiState::Passed));
    assert_eq!(context.ask(false, PATIENT).await.unwrap(), CiState::Passed);
    assert_eq!(slow.await.unwrap().unwrap(), CiState::Failed);
    assert_eq!((context.ask(true, PATIENT).await.unwrap(), context.calls()), (CiState::Passed, 2));
}
