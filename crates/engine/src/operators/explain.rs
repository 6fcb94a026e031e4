//! Explains a question: the result of a run now, and the guard's verdict on it. Nothing is stored: no answer, no failure, and no count of the guard.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use crate::{
    answer::{Engine, Unusable},
    cache::{Encoded, Entry, Freshness, Key},
    failure::Failure,
    guard::{Baseline, GuardVerdict, Standing},
    operators::{Overview, elements::ElementView},
    route::ResolvedQuery,
    run::{
        RunAnswer,
        elements::{PartsNow, query_parts},
        fetch_in_time,
    },
};
use domain::{
    clock::Timestamp,
    error::BackendError,
    generator::{Before, Evidence, ParameterSet},
};

/// The result of a run, and the guard's verdict on it.
#[derive(Debug)]
pub struct Explained {
    /// The backend's result, or why it has none.
    pub found: Result<FoundNow, Failure>,
    /// How long it took.
    pub took: Duration,
    /// Why the guard would not let it pass.
    pub refused: Option<Failure>,
    /// The last good answer that would be served in place of it: the question's own, else that of its lineage.
    pub fallback: Option<Arc<Entry>>,
    /// Why a last good answer would not be served, if there is one.
    pub unusable: Option<Unusable>,
    /// The keys that identify the parameter sets.
    pub identity: Vec<String>,
    /// The elements that the answer would be made of, if it is made of elements and its list is known.
    pub elements: Option<Vec<ElementView>>,
}

/// The result of a backend.
#[derive(Debug)]
pub struct FoundNow {
    /// In the form that Argo CD gets.
    pub encoded: Encoded,
    /// The findings about each item.
    pub evidence: Vec<Evidence>,
}

/// The stored answers to a question and of its lineage.
struct Stored {
    own: Option<Arc<Entry>>,
    lineage: Option<Arc<Entry>>,
}

impl Engine {
    /// Calls the backend of `resolved` once, and reports the answer that a caller would get now. Changes nothing here.
    pub async fn explain(&self, resolved: &ResolvedQuery) -> Explained {
        let stored = self.stored(resolved);
        let (began, started) = (self.clock.now(), StdInstant::now());
        let (result, elements) = self.query_now(resolved, &stored).await;
        let took = started.elapsed();
        let now = self.clock.now();
        let (found, refused, identity) = match result {
            Ok(RunAnswer { sets, encoded, evidence, .. }) => {
                let identity = Baseline::of(resolved.route.guard.config(), &sets).keys().to_vec();
                let refused = self.would_hold(resolved, &stored, &sets, began, now);
                let refused = self.of_store(resolved).or(refused);
                (Ok(FoundNow { encoded, evidence }), refused, identity)
            }
            Err(failure) => (Err(failure), None, Vec::new()),
        };
        let is_invalid = found.as_ref().is_err_and(Failure::is_invalid_question);
        let of_lineage = stored.lineage.as_ref().filter(|_| !is_invalid);
        let own = stored.own.iter().map(|entry| (resolved.key, entry));
        let all: Vec<(Key, &Arc<Entry>)> = own.chain(of_lineage.map(|entry| (resolved.lineage(), entry))).collect();
        let unusable = all.first().map(|(key, last)| self.why_unusable(resolved, key, last));
        let usable = |(key, entry): &&(Key, &Arc<Entry>)| {
            let of = (entry.made_under, entry.stored_at, entry.life);
            self.known.state(&resolved.route, key, of, now) != Freshness::Expired
        };
        let answers = self.may_run();
        let fallback = all.iter().find(usable).filter(|_| answers).map(|(_, entry)| Arc::clone(entry));
        let unusable = unusable.filter(|_| fallback.is_none());
        Explained { found, took, refused, fallback, unusable, identity, elements }
    }

