//! One run of a backend: ask, shape, review, record. It is a task of its own, so it does not end when its callers leave.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures_util::FutureExt;
use tokio::time::timeout_at;

use super::{Failure, Landed, Wanted, notices::What, state::EngineState};
use crate::{
    cache::{Encoded, Key, MadeUnder},
    route::{ResolvedQuery, Route},
};
use domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
    generator::{BackendNote, Before, Evidence, Lasting, Outcome, OutcomeKind, ParameterSet, Query, Question, Trust},
};
use flight::FlightGuard;
use telemetry::trace::{self, Span, SpanKind};

/// A run ends this long before its first caller's deadline, so that the reason still arrives. The backend's deadline is as long
/// before the run's end, because the backend knows best what it was waiting for.
const MARGIN: Duration = Duration::from_millis(100);

/// A run, and all that it needs.
pub(super) struct Run {
    pub asked: Arc<ResolvedQuery>,
    pub wanted: Wanted,
    /// The keys and roots of the route when the run began.
    pub trust: Trust,
    pub guard: FlightGuard<(Key, MadeUnder), Question, Landed>,
}

/// The result of a run, in the form that Argo CD gets.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) sets: Vec<ParameterSet>,
    pub(super) encoded: Encoded,
    pub(super) evidence: Vec<Evidence>,
    pub(super) lasting: Option<Lasting>,
    pub(super) note: Option<BackendNote>,
}

/// A run that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// What the backend answered.
    pub(super) result: Result<Found, Failure>,
    /// When it began.
    pub(super) began: Timestamp,
    /// How long it took.
    pub(super) took: Duration,
    /// The run's number.
    pub(super) number: u64,
}

impl Run {
    pub(crate) async fn fly(self, known: Arc<EngineState>, clock: Arc<dyn Clock>) -> Landed {
        let span = self.span();
        let landed = if let Some(shared) = &known.shared {
            span.instrument(Box::pin(self.fly_shared(&known, shared, &*clock))).await
        } else {
            let ended = span.instrument(self.run(&known, self.guard.number(), &*clock)).await;
            let landed = {
                let _judging = known.judging.lock();
                let changes = self.changes(&known, &ended, clock.now());
                self.apply(&known, changes)
            };
            self.let_follow(&known, &landed);
            landed
        };
        if landed.is_ok() && matches!(self.wanted, Wanted::Behind | Wanted::Since(_)) {
            known.notices.send(self.asked.key, &self.asked.question, || What::Renewed);
        }
        span.note(|record| match &landed {
            Ok(entry) => record.set("appset_gateway.parameter_sets", entry.encoded.sets()),
            Err(failure) => record.fail(failure.as_str()),
        });
        landed
    }

    /// Asks the backend. `number` is the number of this run.
    pub(super) async fn run(&self, known: &EngineState, number: u64, clock: &dyn Clock) -> Ended {
        let began = clock.now();
        let started = StdInstant::now();
        let result = self.resolve(self.before(known)).await.and_then(|found| self.check_trust(found));
        let took = started.elapsed();
        let outcome = match &result {
            Ok(found) if found.sets.is_empty() => OutcomeKind::Absent,
            Ok(_) => OutcomeKind::Present,
            Err(_) => OutcomeKind::Unknown,
        };
        self.asked.route.metrics.ran(outcome, took);
        if let Some(span) = trace::current() {
            span.note(|record| record.set("appset_gateway.outcome", outcome.as_str()));
        }
        Ended { result, began, took, number }
    }

    /// `found`, if it was verified by the keys that the run began with, and by no others.
    fn check_trust(&self, found: Found) -> Result<Found, Failure> {
        if self.asked.route.trust() == self.trust {
            return Ok(found);
        }
        let why = "the keys or roots of the signers changed while the answer was made; the next call asks again";
        Err(Failure::Backend(BackendError::unavailable(why)))
    }

    /// What its answer is made under.
    pub(super) fn made_under(&self) -> MadeUnder {
        MadeUnder { revision: self.asked.route.revision(), trust: self.trust.fingerprint }
    }

    /// The run's span, in the trace of the caller that started it.
    fn span(&self) -> Span {
        let span = trace::begin(SpanKind::Internal, || format!("run {}", self.asked.route.name));
        span.note(|record| {
            record.set("appset_gateway.route", self.asked.route.name.to_string());
            record.set("appset_gateway.backend", self.asked.route.kind);
            record.set("appset_gateway.run.wanted", if self.wanted == Wanted::Now { "now" } else { "behind" });
        });
        span
    }

    /// The backend's notes on the last answers to this question and of its lineage.
    fn before(&self, known: &EngineState) -> Before {
        if !self.asked.route.backend.nature().takes_notes {
            return Before::default();
        }
        let note = |key: &Key| known.answers.get(key)?.note.clone();
        let lineage = if self.asked.lineage() == self.asked.key { None } else { note(&self.asked.lineage()) };
        Before { own: note(&self.asked.key), lineage }
    }

    async fn resolve(&self, before: Before) -> Result<Found, Failure> {
        resolve_in_time(&self.asked, before).await
    }
}

/// Asks the backend of `asked` once. Uses no stored answer, stores nothing, and asks no guard.
pub async fn try_out(asked: &ResolvedQuery) -> Result<Vec<ParameterSet>, Failure> {
    let found = resolve_in_time(asked, asked.query.before.clone()).await;
    found.map(|found| found.sets)
}

pub(super) async fn resolve_in_time(asked: &ResolvedQuery, before: Before) -> Result<Found, Failure> {
    let margin = MARGIN.min(asked.route.deadline / 10);
    let until = asked.query.deadline.checked_sub(margin).unwrap_or(asked.query.deadline);
    let deadline = until.checked_sub(margin).unwrap_or(until);
    let query = Query { deadline, ttl: asked.route.policy.ttl(), before, ..asked.query.clone() };
    let run = AssertUnwindSafe(resolve(&asked.route, &query)).catch_unwind();
    match timeout_at(until, run).await {
        Ok(Ok(result)) => result.map_err(Failure::Backend),
        Ok(Err(_)) => Err(Failure::Crashed),
        Err(_) => Err(Failure::Deadline),
    }
}

async fn resolve(route: &Route, query: &Query) -> Result<Found, BackendError> {
    let asked = source::fetch_watched(&*route.backend, &route.name, route.kind, query);
    let Outcome { sets, evidence, lasting, note } = asked.await?;
    let sets = route.shape.apply(sets, query).await?;
    let encoded = Encoded::encode(&sets)
        .map_err(|error| BackendError::invalid_output(format!("the answer cannot be written as JSON: {error}")))?;
    Ok(Found { sets, encoded, evidence, lasting, note })
}
