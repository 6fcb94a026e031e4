//! One run of a backend: call, shape, check, record. It is a task of its own, so it does not end when its callers leave.

mod candidates;
mod changes;
mod commit;
pub(crate) mod elements;
mod lease;

use crate::{
    cache::{Elements, Encoded, Freshness, Key, MadeUnder},
    failure::Failure,
    route::{ResolvedQuery, Route},
    run::lease::Leased,
    state::{EngineState, notices::What},
};
use flight::{FlightJoin, SharedResult};
use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};
use tokio::time::Instant;

use futures_util::FutureExt;
use tokio::time::timeout_at;

use domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
    generator::{BackendNote, Before, Evidence, Lasting, Outcome, OutcomeKind, ParameterSet, Query, Question, Trust},
};
use flight::FlightGuard;
use telemetry::trace::{self, Span, SpanKind};

/// A run ends this long before its first caller's deadline, so that the reason still arrives. The backend's deadline is as long
/// before the run's end, because the backend's own error names the source that was slow.
const MARGIN: Duration = Duration::from_millis(100);

pub(crate) use crate::state::Finished;

/// Why a run starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A caller waits for it.
    Now,
    /// A caller came, and got a stale answer already.
    Behind,
    /// The gateway itself wants the answer. A caller last did at this time.
    Since(Timestamp),
    /// The same, after an event.
    Event(Timestamp),
    /// The same, because a caller is expected to ask in a moment.
    Prefetch(Timestamp),
}

impl Wanted {
    /// When a caller last wanted the answer, if the gateway itself does now.
    pub(crate) const fn queried_at(self) -> Option<Timestamp> {
        match self {
            Self::Since(then) | Self::Event(then) | Self::Prefetch(then) => Some(then),
            Self::Now | Self::Behind => None,
        }
    }
}

/// A run, and all that it needs.
pub(crate) struct Run {
    pub resolved: Arc<ResolvedQuery>,
    pub wanted: Wanted,
    /// The keys and roots of the route when the run began.
    pub trust: Trust,
    pub guard: FlightGuard<(Key, MadeUnder), Question, Finished>,
}

/// The result of a run, in the form that Argo CD gets.
#[derive(Debug)]
pub(crate) struct RunAnswer {
    pub(crate) sets: Vec<ParameterSet>,
    pub(crate) encoded: Encoded,
    pub(crate) evidence: Vec<Evidence>,
    pub(crate) lasting: Option<Lasting>,
    pub(crate) note: Option<BackendNote>,
    /// The elements that it is made of.
    pub(crate) elements: Option<Arc<Elements>>,
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The backend's answer.
    pub(crate) result: Result<RunAnswer, Failure>,
    /// When it began.
    pub(crate) began: Timestamp,
    /// How long it took.
    pub(crate) took: Duration,
    /// The run's number.
    pub(crate) number: u64,
}

impl Run {
    /// Runs the question in the trace of the caller that wants it.
    pub(crate) async fn start(self, known: Arc<EngineState>, clock: Arc<dyn Clock>) -> Finished {
        let span = self.span();
        let finished = span.instrument(Box::pin(self.finish(&known, &clock))).await;
        if finished.is_ok() && matches!(self.wanted, Wanted::Behind | Wanted::Since(_)) {
            known.notices.send(self.resolved.key, &self.resolved.question, || What::Renewed);
        }
        span.note(|record| match &finished {
            Ok(entry) => record.set("appset_gateway.parameter_sets", entry.encoded.sets()),
            Err(failure) => record.fail(failure.as_str()),
        });
        finished
    }

    /// Takes the lease of the question, calls the backend, and commits the changes.
    async fn finish(&self, known: &Arc<EngineState>, clock: &Arc<dyn Clock>) -> Finished {
        let deadline = self.resolved.query.deadline;
        let until = deadline.checked_sub(MARGIN).unwrap_or(deadline);
        let lease = match self.lease(known, &**clock, until).await? {
            Leased::Ours(lease) => lease,
            Leased::Finished(finished) => return finished,
        };
        let ended = self.run(known, lease.number, clock).await;
        let finished = self.commit(known, &**clock, &ended, &lease, until).await;
        drop(lease);
        self.let_follow(known, &finished);
        finished
    }

    /// Asks the backend. `number` is the number of this run.
    pub(crate) async fn run(&self, known: &Arc<EngineState>, number: u64, clock: &Arc<dyn Clock>) -> Ended {
        let began = clock.now();
        let started = StdInstant::now();
        let fetched = match &self.resolved.route.parts {
            Some(parts) => Box::pin(self.gather(parts, known, clock)).await,
            None => self.fetch(self.before(known)).await,
        };
        let result = fetched.and_then(|found| self.check_trust(found));
        let took = started.elapsed();
        if let (Ok(found), Some(shape)) = (&result, &self.resolved.route.shape) {
            shape.warn_of_equal_names(&self.resolved.route.name, &found.sets);
        }
        let outcome = match &result {
            Ok(found) if found.sets.is_empty() => OutcomeKind::Absent,
            Ok(_) => OutcomeKind::Present,
            Err(_) => OutcomeKind::Unknown,
        };
        self.resolved.route.metrics.ran(outcome, took);
        if let Some(span) = trace::current() {
            span.note(|record| record.set("appset_gateway.outcome", outcome.as_str()));
        }
        Ended { result, began, took, number }
    }

