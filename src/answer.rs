//! The engine: from a query to a complete answer. Lookup, else one flight for all who ask the same:
//! backend, shape, encode, record. Knows neither HTTP nor status codes.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    cache::{Encoded, Entry, Key, Memory, State},
    clock::Clock,
    error::BackendError,
    flight::{Boarding, Flights, Landing},
    generator::{Outcome, Query},
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From the cache.
    Hit {
        /// Since the backend had it.
        age: Duration,
        /// Until it is fresh no more.
        left: Duration,
    },
    /// From the backend, just now.
    Miss {
        /// Whether another call had started the run.
        shared: bool,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub enum Failure {
    /// The backend does not know.
    Backend(BackendError),
    /// The deadline passed; the run may still end and be remembered.
    Deadline,
    /// The run panicked.
    Crashed,
}

type Landed = Result<Arc<Entry>, Failure>;

/// Answers queries, and remembers.
pub struct Engine {
    memory: Memory,
    flights: Flights<Key, Landed>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// An engine that has answered nothing yet.
    pub fn new(memory: Memory, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self { memory, flights: Flights::default(), clock, metrics }
    }

    /// Answers `query` on `route`, from the cache or its backend.
    ///
    /// # Errors
    /// When no complete answer is known by the query's deadline.
    pub async fn answer(&self, route: &Arc<Route>, query: Query) -> Result<Answer, Failure> {
        let key = route.key(&query);
        if let Some(answer) = self.look_up(route, &key) {
            route.metrics.hits.inc();
            return Ok(answer);
        }
        let deadline = query.deadline;
        let recheck = || self.look_up(route, &key).map(|answer| Ok(answer.entry));
        let boarding = self.flights.board(key, recheck, || self.fly(Arc::clone(route), key, query));
        let (landed, shared) = match boarding {
            Boarding::Landed(landed) => (landed, true),
            Boarding::Joined(landing) => (wait(landing, deadline).await, true),
            Boarding::Started(landing) => (wait(landing, deadline).await, false),
        };
        if shared {
            route.metrics.joined.inc();
        } else {
            route.metrics.misses.inc();
        }
        landed.map(|entry| Answer { entry, source: Source::Miss { shared } })
    }

    /// The size of the cache in entries and bytes, and the number of runs under way, for metrics.
    pub fn observe(&self) {
        let as_gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.cache_entries.set(as_gauge(self.memory.len()));
        self.metrics.cache_bytes.set(as_gauge(self.memory.size()));
        self.metrics.flights.set(as_gauge(self.flights.len() as u64));
    }

    fn look_up(&self, route: &Route, key: &Key) -> Option<Answer> {
        let entry = self.memory.get(key)?;
        match route.policy.state(entry.stored_at, self.clock.now()) {
            State::Fresh { age, left } => Some(Answer { entry, source: Source::Hit { age, left } }),
            State::Expired => None,
        }
    }

    /// The work of a flight: detached from its callers, so it owns all it needs.
    fn fly(&self, route: Arc<Route>, key: Key, query: Query) -> impl Future<Output = Landed> + Send + 'static {
        let (memory, clock) = (self.memory.clone(), Arc::clone(&self.clock));
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
            route.metrics.ran(&result.as_ref().map(|(_, evidence)| !evidence.is_empty()).map_err(|_| ()), took);
            let (encoded, evidence) = result?;
            let entry = Arc::new(Entry { encoded, stored_at: clock.now(), took, evidence });
            if !route.policy.ttl().is_zero() {
                memory.insert(key, Arc::clone(&entry));
            }
            Ok(entry)
        }
    }
}

async fn wait(landing: Landing<Landed>, deadline: Instant) -> Landed {
    match timeout_at(deadline, landing).await {
        Ok(landed) => landed.unwrap_or(Err(Failure::Crashed)),
        Err(_) => Err(Failure::Deadline),
    }
}

async fn resolve(route: &Route, query: &Query) -> Result<(Encoded, Vec<crate::generator::Evidence>), BackendError> {
    let (sets, evidence) = match route.backend.resolve(query).await? {
        Outcome::Present(sets) => (route.shape.apply(sets, query)?, Vec::new()),
        Outcome::Absent(evidence) => (Vec::new(), evidence),
    };
    let encoded = Encoded::encode(&sets)
        .map_err(|error| BackendError::invalid_output(format!("the answer cannot be written as JSON: {error}")))?;
    Ok((encoded, evidence))
}
