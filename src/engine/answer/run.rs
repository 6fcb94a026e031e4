//! One run of a backend: ask, shape, review, record. It is a task of its own, so it does not end when its callers leave.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use futures_util::FutureExt;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::timeout_at;

use super::{
    Failure, Landed, Wanted,
    baselines::{Baselines, last_answer},
    served::Served,
};
use crate::{
    backend,
    domain::{
        clock::{Clock, Timestamp},
        error::BackendError,
        generator::{Before, Evidence, Lasting, Outcome, ParameterSet, Query, Question, Verdict},
    },
    engine::{
        cache::{Answers, Encoded, Entry, Failing, Freshness, Key, Life, PackedQuestion, Revision, Wish},
        guard::{Baseline, Decision, Held, Ledger, Review, Standing},
        route::{ResolvedQuery, Route},
    },
    flight::FlightGuard,
    telemetry::trace::{self, Span, SpanKind},
};

/// A run ends this long before its first caller's deadline, so that the reason still arrives. The backend's deadline is as long
/// before the run's end, because the backend knows best what it was waiting for.
const MARGIN: Duration = Duration::from_millis(100);

/// A question that failed, and how.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub(crate) question: Question,
    pub(crate) failure: Failure,
}

/// All that the engine has stored about questions.
#[derive(Clone)]
pub(super) struct EngineState {
    pub(crate) answers: Answers,
    pub(crate) failing: Failing<Failed>,
    pub(crate) held: Ledger,
    pub(crate) baselines: Baselines,
    pub(crate) served: Served,
    /// Locked from reading the baseline until the new answer is recorded. Otherwise two runs of one lineage that end together
    /// would both be compared with the same earlier answer.
    judging: Arc<Mutex<()>>,
}

impl EngineState {
    pub(crate) fn new(answers: Answers) -> Self {
        Self {
            answers,
            failing: Failing::default(),
            held: Ledger::default(),
            baselines: Baselines::default(),
            served: Served::default(),
            judging: Arc::default(),
        }
    }

    /// Removes from the disk the held answers that memory has forgotten.
    pub(crate) fn erase_forgotten(&self) {
        self.held.take_forgotten().into_iter().for_each(|lineage| self.erase(lineage));
    }

    /// Records `decision` on what is held under `id`. A run that is under review meanwhile sees it before or after its own change.
    pub(crate) fn decide(&self, id: &str, decision: Decision, now: Timestamp) -> Option<(Key, Held)> {
        let _judging = self.judging.lock();
        let decided = self.held.decide(id, decision, now);
        self.erase_forgotten();
        let (lineage, held) = decided?;
        if let Some(disk) = self.answers.disk() {
            disk.hold(lineage, Some(&held));
        }
        Some((lineage, held))
    }

    /// Removes from the disk the answer held in `lineage`.
    fn erase(&self, lineage: Key) {
        if let Some(disk) = self.answers.disk() {
            disk.hold(lineage, None::<&()>);
        }
    }

    /// The answer stored under `key`, unless it has expired.
    pub(crate) fn usable(&self, route: &Route, key: &Key, now: Timestamp) -> Option<(Arc<Entry>, Freshness)> {
        let entry = self.answers.get(key)?;
        let state = route.state(entry.revision, entry.stored_at, entry.life, now);
        (state != Freshness::Expired).then_some((entry, state))
    }

    /// Whether `entry`, the stored answer to `asked`, is empty, and the lineage has a later answer that is not. The older, empty
    /// answer must not delete what the later one created.
    pub(crate) fn is_outshone(&self, asked: &ResolvedQuery, entry: &Entry, now: Timestamp) -> bool {
        entry.encoded.sets() == 0
            && asked.lineage() != asked.key
            && self
                .usable(&asked.route, &asked.lineage(), now)
                .is_some_and(|(last, _)| last.encoded.sets() > 0 && last.stored_at > entry.stored_at)
    }
}

/// A run, and all that it needs.
pub(super) struct Run {
    pub(crate) asked: Arc<ResolvedQuery>,
    pub(crate) wanted: Wanted,
    pub(crate) guard: FlightGuard<(Key, Revision), Question, Landed>,
}

/// The result of a run, in the form that Argo CD gets.
struct Found {
    sets: Vec<ParameterSet>,
    encoded: Encoded,
    evidence: Vec<Evidence>,
    lasting: Option<Lasting>,
    note: Option<Arc<Value>>,
}

