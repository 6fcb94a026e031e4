//! Remembers rulings: *passed* for long, *failed* briefly, since somebody may run it again. *Pending* is asked each time,
//! unless the system's rate limit is nearly used up. Equal requests at the same time are sent once.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{Gate, GateQuery, Ruling, RulingState};
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
/// How many times longer rulings are remembered while the rate limit is nearly used up.
const STRETCH: u32 = 4;
/// How long *pending* is remembered, times [`STRETCH`], while the rate limit is nearly used up; otherwise not at all.
const PENDING_FOR: Duration = Duration::from_secs(15);
/// How many rulings are remembered; the least recently used leave first.
const MAX_RULINGS: usize = 4096;

type Key = [u8; 32];

/// A hash of what identifies a request to a system. Each part goes in with its length, so that no two lists of parts have
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
}

/// A system whose rulings are remembered by request.
#[derive(Debug)]
pub struct Remembered<S> {
    /// The system itself.
    pub system: Arc<S>,
    rulings: RememberedRulings,
    flights: Flights<Key, Key, Result<Ruling, BackendError>>,
}

/// The remembered rulings, with the time of each.
#[derive(Clone)]
struct RememberedRulings {
    by_key: Arc<Recent<Key, (Ruling, Timestamp)>>,
    clock: Arc<dyn Clock>,
}

impl<S: System> Remembered<S> {
    /// `system`, with an empty memory.
    #[must_use]
    pub fn new(system: S, clock: &Arc<dyn Clock>) -> Self {
        let remembered = RememberedRulings { by_key: Arc::new(Recent::new(MAX_RULINGS)), clock: Arc::clone(clock) };
        Self { system: Arc::new(system), rulings: remembered, flights: Flights::default() }
    }

    /// The ruling on `request`: a remembered one if `query` allows, otherwise from the system. Callers with an equal request
    /// wait for the same run.
    ///
    /// # Errors
    /// When the system gives no clear answer in time. Errors are not remembered.
    pub async fn ruling(&self, request: S::Request, query: GateQuery<'_>) -> Result<Ruling, BackendError> {
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
                guard.finish(|is_current| {
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

    /// Forgets all rulings, also those of requests in flight.
    fn forget(&self) {
        self.flights.supersede(|_| true, || self.rulings.by_key.clear());
    }
}

impl fmt::Debug for RememberedRulings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberedRulings").field("rulings", &self.by_key.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
