//! A route's shadow: a second backend, the candidate, that is sent the query that the route's own backend has just answered. The two lists
//! are compared. Nothing here touches an answer, the cache, the guard or a caller's time: the work is a task of its own, at most
//! [`AT_ONCE`] candidates of a route are called at once, and the others are skipped.

mod comparison;
mod differences;
mod noise;
mod pairs;
#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

use crate::{
    cache::{Encoded, Key},
    guard::Identity,
    shadow::{
        differences::{Differences, Report, Sighting},
        noise::Noise,
    },
    shape::Shape,
};
use domain::{
    bounded_cache::Recent,
    clock::Clock,
    error::BackendError,
    generator::{Before, ParameterSet, Query},
    secret::Secrets,
    units::{HumanDuration, Percent},
};
use source::{Backend, Reached, with_permits_of};
use telemetry::metrics::RouteShadowMetrics;

/// How many candidates of one route are called at once.
const AT_ONCE: usize = 2;
/// For how many questions of one route the runs are counted.
const MAX_QUESTIONS: usize = 20_000;
/// The candidate's deadline is this long before its end: then the candidate's own error names the source that was slow.
const MARGIN: Duration = Duration::from_millis(100);

/// The candidate of a route, and the differences that were found.
pub struct Shadow {
    route: Arc<str>,
    kind: &'static str,
    backend: Arc<dyn Backend>,
    /// The route's own backend, whose secrets may be in its answers.
    primary: Arc<dyn Backend>,
    shape: Shape,
    sample: Percent,
    identity: Identity,
    ignore: BTreeSet<String>,
    timeout: HumanDuration,
    clock: Arc<dyn Clock>,
    permits: Arc<Semaphore>,
    /// The right to learn from a run that is not compared.
    learning: Arc<Semaphore>,
    /// The permits for its large documents.
    documents: Arc<Semaphore>,
    /// How many runs there were of each question.
    runs: Recent<Key, u64>,
    noise: Noise,
    differences: Differences,
    metrics: RouteShadowMetrics,
}

/// The parts of a shadow.
pub struct ShadowParts {
    /// The route's name.
    pub route: Arc<str>,
    /// The candidate's kind.
    pub kind: &'static str,
    /// The candidate.
    pub backend: Arc<dyn Backend>,
    /// The route's own backend.
    pub primary: Arc<dyn Backend>,
    /// The shape of the candidate's answers.
    pub shape: Shape,
    /// After which share of the runs of the route's backend the candidate is called.
    pub sample: Percent,
    /// The keys by which sets of the two answers belong together.
    pub identity: Identity,
    /// Keys that are not compared.
    pub ignore: BTreeSet<String>,
    /// The deadline of the candidate.
    pub timeout: HumanDuration,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The counters.
    pub metrics: RouteShadowMetrics,
}

/// Why the candidate has no answer.
#[derive(Debug, thiserror::Error)]
enum CandidateError {
    /// It failed, or its answer cannot be shaped.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// It panicked.
    #[error("the gateway failed; its log says where")]
    Panicked,
    /// It did not answer within this time.
    #[error("no answer within the shadow's `timeout` of {0}")]
    Timeout(HumanDuration),
}

/// The result of a run of the route's own backend.
pub enum Own {
    /// An answer that the guard accepted.
    Answer(Encoded),
    /// An answer that the guard holds. Callers do not get it, so it is not compared.
    Held,
    /// No answer.
    Failed,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compared {
    /// Both lists are the same.
    Same,
    /// They differ.
    Differs,
    /// The candidate has no answer.
    CandidateError,
    /// The route's own backend has none.
    PrimaryError,
    /// The candidate was not called.
    Skipped,
}

impl Compared {
    /// The name in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::CandidateError => "candidate_error",
            Self::PrimaryError => "primary_error",
            Self::Skipped => "skipped",
        }
    }
}

impl Shadow {
    /// The shadow with these parts, which has found out nothing yet.
    #[must_use]
    pub fn new(parts: ShadowParts) -> Self {
        let ShadowParts { route, kind, backend, primary, shape, sample, identity, ignore, timeout, clock, metrics } =
            parts;
        Self {
            route,
            kind,
            backend,
            primary,
            shape,
            sample,
            identity,
            ignore,
            timeout,
            permits: Arc::new(Semaphore::new(AT_ONCE)),
            learning: Arc::new(Semaphore::new(1)),
            documents: Arc::new(Semaphore::new(1)),
            runs: Recent::new(MAX_QUESTIONS),
            noise: Noise::default(),
            differences: Differences::new(clock.now()),
            clock,
            metrics,
        }
    }

