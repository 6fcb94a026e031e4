//! The engine: from a query to a complete answer. Lookup, else one flight for all who ask the same:
//! backend, shape, encode, record. What the backend does not know is answered with what it last knew.
//! Knows neither HTTP nor status codes.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::{Answers, Encoded, Entry, Failing, Key, Memory, Stale, State},
    clock::{Clock, Timestamp},
    error::{BackendError, ErrorKind},
    flight::{Boarding, Flights, Landing},
    generator::{Evidence, Outcome, ParameterSet, Query},
    guard::{Held, Ledger},
    route::Route,
    telemetry::metrics::Metrics,
};

/// A flight ends this long before its first caller's deadline, so that its reason still arrives; and the
/// backend as long before the flight's end, since it knows best what it was waiting for.
const MARGIN: Duration = Duration::from_millis(100);

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What is answered.
    pub entry: Arc<Entry>,
    /// Where it came from.
    pub source: Source,
}

/// Where an answer came from.
#[derive(Debug, Clone)]
pub enum Source {
    /// From the cache, fresh.
    Hit {
        /// Since the backend had it.
        age: Duration,
        /// Until it is fresh no more.
        left: Duration,
    },
    /// From the cache, while a run in the background renews it.
    StaleWhileRevalidate(Stale),
    /// From the cache, since the backend does not know.
    StaleIfError(Stale, Box<Unknown>),
    /// From the backend, just now.
    Miss {
        /// Whether another call had started the run.
        shared: bool,
    },
}

/// Why there is no new answer.
#[derive(Debug, Clone)]
pub struct Unknown {
    /// What happened.
    pub failure: Failure,
    /// That it happened to an earlier call, and when the backend is asked again at the earliest.
    pub rests: Option<Duration>,
}

/// How a run ended that brought no answer.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The backend does not know.
    Backend(BackendError),
    /// The deadline passed; the run may still end and be remembered.
    Deadline,
    /// The run panicked.
    Crashed,
    /// The backend answered, and the guard does not believe it yet.
    Held(Box<Held>),
}

impl Failure {
    /// For how long the source wants to be left alone.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Backend(BackendError { kind: ErrorKind::Throttled { retry_after }, .. }) => *retry_after,
            _ => None,
        }
    }
}

type Landed = Result<Arc<Entry>, Failure>;

/// Answers queries, and remembers.
pub struct Engine {
    answers: Answers,
    failing: Failing<Failure>,
    held: Ledger<Key>,
    flights: Flights<Key, Landed>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// An engine that has answered nothing yet.
    pub fn new(memory: Memory, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self {
            answers: Answers::new(memory),
            failing: Failing::default(),
            held: Ledger::default(),
            flights: Flights::default(),
            clock,
            metrics,
        }
    }

    /// What is remembered.
    #[must_use]
    pub const fn answers(&self) -> &Answers {
        &self.answers
    }

    /// Answers `query` on `route`, from the cache or its backend.
    ///
    /// # Errors
    /// When no complete answer is known by the query's deadline.
    pub async fn answer(&self, route: &Arc<Route>, query: Query) -> Result<Answer, Unknown> {
        let key = route.key(&query);
        let now = self.clock.now();
        match usable(&self.answers, route, &key, now) {
            Some((entry, State::Fresh { age, left })) => {
                route.metrics.hits.inc();
                Ok(Answer { entry, source: Source::Hit { age, left } })
            }
            Some((entry, State::StaleWhileRevalidate(stale))) => {
                route.metrics.stale.inc();
                if self.failing.resting(&key, now).is_none() {
                    // The run needs nobody who waits for it.
                    drop(self.board(route, key, query));
                }
                Ok(Answer { entry, source: Source::StaleWhileRevalidate(stale) })
            }
            Some((entry, State::StaleIfError(stale))) => {
                let asked = Box::pin(self.ask(route, key, query, now)).await;
                asked.or_else(|unknown| Ok(stand_in(route, entry, stale, unknown)))
            }
            None | Some((_, State::Expired)) => {
                let lineage = route.lineage(&query, key);
                let asked = Box::pin(self.ask(route, key, query, now)).await;
                asked.or_else(|unknown| self.follow(route, &lineage, unknown, now))
            }
        }
    }

    /// The last good answer of `lineage`, for a question that has none of its own.
    fn follow(&self, route: &Route, lineage: &Key, unknown: Unknown, now: Timestamp) -> Result<Answer, Unknown> {
        let Some((entry, worth)) = usable(&self.answers, route, lineage, now) else { return Err(unknown) };
        let stale = match worth {
            State::Fresh { age, .. } => Stale { age, over: Duration::ZERO },
            State::StaleWhileRevalidate(stale) | State::StaleIfError(stale) => stale,
            State::Expired => return Err(unknown),
        };
        Ok(stand_in(route, entry, stale, unknown))
    }

    /// Waits for a run of the backend, unless it failed just now. Boxed by its callers, so that a hit does not carry its
    /// state around.
    async fn ask(&self, route: &Arc<Route>, key: Key, query: Query, now: Timestamp) -> Result<Answer, Unknown> {
        if let Some((rest, left)) = self.failing.resting(&key, now) {
            route.metrics.failing.inc();
            return Err(Unknown { failure: rest.failure, rests: Some(left) });
        }
        let deadline = query.deadline;
        let (landed, shared) = match self.board(route, key, query) {
            Boarding::Landed(landed) => (landed, true),
            Boarding::Joined(landing) => (wait(landing, deadline).await, true),
            Boarding::Started(landing) => (wait(landing, deadline).await, false),
        };
        if shared {
            route.metrics.joined.inc();
        } else {
            route.metrics.misses.inc();
        }
        let entry = landed.map_err(|failure| Unknown { failure, rests: None })?;
        Ok(Answer { entry, source: Source::Miss { shared } })
    }