impl Run {
    pub(crate) async fn fly(self, known: EngineState, clock: Arc<dyn Clock>) -> Landed {
        let started = StdInstant::now();
        let span = self.span();
        let result = span.instrument(self.resolve(self.before(&known))).await;
        let took = started.elapsed();
        let outcome = match &result {
            Ok(found) if found.sets.is_empty() => Verdict::Absent,
            Ok(_) => Verdict::Present,
            Err(_) => Verdict::Unknown,
        };
        self.asked.route.metrics.ran(outcome, took);
        span.note(|record| record.set("appset_gateway.outcome", outcome.as_str()));
        let now = clock.now();
        let recorded = result.and_then(|found| {
            let _judging = known.judging.lock();
            let review = self.review(&known, &found, now)?;
            self.settle(&known, &review);
            match review {
                Review::Passed(next) | Review::Cleared(_, next) | Review::Believed(_, next) => {
                    Ok(self.record(&known, found, next, took, now))
                }
                Review::Held(held) => Err(Failure::Held(held)),
            }
        });
        match recorded {
            Ok(entry) => {
                span.note(|record| record.set("appset_gateway.parameter_sets", entry.encoded.sets()));
                Ok(entry)
            }
            Err(failure) => {
                span.note(|record| record.fail(failure.as_str()));
                self.asked.route.metrics.failed(failure.as_str());
                self.log_failure(&failure);
                let key = self.asked.key;
                self.guard.land(|is_current| {
                    if is_current {
                        let failed = Failed { question: self.asked.question.clone(), failure: failure.clone() };
                        known.failing.failed(key, failed, rest(&failure, now), now);
                    }
                });
                Err(failure)
            }
        }
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
        if !self.asked.route.backend.takes_notes() {
            return Before::default();
        }
        let note = |key: &Key| known.answers.get(key)?.note.clone();
        let lineage = if self.asked.lineage() == self.asked.key { None } else { note(&self.asked.lineage()) };
        Before { own: note(&self.asked.key), lineage }
    }

    async fn resolve(&self, before: Before) -> Result<Found, Failure> {
        let margin = MARGIN.min(self.asked.route.deadline / 10);
        let until = self.asked.query.deadline.checked_sub(margin).unwrap_or(self.asked.query.deadline);
        let deadline = until.checked_sub(margin).unwrap_or(until);
        let query = Query { deadline, ttl: self.asked.route.policy.ttl(), before, ..self.asked.query.clone() };
        let run = AssertUnwindSafe(resolve(&self.asked.route, &query)).catch_unwind();
        match timeout_at(until, run).await {
            Ok(Ok(result)) => result.map_err(Failure::Backend),
            Ok(Err(_)) => Err(Failure::Crashed),
            Err(_) => Err(Failure::Deadline),
        }
    }

    /// Lets the guard compare `found` with the baseline of its lineage, however old that is.
    fn review(&self, known: &EngineState, found: &Found, now: Timestamp) -> Result<Review, Failure> {
        let (key, lineage, guard) = (self.asked.key, self.asked.lineage(), &self.asked.route.guard);
        let baseline = known.baselines.get(&lineage, &key, &known.answers, guard).ok();
        let last = || {
            let last = last_answer(&lineage, &key, &known.answers).ok().flatten();
            last.map(|last| last.encoded.decode()).unwrap_or_default()
        };
        let of = Standing {
            question: &self.asked.question,
            key,
            lineage,
            asked_at: if let Wanted::Since(then) = self.wanted { Some(then) } else { None },
            is_new: lineage != key && matches!(known.answers.try_get(&key), Ok(None)),
            is_current: self.guard.land(|is_current| is_current),
        };
        let before = known.held.get(&lineage, now);
        known.erase_forgotten();
        let review = guard.review(of, baseline.as_deref(), last, before.as_ref(), &found.sets, now);
        review.map_err(|error| Failure::Backend(BackendError::invalid_output(error)))
    }

