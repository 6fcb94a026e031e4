//! The engine answers a resolved query: from the cache, else by one shared run (backend, shape, encode, guard, record). If
//! the run fails, the last good answer is served. It knows neither HTTP nor status codes.

mod baselines;
mod candidates;
mod changes;
pub mod conditions;
mod confirm;
pub mod events;
pub mod explain;
mod file;
mod given;
pub mod handover;
mod last_good;
pub mod left_behind;
mod live;
#[cfg(test)]
mod model;
pub mod notices;
mod observe;
pub mod operators;
mod prefetch;
pub mod remembered;
mod requesters;
mod run;
pub mod served;
pub mod shared;
mod state;
pub mod warm;

use std::{fmt, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use self::{
    confirm::Confirmations,
    last_good::stand_in,
    prefetch::Siblings,
    requesters::{NO_RUN, Requesters},
    run::Run,
    shared::Shared,
    state::EngineState,
};
pub use self::{last_good::Unusable, run::try_out};
use crate::{
    cache::{Answers, Entry, Freshness, Key, MadeUnder, Memory, Stale},
    guard::Held,
    route::ResolvedQuery,
};
use domain::{
    clock::{Clock, Timestamp},
    error::{BackendError, ErrorKind},
    generator::{Evidence, Question},
};
use flight::{FlightJoin, Flights, SharedResult};
use telemetry::metrics::Metrics;

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// What is answered.
    pub entry: Arc<Entry>,
    /// Where it came from.
    pub source: AnswerSource,
}

/// Where an answer came from.
#[derive(Debug, Clone)]
pub enum AnswerSource {
    /// From the cache, fresh.
    Hit {
        /// Since the backend had it.
        age: Duration,
        /// Until it is fresh no more.
        left: Duration,
    },
    /// From the cache, stale: a run in the background renews it, or the reason why none does at present.
    StaleWhileRevalidate(Stale, Option<Box<Unknown>>),
    /// From the cache, stale, because the backend does not know.
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
    /// Set if it happened to an earlier call: how long until the backend is asked again, at the earliest.
    pub rests: Option<Duration>,
    /// Why the last good answer is not served, if there is one.
    pub unusable: Option<Unusable>,
}

impl Unknown {
    fn new(failure: Failure, rests: Option<Duration>) -> Self {
        Self { failure, rests, unusable: None }
    }
}

/// Why a run brought no answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Failure {
    /// The backend does not know.
    Backend(BackendError),
    /// The deadline passed. The run may still end, and its answer is then stored.
    Deadline,
    /// The run panicked.
    Crashed,
    /// The backend answered, and the guard holds the answer.
    Held(Box<Held>),
    /// The shared store is needed and does not answer, or another replica must answer.
    Store(String),
}

impl Failure {
    /// What was learned about each item, if the backend asked about several.
    #[must_use]
    pub fn evidence(&self) -> &[Evidence] {
        if let Self::Backend(error) = self { &error.evidence } else { &[] }
    }

    /// Whether the question itself is invalid, such as one with a shortened commit.
    const fn is_invalid_question(&self) -> bool {
        matches!(self, Self::Backend(BackendError { kind: ErrorKind::InvalidInput, .. }))
    }

    /// The name in metrics and logs.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Backend(error) => error.kind.as_str(),
            Self::Deadline => "timeout",
            Self::Crashed => "crashed",
            Self::Held(_) => "held",
            Self::Store(_) => "store",
        }
    }

    /// How long the source asked not to be called.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Backend(BackendError { kind: ErrorKind::Throttled { retry_after }, .. }) => *retry_after,
            _ => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => error.fmt(f),
            Self::Deadline => f.write_str("no answer by the deadline"),
            Self::Crashed => f.write_str("the gateway failed; its log says where"),
            Self::Held(held) => held.fmt(f),
            Self::Store(why) => write!(f, "the shared store cannot be used: {why}"),
        }
    }
}

type Landed = Result<Arc<Entry>, Failure>;