    /// Joins the run for `key`, or starts it.
    fn board(&self, route: &Arc<Route>, key: Key, query: Query) -> Boarding<Landed> {
        // In memory only: what comes from a disk is not fresh, and the table of flights is locked meanwhile.
        let recheck = || {
            let entry = self.answers.memory().get(&key)?;
            let state = route.policy.state(entry.stored_at, entry.life, self.clock.now());
            matches!(state, State::Fresh { .. }).then_some(Ok(entry))
        };
        self.flights.board(key, recheck, || self.fly(Arc::clone(route), key, query))
    }

    /// The size of the cache in entries and bytes, and the number of runs under way, for metrics.
    pub fn observe(&self) {
        let as_gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.cache_entries.set(as_gauge(self.answers.memory().len()));
        self.metrics.cache_bytes.set(as_gauge(self.answers.memory().size()));
        self.metrics.flights.set(as_gauge(self.flights.len() as u64));
        self.metrics.held.set(as_gauge(self.held.len() as u64));
    }

    /// The work of a flight: detached from its callers, so it owns all it needs.
    fn fly(&self, route: Arc<Route>, key: Key, query: Query) -> impl Future<Output = Landed> + Send + 'static {
        let (answers, failing, held) = (self.answers.clone(), self.failing.clone(), self.held.clone());
        let (clock, lineage) = (Arc::clone(&self.clock), route.lineage(&query, key));
        async move {
            let started = StdInstant::now();
            let margin = MARGIN.min(route.deadline / 10);
            let until = query.deadline.checked_sub(margin).unwrap_or(query.deadline);
            let query = Query { deadline: until.checked_sub(margin).unwrap_or(until), ..query };
            let run = AssertUnwindSafe(resolve(&route, &query)).catch_unwind();
            let result = match timeout_at(until, run).await {
                Ok(Ok(result)) => result.map_err(Failure::Backend),
                Ok(Err(_)) => Err(Failure::Crashed),
                Err(_) => Err(Failure::Deadline),
            };
            let took = started.elapsed();
            route.metrics.ran(&result.as_ref().map(|found| !found.evidence.is_empty()).map_err(|_| ()), took);
            let now = clock.now();
            let reviewed = result.and_then(|found| {
                review(&held, &answers, &route, lineage, &found, now)?;
                Ok(found)
            });
            let found =
                reviewed.inspect_err(|failure| failing.failed(key, failure.clone(), failure.retry_after(), now))?;
            let (encoded, evidence) = (found.encoded, found.evidence);
            let entry = Arc::new(Entry { encoded, stored_at: now, life: route.policy.life(&key, now), took, evidence });
            if !route.policy.horizon().is_zero() {
                answers.insert(key, &entry);
                if lineage != key {
                    answers.insert(lineage, &entry);
                }
            }
            failing.recovered(&key);
            Ok(entry)
        }
    }
}

/// What is remembered under `key`, unless it has expired.
fn usable(answers: &Answers, route: &Route, key: &Key, now: Timestamp) -> Option<(Arc<Entry>, State)> {
    let entry = answers.get(key)?;
    let state = route.policy.state(entry.stored_at, entry.life, now);
    (state != State::Expired).then_some((entry, state))
}

/// `entry` in the place of the answer that is not known.
fn stand_in(route: &Route, entry: Arc<Entry>, stale: Stale, unknown: Unknown) -> Answer {
    route.metrics.stale_if_error.inc();
    Answer { entry, source: Source::StaleIfError(stale, Box::new(unknown)) }
}

async fn wait(landing: Landing<Landed>, deadline: Instant) -> Landed {
    match timeout_at(deadline, landing).await {
        Ok(landed) => landed.unwrap_or(Err(Failure::Crashed)),
        Err(_) => Err(Failure::Deadline),
    }
}

/// What a run found, in the form that Argo CD gets.
struct Found {
    sets: Vec<ParameterSet>,
    encoded: Encoded,
    evidence: Vec<Evidence>,
}

async fn resolve(route: &Route, query: &Query) -> Result<Found, BackendError> {
    let (sets, evidence) = match route.backend.resolve(query).await? {
        Outcome::Present(sets) => (route.shape.apply(sets, query)?, Vec::new()),
        Outcome::Absent(evidence) => (route.shape.apply(Vec::new(), query)?, evidence),
    };
    let encoded = Encoded::encode(&sets)
        .map_err(|error| BackendError::invalid_output(format!("the answer cannot be written as JSON: {error}")))?;
    Ok(Found { sets, encoded, evidence })
}

/// Holds `found` against the last good answer of its lineage.
fn review(
    held: &Ledger<Key>,
    answers: &Answers,
    route: &Route,
    lineage: Key,
    found: &Found,
    now: Timestamp,
) -> Result<(), Failure> {
    let last = usable(answers, route, &lineage, now).map(|(last, _)| last.encoded.decode()).unwrap_or_default();
    match held.review(lineage, &route.guard, &last, &found.sets, now) {
        Ok(None) => Ok(()),
        Ok(Some(held)) => Err(Failure::Held(Box::new(held))),
        Err(error) => Err(Failure::Backend(BackendError::invalid_output(error))),
    }
}
