//! A credential that is kept until shortly before its end. One flight gets it for all who wait, ahead of need. A failure is remembered for a
//! while, so that not every call sends a request to a cloud that refuses.

use std::{fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use domain::{
    clock::{Clock, Timestamp},
    error::{BackendError, ErrorKind},
};
use flight::{FlightGuard, FlightJoin, Flights};

/// How long all requests for one credential may take. Callers wait no longer than until their own deadline.
const TIMEOUT: Duration = Duration::from_secs(15);
/// For how long the first failure is remembered. Each further one doubles the time.
const FIRST_REST: Duration = Duration::from_secs(2);
/// The longest such time.
const LONGEST_REST: Duration = Duration::from_mins(1);
/// A credential that is younger is not renewed because a server refuses it: the server refuses the identity.
const YOUNG: Duration = Duration::from_mins(1);
/// How long before its end a credential is not used any more. A request may take this long.
const MARGIN: Duration = Duration::from_secs(30);

/// A credential that was just issued.
#[derive(Debug)]
pub(crate) struct Issued<T> {
    /// The credential.
    pub value: T,
    /// How long it lasts from now on.
    pub lasts: Duration,
}

/// Keeps one credential.
pub(crate) struct Kept<T> {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State<T>>>,
    flights: Flights<(), (), Result<Arc<T>, BackendError>>,
}

struct State<T> {
    current: Option<Current<T>>,
    failure: Option<Failure>,
}

struct Current<T> {
    value: Arc<T>,
    since: Timestamp,
    /// From then on, a flight renews it while it is still used.
    renew_at: Timestamp,
    /// From then on, it is not used.
    ends: Timestamp,
}

struct Failure {
    error: BackendError,
    until: Timestamp,
    rest: Duration,
    /// The time from the failure to `until`. If more is left, the clock was put back.
    lasts: Duration,
}

/// What is known at a time.
enum Known<T> {
    Good(Arc<T>),
    /// Good, and to be renewed.
    Aging(Arc<T>),
    Failed(BackendError),
    Nothing,
}

impl<T: Send + Sync + 'static> Kept<T> {
    /// Nothing is kept yet.
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Self {
        let state = Arc::new(Mutex::new(State { current: None, failure: None }));
        Self { clock: Arc::clone(clock), state, flights: Flights::default() }
    }

    /// The credential. Without one, `issue` gets it, which has until the time that it is handed. With `afresh`, a server refused the current
    /// one, so another is issued, unless the current one is young.
    ///
    /// # Errors
    /// Those of `issue`, also for a while after it failed; or a timeout at `deadline`.
    pub(crate) async fn get<W>(
        &self,
        afresh: bool,
        deadline: Instant,
        issue: impl Fn(Instant) -> W,
    ) -> Result<Arc<T>, BackendError>
    where
        W: Future<Output = Result<Issued<T>, BackendError>> + Send + 'static,
    {
        let asked_at = self.clock.now();
        let recheck = || match self.state.lock().known(asked_at, afresh) {
            Known::Good(value) => Some(Ok(value)),
            Known::Failed(error) => Some(Err(error)),
            Known::Aging(_) | Known::Nothing => None,
        };
        let known = self.state.lock().known(asked_at, afresh);
        let result = match known {
            Known::Good(value) => return Ok(value),
            Known::Failed(error) => return Err(error),
            Known::Aging(value) => {
                // The flight runs in a task of its own, so nobody waits for it.
                drop(self.start(recheck, issue));
                return Ok(value);
            }
            Known::Nothing => match self.start(recheck, issue) {
                FlightJoin::Finished(value) => return value,
                FlightJoin::Started(result) | FlightJoin::Joined(result) => result,
            },
        };
        match timeout_at(deadline, result).await {
            Ok(Some(value)) => value,
            Ok(None) => Err(BackendError::unavailable("the request for the identity's credential failed")),
            Err(_) => Err(BackendError::timeout("the identity's credential did not arrive in time")),
        }
    }

    /// The credential that is kept now.
    pub(crate) fn current(&self) -> Option<Arc<T>> {
        self.state.lock().current.as_ref().map(|current| Arc::clone(&current.value))
    }

    /// Whether a credential is kept that [`Kept::get`] would return without waiting.
    #[cfg(any(feature = "aws", feature = "azure"))]
    pub(crate) fn is_good(&self, afresh: bool) -> bool {
        matches!(self.state.lock().known(self.clock.now(), afresh), Known::Good(_) | Known::Aging(_))
    }

    fn start<W>(
        &self,
        recheck: impl FnOnce() -> Option<Result<Arc<T>, BackendError>>,
        issue: impl Fn(Instant) -> W,
    ) -> FlightJoin<Result<Arc<T>, BackendError>>
    where
        W: Future<Output = Result<Issued<T>, BackendError>> + Send + 'static,
    {
        let (state, clock) = (Arc::clone(&self.state), Arc::clone(&self.clock));
        let until = Instant::now() + TIMEOUT;
        let work = move |seat: FlightGuard<_, _, _>| {
            let issued = issue(until);
            async move {
                let late = |_| BackendError::timeout("the identity's credential did not arrive in time");
                let issued = timeout_at(until, issued).await.map_err(late).and_then(|issued| issued);
                seat.finish(|_| state.lock().record(issued, clock.now()))
            }
        };
        self.flights.join((), recheck, || (), work)
    }
}