/// Why a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// A caller waits for it.
    Now,
    /// A caller asked, and got a stale answer already.
    Behind,
    /// The gateway itself asks. A caller last asked at this time.
    Since(Timestamp),
    /// The same, after an event.
    Event(Timestamp),
    /// The same, because a caller is expected to ask in a moment.
    Ahead(Timestamp),
}

impl Wanted {
    /// When a caller last asked, if the gateway itself asks now.
    const fn asked_at(self) -> Option<Timestamp> {
        match self {
            Self::Since(then) | Self::Event(then) | Self::Ahead(then) => Some(then),
            Self::Now | Self::Behind => None,
        }
    }
}

/// Answers queries, and stores the answers.
pub struct Engine {
    known: Arc<EngineState>,
    /// By cache key, the route's revision and its keys. After a change of these, no caller waits for a run of before.
    flights: Flights<(Key, MadeUnder), Question, Landed>,
    confirmations: Confirmations,
    requesters: Requesters,
    siblings: Siblings,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
}

impl Engine {
    /// An engine that has answered nothing yet.
    pub fn new(memory: Memory, shared: Option<Arc<Shared>>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self {
            known: Arc::new(EngineState::new(Answers::new(memory), shared)),
            flights: Flights::default(),
            confirmations: Confirmations::default(),
            requesters: Requesters::default(),
            siblings: Siblings::default(),
            clock,
            metrics,
        }
    }

