//! Remembers verdicts: *passed* for long, *failed* briefly, since a run may be repeated. *Pending* is queried each time,
//! unless the system's rate limit is nearly used up. Equal requests at the same time are sent once.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{CiState, CiVerdict, Gate, GateQuery};
use domain::{
    bounded_cache::Recent,
    clock::{Clock, Timestamp},
    error::BackendError,
};
use flight::{FlightGuard, Flights, wait::wait};

/// How long *passed* is remembered.
const PASSED_FOR: Duration = Duration::from_mins(10);
/// How long *failed* is remembered: a run may be repeated.
const FAILED_FOR: Duration = Duration::from_mins(1);
/// How many times longer verdicts are remembered while the rate limit is nearly used up.
const STRETCH: u32 = 4;
/// How long *pending* is remembered, times [`STRETCH`], while the rate limit is nearly used up; otherwise not at all.
const PENDING_FOR: Duration = Duration::from_secs(15);
/// How many verdicts are remembered; the least recently used leave first.
const MAX_VERDICTS: usize = 4096;

type Key = [u8; 32];

/// A hash of all that identifies a request to a system. Each part goes in with its length, so that no two lists of parts have
/// the same hash.
#[derive(Debug, Default)]
pub struct RequestKey(Sha256);

impl RequestKey {
    /// Adds a part.
    pub fn add(&mut self, part: impl AsRef<[u8]>) {
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
    /// The request, with all parameters filled in.
    type Request: Send + Sync + 'static;

    /// The request that `query` makes.
    ///
    /// # Errors
    /// When the parameters do not make a request.
    async fn request(&self, query: GateQuery<'_>) -> Result<Self::Request, BackendError>;

    /// Adds to `key` all that identifies `request` to this system: all that its verdict depends on, but for secrets.
    fn write_key(request: &Self::Request, key: &mut RequestKey);

    /// Gets the verdict of CI by `deadline`, without changing anything.
    ///
    /// # Errors
    /// When there is no clear answer.
    async fn check(&self, request: &Self::Request, deadline: Instant) -> Result<CiVerdict, BackendError>;

    /// Whether the rate limit that applies to `request` is nearly used up.
    fn is_low(&self, request: &Self::Request) -> bool;
}

/// A system whose verdicts are remembered by request.
#[derive(Debug)]
pub struct Remembered<S> {
    /// The system itself.
    pub system: Arc<S>,
    verdicts: RememberedVerdicts,
    flights: Flights<Key, Key, Result<CiVerdict, BackendError>>,
}

/// The remembered verdicts, with the time of each.
#[derive(Clone)]
struct RememberedVerdicts {
    by_key: Arc<Recent<Key, (CiVerdict, Timestamp)>>,
    clock: Arc<dyn Clock>,
}

impl<S: System> Remembered<S> {
    /// `system`, with an empty memory.
    #[must_use]
    pub fn new(system: S, clock: &Arc<dyn Clock>) -> Self {
        let remembered = RememberedVerdicts { by_key: Arc::new(Recent::new(MAX_VERDICTS)), clock: Arc::clone(clock) };
        Self { system: Arc::new(system), verdicts: remembered, flights: Flights::default() }
    }

    /// The verdict on `request`: a remembered one if `query` allows, otherwise from the system. Callers with an equal request
    /// wait for the same run.
    ///
    /// # Errors
    /// When the system gives no clear answer in time. Errors are not remembered.
    pub async fn verdict(&self, request: S::Request, query: GateQuery<'_>) -> Result<CiVerdict, BackendError> {
        let mut key = RequestKey::default();
        S::write_key(&request, &mut key);
        let key = key.finish();
        if !query.may_reuse {
            // A request that began earlier may have missed the change that this query is about.
            self.flights.supersede(|other| *other == key, || ());
        } else if let Some(verdict) = self.verdicts.recall(&key, || self.system.is_low(&request)) {
            return Ok(verdict);
        }
        let (request, deadline) = (Arc::new(request), query.deadline);
        let join = || {
            let (system, remembered, request) = (Arc::clone(&self.system), self.verdicts.clone(), Arc::clone(&request));
            let work = move |guard: FlightGuard<_, _, _>| async move {
                let verdict = system.check(&request, deadline).await;
                guard.finish(|is_current| {
                    if let (Ok(verdict), true) = (&verdict, is_current) {
                        remembered.remember(key, verdict);
                    }
                });
                verdict
            };
            let known = || query.may_reuse.then(|| self.verdicts.recall(&key, || false)).flatten();
            self.flights.join(key, || known().map(Ok), || key, work)
        };
        wait(join, deadline).await
    }
}

impl RememberedVerdicts {
    fn recall(&self, key: &Key, is_low: impl FnOnce() -> bool) -> Option<CiVerdict> {
        let (verdict, since) = self.by_key.get(key)?;
        let age = self.clock.now().since(since)?;
        let (life, stretched) = lives(verdict.state);
        (age < life || age < stretched && is_low()).then_some(verdict)
    }

    fn remember(&self, key: Key, verdict: &CiVerdict) {
        self.by_key.insert(key, (verdict.clone(), self.clock.now()));
    }
}

/// How long a verdict is remembered, and how long while the rate limit is nearly used up.
const fn lives(state: CiState) -> (Duration, Duration) {
    let (life, base) = match state {
        CiState::Passed => (PASSED_FOR, PASSED_FOR),
        CiState::Failed => (FAILED_FOR, FAILED_FOR),
        CiState::Pending => (Duration::ZERO, PENDING_FOR),
    };
    (life, base.saturating_mul(STRETCH))
}

#[async_trait]
impl<S: System> Gate for Remembered<S> {
    async fn check(&self, query: GateQuery<'_>) -> Result<CiVerdict, BackendError> {
        self.verdict(self.system.request(query).await?, query).await
    }

    /// Forgets all verdicts, also those of requests in flight.
    fn forget(&self) {
        self.flights.supersede(|_| true, || self.verdicts.by_key.clear());
    }
}

impl fmt::Debug for RememberedVerdicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberedVerdicts").field("verdicts", &self.by_key.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