    /// `found`, if it was verified by the keys that the run began with, and by no others.
    fn check_trust(&self, found: RunAnswer) -> Result<RunAnswer, Failure> {
        if self.resolved.route.trust() == self.trust {
            return Ok(found);
        }
        let why =
            "the keys or roots of the signers changed while the answer was made; the next call starts another run";
        Err(Failure::Backend(BackendError::unavailable(why)))
    }

    /// The route's revision, keys and roots that its answer is made under.
    pub(crate) fn made_under(&self) -> MadeUnder {
        MadeUnder { revision: self.resolved.route.revision(), trust: self.trust.fingerprint }
    }

    /// The run's span, in the trace of the caller that started it.
    fn span(&self) -> Span {
        let span = trace::begin(SpanKind::Internal, || format!("run {}", self.resolved.route.name));
        span.note(|record| {
            record.set("appset_gateway.route", self.resolved.route.name.to_string());
            record.set("appset_gateway.backend", self.resolved.route.kind);
            record.set("appset_gateway.run.wanted", if self.wanted == Wanted::Now { "now" } else { "behind" });
        });
        span
    }

    /// The backend's notes on the last answers to this question and of its lineage.
    fn before(&self, known: &EngineState) -> Before {
        if !self.resolved.route.backend.nature().takes_notes {
            return Before::default();
        }
        let note = |key: &Key| known.answers.get(key)?.note.clone();
        let lineage = if self.resolved.lineage() == self.resolved.key { None } else { note(&self.resolved.lineage()) };
        Before { own: note(&self.resolved.key), lineage }
    }

    async fn fetch(&self, before: Before) -> Result<RunAnswer, Failure> {
        fetch_in_time(&self.resolved, before).await
    }
}

/// Calls the backend of `resolved` once. Uses no stored answer, stores nothing, and checks nothing.
pub async fn try_out(resolved: &ResolvedQuery) -> Result<Vec<ParameterSet>, Failure> {
    let found = fetch_in_time(resolved, resolved.query.before.clone()).await;
    found.map(|found| found.sets)
}

pub(crate) async fn fetch_in_time(resolved: &ResolvedQuery, before: Before) -> Result<RunAnswer, Failure> {
    let margin = MARGIN.min(resolved.route.deadline / 10);
    let until = resolved.query.deadline.checked_sub(margin).unwrap_or(resolved.query.deadline);
    let deadline = until.checked_sub(margin).unwrap_or(until);
    let query = Query { deadline, ttl: resolved.route.policy.ttl(), before, ..resolved.query.clone() };
    let run = AssertUnwindSafe(fetch(&resolved.route, &query)).catch_unwind();
    match timeout_at(until, run).await {
        Ok(Ok(result)) => result.map_err(Failure::Backend),
        Ok(Err(_)) => Err(Failure::Crashed),
        Err(_) => Err(Failure::Deadline),
    }
}

async fn fetch(route: &Route, query: &Query) -> Result<RunAnswer, BackendError> {
    let part = query.part.as_ref().map(ToString::to_string);
    let name = part.as_deref().unwrap_or(&route.name);
    let fetched = source::fetch_watched(&*route.backend, name, route.kind, query);
    let Outcome { sets, evidence, lasting, note } = fetched.await?;
    let sets = match &route.shape {
        Some(shape) => shape.apply(sets, query).await?,
        None => sets,
    };
    let encoded = Encoded::encode(&sets)
        .map_err(|error| BackendError::invalid_output(format!("the answer cannot be written as JSON: {error}")))?;
    Ok(RunAnswer { sets, encoded, evidence, lasting, note, elements: None })
}

/// Joins the run that answers `resolved`, or starts it.
pub(crate) fn join(
    known: &Arc<EngineState>,
    clock: &Arc<dyn Clock>,
    resolved: &Arc<ResolvedQuery>,
    wanted: Wanted,
) -> FlightJoin<Finished> {
    let route = &*resolved.route;
    // Only in memory: an answer from disk is never fresh, and the table of runs is locked here.
    let second_lookup = || {
        let (entry, now) = (known.answers.memory().get(&resolved.key)?, clock.now());
        let state = route.state(entry.made_under, entry.stored_at, entry.life, now);
        let is_good = matches!(state, Freshness::Fresh { .. }) && !known.is_outshone(resolved, &entry, now);
        if is_good { Some(Ok(entry)) } else { None }
    };
    let trust = route.trust();
    let made_under = MadeUnder { revision: route.revision(), trust: trust.fingerprint };
    known.flights.join(
        (resolved.key, made_under),
        second_lookup,
        || resolved.question.clone(),
        |guard| {
            let run = Run { resolved: Arc::clone(resolved), wanted, trust, guard };
            run.start(Arc::clone(known), Arc::clone(clock))
        },
    )
}

/// Waits for a run, at most until `deadline`.
pub(crate) async fn wait(result: SharedResult<Finished>, deadline: Instant) -> Finished {
    match timeout_at(deadline, result).await {
        Ok(finished) => finished.unwrap_or(Err(Failure::Crashed)),
        Err(_) => Err(Failure::Deadline),
    }
}