    /// The view of the shared store, if there is one.
    #[must_use]
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        self.known.shared.as_ref()
    }

    /// The stored answers.
    #[must_use]
    pub fn answers(&self) -> &Answers {
        &self.known.answers
    }

    /// Whether no run is under way.
    pub fn is_idle(&self) -> bool {
        self.flights.len() == 0
    }

    /// Answers `asked`, from the cache or its route's backend.
    ///
    /// # Errors
    /// When no complete answer is known by the query's deadline.
    pub async fn answer(&self, asked: &Arc<ResolvedQuery>) -> Result<Answer, Unknown> {
        let mut answer = self.answer_now(asked).await;
        if let Some(shared) = &self.known.shared
            && !Self::is_final(shared, &answer)
        {
            answer = Box::pin(self.settle_answer(shared, asked, answer)).await;
        }
        let entry = answer.as_ref().ok().map(|answer| &answer.entry);
        let run = entry.map_or(NO_RUN, |entry| entry.run_number ^ entry.stored_at.0.rotate_left(32));
        let given = || entry.map_or(0, |entry| entry.encoded.fingerprint());
        self.requesters.note(&asked.key, &asked.query.requester(), self.clock.now(), run, given);
        answer
    }

    async fn answer_now(&self, asked: &Arc<ResolvedQuery>) -> Result<Answer, Unknown> {
        let (route, key) = (&*asked.route, asked.key);
        let now = self.clock.now();
        let own = self.known.usable(route, &key, now);
        let own = own.filter(|(entry, _)| !self.known.is_outshone(asked, entry, now));
        if let Some(shared) = &self.known.shared {
            // After the answer is chosen: what was the last one in contact may be given.
            if let Some(why) = shared.why_out_of_contact() {
                return Err(Unknown::new(Failure::Store(why), None));
            }
            if let Some(why) = shared.why_outdated(route) {
                return self.answer_as_stored(shared, asked, why);
            }
        }
        match own {
            Some((entry, Freshness::Fresh { age, left })) => {
                route.metrics.hits.inc();
                if entry.turn.take(now) {
                    self.renew_ahead(asked, None, now);
                }
                Ok(Answer { entry, source: AnswerSource::Hit { age, left } })
            }
            Some((entry, Freshness::StaleWhileRevalidate(stale))) => {
                route.metrics.stale.inc();
                self.take_turn(asked, &entry, now);
                let resting = self.resting(&key, now);
                if resting.is_none() {
                    // The run goes on without a waiting caller.
                    drop(self.join(asked, Wanted::Behind));
                }
                Ok(Answer { entry, source: AnswerSource::StaleWhileRevalidate(stale, resting.map(Box::new)) })
            }
            Some((entry, Freshness::StaleIfError(stale))) => {
                self.known.answers.used(key);
                self.take_turn(asked, &entry, now);
                let answer = Box::pin(self.ask(asked, now)).await;
                answer.or_else(|unknown| {
                    let (entry, stale) = self.stored_meanwhile(asked).unwrap_or((entry, stale));
                    Ok(stand_in(route, entry, stale, unknown))
                })
            }
            None | Some((_, Freshness::Expired)) => {
                self.renew_ahead(asked, None, now);
                let answer = Box::pin(self.ask(asked, now)).await;
                answer
                    .or_else(|unknown| self.follow(asked, unknown, now))
                    .map_err(|unknown| Unknown { unusable: self.unusable(asked), ..unknown })
            }
        }
    }

    /// Notes that a caller asks for `entry`, the answer to `asked`, which is due.
    fn take_turn(&self, asked: &ResolvedQuery, entry: &Entry, now: Timestamp) {
        let last = entry.turn.taken_at();
        entry.turn.take(now);
        self.renew_ahead(asked, last, now);
    }

    /// The recent failure because of which no run starts for `key` now. Also records that a caller asked, so that a held answer
    /// is not forgotten.
    fn resting(&self, key: &Key, now: Timestamp) -> Option<Unknown> {
        let (rest, left) = self.known.failing.resting(key, now)?;
        let failure = rest.failure.failure;
        if let Failure::Held(held) = &failure {
            self.known.held.note_asked(&held.lineage, now);
        }
        Some(Unknown::new(failure, Some(left)))
    }

    /// Waits for a run of the backend, unless the last run failed just now. Callers box this future, so that a cache hit does
    /// not pay for its size.
    async fn ask(&self, asked: &Arc<ResolvedQuery>, now: Timestamp) -> Result<Answer, Unknown> {
        let metrics = &asked.route.metrics;
        if let Some(resting) = self.resting(&asked.key, now) {
            metrics.failing.inc();
            return Err(resting);
        }
        let deadline = asked.query.deadline;
        let (landed, shared) = match self.join(asked, Wanted::Now) {
            FlightJoin::Finished(landed) => (landed, true),
            FlightJoin::Joined(result) => (wait(result, deadline).await, true),
            FlightJoin::Started(result) => (wait(result, deadline).await, false),
        };
        if shared {
            metrics.joined.inc();
        } else {
            metrics.misses.inc();
        }
        let entry = landed.map_err(|failure| Unknown::new(failure, None))?;
        entry.turn.take(now);
        Ok(Answer { entry, source: AnswerSource::Miss { shared } })
    }

    /// Joins the run that answers `asked`, or starts it.
    fn join(&self, asked: &Arc<ResolvedQuery>, wanted: Wanted) -> FlightJoin<Landed> {
        let route = &*asked.route;
        // Only in memory: an answer from disk is never fresh, and the table of runs is locked here.
        let recheck = || {
            let (entry, now) = (self.known.answers.memory().get_rare(&asked.key)?, self.clock.now());
            let state = route.state(entry.made_under, entry.stored_at, entry.life, now);
            let is_good = matches!(state, Freshness::Fresh { .. }) && !self.known.is_outshone(asked, &entry, now);
            if is_good { Some(Ok(entry)) } else { None }
        };
        let trust = route.trust();
        let made_under = MadeUnder { revision: route.revision(), trust: trust.fingerprint };
        self.flights.join(
            (asked.key, made_under),
            recheck,
            || asked.question.clone(),
            |guard| {
                let run = Run { asked: Arc::clone(asked), wanted, trust, guard };
                run.fly(Arc::clone(&self.known), Arc::clone(&self.clock))
            },
        )
    }
}

async fn wait(result: SharedResult<Landed>, deadline: Instant) -> Landed {
    match timeout_at(deadline, result).await {
        Ok(landed) => landed.unwrap_or(Err(Failure::Crashed)),
        Err(_) => Err(Failure::Deadline),
    }
}