    /// Calls the backend of `resolved` once, or that of each of its parts.
    async fn query_now(
        &self,
        resolved: &ResolvedQuery,
        stored: &Stored,
    ) -> (Result<RunAnswer, Failure>, Option<Vec<ElementView>>) {
        let note = |entry: &Option<Arc<Entry>>| entry.as_ref().and_then(|entry| entry.note.clone());
        let Some(parts) = &resolved.route.parts else {
            let before = Before { own: note(&stored.own), lineage: note(&stored.lineage) };
            return (fetch_in_time(resolved, before).await, None);
        };
        let known = self.stored_now();
        let before = |part: &ResolvedQuery| {
            let of = |key: Key| note(&known.get(&key));
            Before { own: of(part.key), lineage: if part.lineage() == part.key { None } else { of(part.lineage()) } }
        };
        let PartsNow { answer, elements } = query_parts((&self.known, &self.clock), resolved, parts, before).await;
        let now = self.clock.now();
        let last = known.last_answer(resolved, now);
        let view = |(element, found): &(Arc<ResolvedQuery>, _)| known.view(element, Some(found), last.as_deref(), now);
        (answer, elements.map(|elements| elements.iter().map(view).collect()))
    }

    /// Why the guard would not let `sets` pass.
    fn would_hold(
        &self,
        resolved: &ResolvedQuery,
        stored: &Stored,
        sets: &[ParameterSet],
        began: Timestamp,
        now: Timestamp,
    ) -> Option<Failure> {
        let (key, lineage, guard) = (resolved.key, resolved.lineage(), &resolved.route.guard);
        let baseline = self.known.baseline(resolved).ok();
        let last = || {
            let last = stored.lineage.clone().or_else(|| stored.own.clone());
            let mut others = resolved.other_keys().flat_map(|other| [other.lineage, other.key]);
            let last = last.or_else(|| others.find_map(|key| self.peek(&key)));
            last.map(|last| last.encoded.decode()).unwrap_or_default()
        };
        let of = Standing {
            question: &resolved.question,
            key,
            lineage,
            queried_at: None,
            is_new: lineage != key && stored.own.is_none(),
            is_current: true,
            began,
            now,
        };
        let before = self.known.held_of(resolved, now);
        match guard.check(of, baseline.as_deref(), last, before.as_ref(), sets) {
            Ok(GuardVerdict::Held(held)) => Some(Failure::Held(held)),
            Ok(GuardVerdict::Passed(_) | GuardVerdict::Cleared(..) | GuardVerdict::Accepted(..)) => None,
            Err(error) => Some(Failure::Backend(BackendError::invalid_output(error.to_string()))),
        }
    }

    /// Why this replica gives no answer of a run: without contact with the shared store it answers nothing.
    fn of_store(&self, resolved: &ResolvedQuery) -> Option<Failure> {
        self.known.peers.refusal(&resolved.route).map(|refusal| Failure::Store(refusal.into_reason()))
    }

    /// The stored answers to `resolved`, read without counting as a use.
    fn stored(&self, resolved: &ResolvedQuery) -> Stored {
        let (key, lineage) = (resolved.key, resolved.lineage());
        let own = self.peek(&key);
        let of_lineage = if lineage == key { None } else { self.peek(&lineage) };
        Stored { own, lineage: of_lineage }
    }

    /// The answer under `key`, in memory or on disk. It counts as no use, and stays where it is.
    pub(crate) fn peek(&self, key: &Key) -> Option<Arc<Entry>> {
        let in_memory = self.answers().memory().iter().find(|(other, _)| other == key).map(|(_, entry)| entry);
        in_memory.or_else(|| self.answers().disk()?.get(key).ok().flatten().map(Arc::new))
    }

    /// All that is known about `resolved`, in memory or on disk.
    #[must_use]
    pub fn overview_of(&self, resolved: &ResolvedQuery) -> Overview {
        self.overview_with(resolved, self.peek(&resolved.key).as_deref())
    }

    /// The answer to the question with the key of `overview`, in the form that Argo CD gets.
    #[must_use]
    pub fn encoded(&self, overview: &Overview) -> Option<Encoded> {
        self.peek(&overview.key).map(|entry| entry.encoded.clone())
    }
}