    /// Makes the changes of `review` to what is held.
    fn settle(&self, known: &EngineState, review: &Review) {
        let lineage = self.asked.lineage();
        match review {
            Review::Passed(_) => return,
            Review::Cleared(held, _) => self.log_end_of_hold("what was held is not what the source says now", held),
            Review::Believed(held, _) => self.log_end_of_hold("what was held is believed", held),
            Review::Held(held) => {
                // A run that an invalidation cut off decides nothing.
                if self.guard.land(|is_current| is_current) {
                    known.held.settle(&lineage, review);
                    if let Some(disk) = known.answers.disk() {
                        disk.hold(lineage, Some(&**held));
                    }
                }
                return;
            }
        }
        known.held.settle(&lineage, review);
        known.erase(lineage);
    }

    fn record(&self, known: &EngineState, found: Found, next: Baseline, took: Duration, now: Timestamp) -> Arc<Entry> {
        self.log_absence(&found.evidence);
        let asked_at = if let Wanted::Since(then) = self.wanted { then } else { now };
        let mut entry = Entry {
            encoded: found.encoded,
            question: PackedQuestion::from(&self.asked.question),
            revision: self.asked.route.revision(),
            stored_at: now,
            asked_at,
            first_at: known.answers.get(&self.asked.key).map_or(now, |before| before.first_at.min(now)),
            run_number: self.guard.number(),
            life: self.asked.route.policy.life(&self.asked.key, found.lasting, now),
            took,
            evidence: found.evidence,
            note: found.note,
        };
        self.guard.land(|is_current| {
            if !is_current {
                // An invalidation came after this run began, so its answer is never fresh.
                entry.life = Life::For(Duration::ZERO);
            }
            let entry = Arc::new(entry);
            self.asked.route.metrics.now.succeeded(now);
            let is_latest = known.answers.insert(self.asked.key, &entry);
            let is_head = if self.asked.lineage() == self.asked.key {
                is_latest
            } else {
                known.answers.set_lineage_head(self.asked.lineage(), &entry)
            };
            if is_head {
                known.served.note(self.asked.lineage(), &self.asked.route.name, &entry);
                known.baselines.put(self.asked.lineage(), next, &known.answers);
            }
            if is_current {
                known.failing.recovered(&self.asked.key);
            }
            entry
        })
    }

    fn log_end_of_hold(&self, why: &str, held: &Held) {
        tracing::info!(
            route = &*self.asked.route.name, id = %self.asked.lineage(), reason = held.breach.reason, sets = held.sets, agreed = held.agreed, "{why}"
        );
    }

    /// Logs the evidence of an absence, once per run: it explains why an Application is missing.
    fn log_absence(&self, evidence: &[Evidence]) {
        if !evidence.iter().any(|each| each.verdict == Verdict::Absent) {
            return;
        }
        for each in evidence {
            self.log_evidence(each);
        }
    }

    /// Logs why there is no answer. A waiting caller's own log line has the reason already, so only the items are added to it.
    fn log_failure(&self, failure: &Failure) {
        if self.wanted != Wanted::Now {
            tracing::warn!(
                route = &*self.asked.route.name, application_set = self.asked.question.application_set.as_deref(), key = %self.asked.key,
                kind = failure.as_str(), error = %failure, "a run in the background brought no answer"
            );
        }
        for each in failure.evidence() {
            self.log_evidence(each);
        }
    }

    fn log_evidence(&self, evidence: &Evidence) {
        tracing::info!(
            route = &*self.asked.route.name, application_set = self.asked.question.application_set.as_deref(), key = %self.asked.key,
            item = evidence.item, asked = evidence.asked, answered = evidence.answered,
            "{}", evidence.verdict.as_str()
        );
    }
}

/// How long a question rests after `failure`. A held answer is asked about again when the guard's rules say so.
fn rest(failure: &Failure, now: Timestamp) -> Wish {
    if let Some(asked) = failure.retry_after() {
        return Wish::AtLeast(asked);
    }
    let due = if let Failure::Held(held) = failure { held.due_at() } else { None };
    due.map_or(Wish::Usual, |due| Wish::AtMost(due.since(now).unwrap_or_default()))
}

async fn resolve(route: &Route, query: &Query) -> Result<Found, BackendError> {
    let asked = backend::ask(&*route.backend, &route.name, route.kind, query);
    let Outcome { sets, evidence, lasting, note } = asked.await?;
    let sets = route.shape.apply(sets, query).await?;
    let encoded = Encoded::encode(&sets)
        .map_err(|error| BackendError::invalid_output(format!("the answer cannot be written as JSON: {error}")))?;
    Ok(Found { sets, encoded, evidence, lasting, note })
}