    /// Follows a run of the route's own backend that has ended: `query` is its question, `key` its cache key, and `own` its result.
    /// Returns at once.
    pub fn follow(self: &Arc<Self>, query: Query, key: Key, own: Own) {
        // Each question has its share: they may come in an order that repeats.
        let mut number = 0;
        self.runs.update(key, |runs| {
            number = runs.copied().unwrap_or_default();
            number + 1
        });
        let is_sampled = is_sampled(self.sample, number);
        let answer = match own {
            Own::Answer(answer) => answer,
            Own::Held if is_sampled => return self.count(Compared::Skipped),
            Own::Failed if is_sampled => return self.count(Compared::PrimaryError),
            Own::Held | Own::Failed => return,
        };
        let permit = if is_sampled { self.permit(&query) } else { None };
        // A run that is not compared teaches what is noise, one at a time. The others are compared, and they are few.
        let learns = if permit.is_none() { Arc::clone(&self.learning).try_acquire_owned().ok() } else { None };
        if permit.is_none() && learns.is_none() {
            return;
        }
        let shadow = Arc::clone(self);
        tokio::spawn(async move {
            let _learns = learns;
            shadow.compare(query, key, answer, permit).await;
        });
    }

    /// The findings since the configuration came into use.
    #[must_use]
    pub fn report(&self) -> Report {
        self.differences.report(&self.route, self.kind, self.sample, self.noise.keys())
    }

    /// Tries whether the candidate's sources can be reached.
    pub async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        self.backend.reach(deadline).await
    }

    /// Drops everything that the candidate remembers of earlier questions.
    pub fn forget(&self) {
        self.backend.forget();
    }

    /// The right to ask the candidate now.
    fn permit(&self, query: &Query) -> Option<OwnedSemaphorePermit> {
        // The gateway asks some questions by itself, and then no ApplicationSet does.
        let reads_name = self.backend.nature().reads_application_set || self.shape.reads_application_set();
        let permit = if reads_name && query.application_set.is_empty() {
            None
        } else {
            Arc::clone(&self.permits).try_acquire_owned().ok()
        };
        if permit.is_none() {
            self.count(Compared::Skipped);
        }
        permit
    }

    fn count(&self, compared: Compared) {
        self.metrics.count(compared.as_str());
        self.differences.count(compared);
    }

    /// Learns from `primary`, and compares it with the candidate's answer if there is a permit to ask.
    async fn compare(self: Arc<Self>, query: Query, key: Key, primary: Encoded, permit: Option<OwnedSemaphorePermit>) {
        let (shadow, learned) = (Arc::clone(&self), primary.clone());
        // Large lists take long, and would keep others from a thread that serves.
        let learned = spawn_blocking(move || shadow.noise.learn(key, learned, &shadow.identity)).await;
        let (Some(_permit), Ok(())) = (&permit, learned) else { return };
        let candidate = self.ask(&query).await;
        let shadow = Arc::clone(&self);
        // A failure of this task is the gateway's own, and its log says where.
        let _ = spawn_blocking(move || shadow.compare_sets(&query, key, &primary, candidate)).await;
    }

    /// The candidate's parameter sets, or why there are none.
    async fn ask(&self, query: &Query) -> Result<Vec<ParameterSet>, CandidateError> {
        let timeout = self.timeout.0;
        let until = Instant::now() + timeout;
        let deadline = until.checked_sub(MARGIN.min(timeout / 10)).unwrap_or(until);
        let query = Query { deadline, before: Before::default(), items: None, watch: None, ..query.clone() };
        let work = async {
            let outcome = self.backend.fetch(&query).await?;
            self.shape.apply(outcome.sets, &query).await
        };
        // Large documents of the candidate wait for each other, and not for those of routes.
        let work = with_permits_of(Arc::clone(&self.documents), work);
        match timeout_at(until, AssertUnwindSafe(work).catch_unwind()).await {
            Ok(Ok(result)) => result.map_err(CandidateError::from),
            Ok(Err(_)) => Err(CandidateError::Panicked),
            Err(_) => Err(CandidateError::Timeout(self.timeout)),
        }
    }

    /// Compares the lists, and notes the differences.
    fn compare_sets(
        &self,
        query: &Query,
        key: Key,
        primary: &Encoded,
        candidate: Result<Vec<ParameterSet>, CandidateError>,
    ) {
        let (compared, sighting) = match candidate {
            Ok(candidate) => {
                let known = self.noise.of(&key);
                let compared =
                    comparison::compare(primary.decode(), candidate, &self.identity, &self.ignore, known.as_deref());
                self.differences.subtracted(compared.subtracted);
                let difference = compared.difference;
                if difference.is_empty() {
                    return self.count(Compared::Same);
                }
                tracing::info!(
                    route = %self.route,
                    added = difference.added.len(),
                    removed = difference.removed.len(),
                    changed = difference.changed.len(),
                    "the candidate's answer differs"
                );
                (Compared::Differs, Sighting::Difference(difference))
            }
            Err(error) => (Compared::CandidateError, Sighting::Error(error.to_string())),
        };
        // The difference is listed before it is counted.
        self.differences.note(self.clock.now(), query, sighting, &self.secrets());
        self.count(compared);
    }

    /// The secrets of both backends.
    fn secrets(&self) -> Secrets {
        let mut secrets = self.primary.secrets();
        secrets.extend(self.backend.secrets());
        secrets
    }
}

/// Whether the run with this number, from 0, is one of the share `sample` of all runs.
const fn is_sampled(sample: Percent, number: u64) -> bool {
    let share = sample.0 as u64;
    (number % 100) * share % 100 < share
}

impl std::fmt::Debug for Shadow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shadow").field("route", &self.route).field("kind", &self.kind).finish_non_exhaustive()
    }
}
