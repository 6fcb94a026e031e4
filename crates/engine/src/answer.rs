//! The engine answers a resolved query: from the cache, else by one shared run (backend, shape, encode, guard, record). If
//! the run fails, the last good answer is served. It has neither HTTP nor status codes.

mod acknowledged;
mod as_stored;
pub(crate) mod expire;
mod file;
pub(crate) mod last_good;
pub(crate) mod live;
mod prefetch;

use crate::{
    answer::{last_good::fallback, prefetch::Prefetch},
    cache::{Answers, Entry, Freshness, Key, Memory, Stale},
    failure::Failure,
    replica::{Replica, peers::Refusal},
    route::ResolvedQuery,
    run::{self, Finished, Wanted, wait},
    state::{
        EngineState,
        requesters::{NO_RUN, Requesters},
    },
};
use std::sync::atomic::Ordering;
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

pub use crate::{answer::last_good::Unusable, run::try_out};
use domain::clock::{Clock, Timestamp};
use flight::FlightJoin;
use telemetry::metrics::Metrics;

/// How many confirmations are in flight at the same time, at most.
const MAX_CONFIRMATIONS: usize = 16;

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The answer.
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
    /// From the cache, stale, because the backend failed.
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
    /// The failure.
    pub failure: Failure,
    /// Set if it happened to an earlier call: how long until the backend is called again, at the earliest.
    pub retry_after: Option<Duration>,
    /// Why the last good answer is not served, if there is one.
    pub unusable: Option<Unusable>,
}

impl Unknown {
    pub(crate) fn new(failure: Failure, retry_after: Option<Duration>) -> Self {
        Self { failure, retry_after, unusable: None }
    }
}