impl<T> State<T> {
    fn known(&self, now: Timestamp, afresh: bool) -> Known<T> {
        let is_resting =
            |failure: &&Failure| failure.until.since(now).is_some_and(|left| !left.is_zero() && left <= failure.lasts);
        let resting = self.failure.as_ref().filter(is_resting);
        if let Some(current) = &self.current {
            let age = now.since(current.since).unwrap_or_default();
            let is_refused = afresh && age >= YOUNG;
            // A clock that was put back would make its life longer.
            let is_of_future = current.since.since(now).is_some_and(|by| by > YOUNG);
            if now < current.ends && !is_refused && !is_of_future {
                let value = Arc::clone(&current.value);
                let is_aging = now >= current.renew_at && resting.is_none();
                return if is_aging { Known::Aging(value) } else { Known::Good(value) };
            }
        }
        resting.map_or(Known::Nothing, |failure| Known::Failed(failure.error.clone()))
    }

    fn record(&mut self, issued: Result<Issued<T>, BackendError>, now: Timestamp) -> Result<Arc<T>, BackendError> {
        match issued {
            Ok(Issued { value, lasts }) => {
                let value = Arc::new(value);
                // A life that is shorter than the margin would be renewed by each call.
                let used = lasts.saturating_sub(MARGIN).max(lasts / 2);
                let current = Current {
                    value: Arc::clone(&value),
                    since: now,
                    renew_at: now.plus(used.mul_f64(0.8)),
                    ends: now.plus(used),
                };
                (self.current, self.failure) = (Some(current), None);
                Ok(value)
            }
            Err(error) => {
                let before = self.failure.as_ref().map(|failure| failure.rest * 2);
                let demanded = match error.kind {
                    ErrorKind::Throttled { retry_after } => retry_after.unwrap_or_default(),
                    _ => Duration::ZERO,
                };
                let rest = before.unwrap_or(FIRST_REST).min(LONGEST_REST);
                if self.current.is_some() {
                    tracing::warn!(%error, "a cloud did not renew the credential of an identity");
                }
                let lasts = rest.max(demanded);
                self.failure = Some(Failure { error: error.clone(), until: now.plus(lasts), rest, lasts });
                Err(error)
            }
        }
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::*;

    /// A clock that a test sets, in milliseconds.
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::SeqCst))
        }
    }

    struct Scene {
        hand: Arc<Hand>,
        kept: Kept<usize>,
        issued: Arc<AtomicUsize>,
        fails: bool,
    }

    impl Scene {
        fn new() -> Self {
            let hand = Arc::new(Hand(AtomicU64::new(1_000_000)));
            let clock: Arc<dyn Clock> = hand.clone();
            Self { kept: Kept::new(&clock), hand, issued: Arc::default(), fails: false }
        }

        fn pass(&self, seconds: u64) {
            self.hand.0.fetch_add(seconds * 1000, Ordering::SeqCst);
        }

        async fn get(&self, afresh: bool) -> Result<usize, String> {
            let fails = self.fails;
            let issue = |_| {
                let issued = Arc::clone(&self.issued);
                async move {
                    let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
                    tokio::task::yield_now().await;
                    if fails {
                        return Err(BackendError::new(ErrorKind::Denied, format!("refused {number}")));
                    }
                    Ok(Issued { value: number, lasts: Duration::from_hours(1) })
                }
            };
            let deadline = Instant::now() + Duration::from_mins(1);
            self.kept.get(afresh, deadline, issue).await.map(|value| *value).map_err(|error| error.message)
        }

        /// Waits until `count` credentials were requested.
        async fn until_issued(&self, count: usize) {
            while self.issued.load(Ordering::SeqCst) < count || self.kept.flights.len() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn one_flight_serves_all_and_renews_ahead() {
        let scene = Scene::new();
        let (one, two) = tokio::join!(scene.get(false), scene.get(false));
        assert_eq!((one, two, scene.issued.load(Ordering::SeqCst)), (Ok(1), Ok(1), 1));
        // 80 % of an hour without its last half minute.
        scene.pass(2855);
        assert_eq!(scene.get(false).await, Ok(1));
        scene.pass(2);
        assert_eq!(scene.get(false).await, Ok(1), "the old one is used while the new one is on its way");
        scene.until_issued(2).await;
        assert_eq!(scene.get(false).await, Ok(2));
        scene.pass(3600);
        assert_eq!(scene.get(false).await, Ok(3), "an ended one is never used");
    }

    #[tokio::test]
    async fn a_failure_rests_longer_each_time_and_leaves_what_is_good() {
        let mut scene = Scene::new();
        scene.fails = true;
        assert_eq!(scene.get(false).await, Err("refused 1".to_owned()));
        assert_eq!(scene.get(false).await, Err("refused 1".to_owned()));
        scene.pass(2);
        assert_eq!(scene.get(false).await, Err("refused 2".to_owned()));
        scene.pass(3);
        assert_eq!(scene.get(false).await, Err("refused 2".to_owned()));
        scene.pass(1);
        scene.fails = false;
        assert_eq!(scene.get(false).await, Ok(3));
        scene.fails = true;
        scene.pass(2857);
        assert_eq!(scene.get(false).await, Ok(3));
        scene.until_issued(4).await;
        assert_eq!(scene.get(false).await, Ok(3), "it is good until it ends");
        scene.pass(3600);
        assert_eq!(scene.get(false).await, Err("refused 5".to_owned()));
    }

    #[tokio::test]
    async fn a_clock_that_is_put_back_keeps_nothing_longer() {
        let scene = Scene::new();
        assert_eq!(scene.get(false).await, Ok(1));
        scene.hand.0.fetch_sub(600_000, Ordering::SeqCst);
        assert_eq!(scene.get(false).await, Ok(2), "nobody can say how long the first one still lasts");
        let scene = Scene { fails: true, ..Scene::new() };
        assert_eq!(scene.get(false).await, Err("refused 1".to_owned()));
        scene.hand.0.fetch_sub(600_000, Ordering::SeqCst);
        assert_eq!(scene.get(false).await, Err("refused 2".to_owned()), "the rest of a failure is not ten minutes");
    }

    #[tokio::test]
    async fn a_refused_credential_is_renewed_unless_it_is_young() {
        let scene = Scene::new();
        assert_eq!(scene.get(false).await, Ok(1));
        assert_eq!(scene.get(true).await, Ok(1));
        scene.pass(60);
        assert_eq!(scene.get(true).await, Ok(2));
        assert_eq!(scene.get(true).await, Ok(2));
    }
}