/// Answers queries, and stores the answers.
pub struct Engine {
    pub(crate) known: Arc<EngineState>,
    /// Bounds the confirmations that are under way.
    pub(crate) confirmations: Arc<Semaphore>,
    pub(crate) requesters: Requesters,
    prefetch: Prefetch,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Engine {
    /// An engine that has answered nothing yet.
    pub fn new(memory: Memory, replica: Option<Arc<Replica>>, clock: Arc<dyn Clock>, metrics: Arc<Metrics>) -> Self {
        Self {
            known: Arc::new(EngineState::new(Answers::new(memory), replica.into())),
            confirmations: Arc::new(Semaphore::new(MAX_CONFIRMATIONS)),
            requesters: Requesters::default(),
            prefetch: Prefetch::default(),
            clock,
            metrics,
        }
    }

    /// This process as one of the replicas that share a store, if it is one.
    #[must_use]
    pub fn replica(&self) -> Option<&Arc<Replica>> {
        self.known.peers.replica()
    }

    /// Calls the candidates of shadows from now on. Without this, only the routes' own backends are called.
    pub fn call_candidates(&self) {
        self.known.calls_candidates.store(true, Ordering::Relaxed);
    }

    /// Whether a run may be started in the background: not without contact.
    pub(crate) fn may_run(&self) -> bool {
        self.known.peers.may_run()
    }

    /// The stored answers.
    #[must_use]
    pub fn answers(&self) -> &Answers {
        &self.known.answers
    }

    /// Whether no run is under way.
    pub fn is_idle(&self) -> bool {
        self.known.flights.len() == 0
    }

    /// Answers `resolved`, from the cache or its route's backend.
    ///
    /// # Errors
    /// When no complete answer is known by the query's deadline.
    pub async fn answer(&self, resolved: &Arc<ResolvedQuery>) -> Result<Answer, Unknown> {
        let mut answer = self.answer_now(resolved).await;
        if let Some(replica) = self.known.peers.replica()
            && !Self::is_final(replica, &answer)
        {
            answer = Box::pin(self.acknowledged_answer(replica, resolved, answer)).await;
        }
        let entry = answer.as_ref().ok().map(|answer| &answer.entry);
        let run = entry.map_or(NO_RUN, |entry| entry.run_number ^ entry.stored_at.0.rotate_left(32));
        let served = || entry.map_or(0, |entry| entry.encoded.fingerprint());
        self.requesters.note(&resolved.key, &resolved.query.requester(), self.clock.now(), run, served);
        answer
    }

    async fn answer_now(&self, resolved: &Arc<ResolvedQuery>) -> Result<Answer, Unknown> {
        let (route, key) = (&*resolved.route, resolved.key);
        let now = self.clock.now();
        let own = self.known.usable(route, &key, now);
        let own = own.filter(|(entry, _)| !self.known.is_outshone(resolved, entry, now));
        // After the answer is chosen: what was the last one in contact may be served.
        match self.known.peers.refusal(route) {
            Some(Refusal::OutOfContact(why)) => return Err(Unknown::new(Failure::Store(why), None)),
            Some(Refusal::Outdated(why)) => return self.answer_as_stored(resolved, why),
            None => {}
        }
        match own {
            Some((entry, Freshness::Fresh { age, left })) => {
                route.metrics.hits.inc();
                if entry.last_served.note(now) {
                    self.prefetch(resolved, None, now);
                }
                Ok(Answer { entry, source: AnswerSource::Hit { age, left } })
            }
            Some((entry, Freshness::StaleWhileRevalidate(stale))) => {
                route.metrics.stale.inc();
                self.note_served(resolved, &entry, now);
                let backoff = self.backoff(&key, now);
                if backoff.is_none() {
                    // The run continues without a waiting caller.
                    drop(self.join(resolved, Wanted::Behind));
                }
                Ok(Answer { entry, source: AnswerSource::StaleWhileRevalidate(stale, backoff.map(Box::new)) })
            }
            Some((entry, Freshness::StaleIfError(stale))) => {
                self.known.answers.used(key);
                self.note_served(resolved, &entry, now);
                let answer = Box::pin(self.wait_for_run(resolved, now)).await;
                answer.or_else(|unknown| {
                    let (entry, stale) = self.stored_meanwhile(resolved).unwrap_or((entry, stale));
                    Ok(fallback(route, entry, stale, unknown))
                })
            }
            None | Some((_, Freshness::Expired)) => {
                self.prefetch(resolved, None, now);
                let answer = Box::pin(self.wait_for_run(resolved, now)).await;
                answer
                    .or_else(|unknown| self.follow(resolved, unknown, now))
                    .map_err(|unknown| Unknown { unusable: self.unusable(resolved), ..unknown })
            }
        }
    }

    /// Notes that a caller gets `entry`, the answer to `resolved`, which is due.
    fn note_served(&self, resolved: &ResolvedQuery, entry: &Entry, now: Timestamp) {
        let last = entry.last_served.at();
        entry.last_served.note(now);
        self.prefetch(resolved, last, now);
    }

    /// The recent failure because of which no run starts for `key` now. Also records that a caller came, so that a held answer
    /// is not forgotten.
    fn backoff(&self, key: &Key, now: Timestamp) -> Option<Unknown> {
        let (backoff, left) = self.known.failing.backoff(key, now)?;
        let failure = backoff.failure.failure;
        if let Failure::Held(held) = &failure {
            self.known.held.note_queried(&held.lineage, now);
        }
        Some(Unknown::new(failure, Some(left)))
    }

    /// Waits for a run of the backend, unless the last run failed just now. Callers box this future, so that a cache hit does
    /// not pay for its size.
    pub(crate) async fn wait_for_run(&self, resolved: &Arc<ResolvedQuery>, now: Timestamp) -> Result<Answer, Unknown> {
        let metrics = &resolved.route.metrics;
        if let Some(backoff) = self.backoff(&resolved.key, now) {
            metrics.failing.inc();
            return Err(backoff);
        }
        let deadline = resolved.query.deadline;
        let (finished, shared) = match self.join(resolved, Wanted::Now) {
            FlightJoin::Finished(finished) => (finished, true),
            FlightJoin::Joined(result) => (wait(result, deadline).await, true),
            FlightJoin::Started(result) => (wait(result, deadline).await, false),
        };
        if shared {
            metrics.joined.inc();
        } else {
            metrics.misses.inc();
        }
        let entry = finished.map_err(|failure| Unknown::new(failure, None))?;
        entry.last_served.note(now);
        Ok(Answer { entry, source: AnswerSource::Miss { shared } })
    }

    /// Joins the run that answers `resolved`, or starts it.
    pub(crate) fn join(&self, resolved: &Arc<ResolvedQuery>, wanted: Wanted) -> FlightJoin<Finished> {
        run::join(&self.known, &self.clock, resolved, wanted)
    }
}
