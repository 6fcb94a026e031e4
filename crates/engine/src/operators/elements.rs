//! The elements of an answer, each with its state and the reason for it. It counts as no use of an answer, and changes nothing.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    answer::{Engine, live::live},
    cache::{Backoff, ElementState, Entry, Freshness, Key},
    failure::{Failed, Failure},
    route::{ResolvedQuery, Route, RouteTable},
    run::{Finished, elements::is_forgotten},
};
use domain::{
    clock::Timestamp,
    generator::{Element, Evidence, Part, Question},
};

/// An element of an answer.
#[derive(Debug, Clone)]
pub struct ElementView {
    /// Its key, for people.
    pub label: String,
    /// The key of the question about it.
    pub key: Key,
    /// Its state.
    pub state: ElementState,
    /// How many parameter sets the answer has of it.
    pub sets: usize,
    /// When its backend had these, or had the proof that there are none.
    pub confirmed_at: Option<Timestamp>,
    /// The findings about each item then.
    pub evidence: Vec<Evidence>,
    /// For how long it is fresh.
    pub fresh_for: Option<Duration>,
    /// Why it is unknown.
    pub failing: Option<ElementFailure>,
}

/// Why an element is unknown.
#[derive(Debug, Clone)]
pub struct ElementFailure {
    /// The last failure.
    pub failure: Failure,
    /// When the first failure of the row was.
    pub since: Timestamp,
    /// How long until its backend is called again. Zero: with the next call.
    pub left: Duration,
}

/// The stored answers and failures, read at once.
pub(crate) struct Stored<'a> {
    engine: &'a Engine,
    memory: HashMap<Key, Arc<Entry>>,
    pub(super) failing: HashMap<Key, Backoff<Failed>>,
}

impl Stored<'_> {
    /// The answer under `key`, in memory or on disk. Unlike `Answers::get`, this counts as no use of the answer.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let on_disk = || self.engine.answers().disk()?.get(key).ok().flatten().map(Arc::new);
        self.memory.get(key).cloned().or_else(on_disk)
    }

    /// What the element that `resolved` is about had last, if it may still be served at `now`. `last` is the last accepted answer.
    fn last_known(
        &self,
        resolved: &ResolvedQuery,
        last: Option<&Entry>,
        now: Timestamp,
    ) -> Option<(Arc<Entry>, Freshness)> {
        let id = resolved.query.element().map(|element| &*element.id).unwrap_or_default();
        let is_over = |entry: &Entry, state| !matches!(state, Freshness::Fresh { .. }) && is_forgotten(entry, id, last);
        self.usable(resolved, now).filter(|(entry, state)| !is_over(entry, *state))
    }

    /// The last accepted answer to `whole`, if it may be served at `now`.
    pub(crate) fn last_answer(&self, whole: &ResolvedQuery, now: Timestamp) -> Option<Arc<Entry>> {
        self.engine.known.baseline(whole).ok()?;
        let keys = [whole.lineage(), whole.key];
        keys.into_iter().find_map(|key| self.usable_under(&whole.route, key, now)).map(|(entry, _)| entry)
    }

    /// The answer to `resolved`, or else of its lineage, if it may be served at `now`.
    fn usable(&self, resolved: &ResolvedQuery, now: Timestamp) -> Option<(Arc<Entry>, Freshness)> {
        let keys = [resolved.key, resolved.lineage()];
        keys.into_iter().find_map(|key| self.usable_under(&resolved.route, key, now))
    }

    fn usable_under(&self, route: &Route, key: Key, now: Timestamp) -> Option<(Arc<Entry>, Freshness)> {
        let entry = self.get(&key)?;
        let state = self.engine.known.state(route, &key, (entry.made_under, entry.stored_at, entry.life), now);
        (state != Freshness::Expired).then_some((entry, state))
    }

    /// The element that `resolved` is about, of which its backend says `found` now; else as it is stored. `last` is the last accepted answer.
    pub(crate) fn view(
        &self,
        resolved: &ResolvedQuery,
        found: Option<&Finished>,
        last: Option<&Entry>,
        now: Timestamp,
    ) -> ElementView {
        let backoff = self.failing.get(&resolved.key);
        let failing = |failure: &Failure| ElementFailure {
            failure: failure.clone(),
            since: backoff.map_or(now, Backoff::began),
            left: backoff.and_then(|backoff| backoff.left(now)).unwrap_or_default(),
        };
        let failing = match found {
            Some(found) => found.as_ref().err().map(failing),
            None => backoff.map(|backoff| failing(&backoff.failure.failure)),
        };
        let (entry, freshness) = match found {
            Some(Ok(entry)) => (Some(Arc::clone(entry)), None),
            _ => self.last_known(resolved, last, now).map_or((None, None), |(entry, state)| (Some(entry), Some(state))),
        };
        let sets = entry.as_ref().map_or(0, |entry| entry.encoded.sets());
        // An answer to another item of the element is what it had last.
        let is_own = entry.as_ref().is_some_and(|entry| entry.question.open().part == resolved.question.part);
        let state = match (&failing, &entry) {
            (_, None) => ElementState::Unknown,
            (Some(_), Some(_)) => ElementState::LastKnown,
            (None, Some(_)) if !is_own => ElementState::LastKnown,
            (None, Some(_)) if sets == 0 => ElementState::Absent,
            (None, Some(_)) => ElementState::Present,
        };
        ElementView {
            label: resolved.query.element().map(Element::label).unwrap_or_default(),
            key: resolved.key,
            state,
            sets,
            confirmed_at: entry.as_ref().map(|entry| entry.stored_at),
            evidence: entry.map(|entry| entry.evidence.clone()).unwrap_or_default(),
            fresh_for: match freshness {
                Some(Freshness::Fresh { left, .. }) if state != ElementState::LastKnown => Some(left),
                _ => None,
            },
            failing,
        }
    }
}

impl Engine {
    /// The elements of the answer to `resolved`, in the order of its list, as far as they are stored. `None` if its answer is not made of
    /// elements, or no list is stored.
    #[must_use]
    pub fn elements(&self, resolved: &ResolvedQuery) -> Option<Vec<ElementView>> {
        let (parts, each) = (resolved.route.parts.as_ref()?, resolved.route.backend.each()?);
        let (stored, now) = (self.stored_now(), self.clock.now());
        let list = resolved.of_part(&parts.list, Part::List, None);
        let list = [list.key, list.lineage()].iter().find_map(|key| stored.get(key))?;
        let elements = each.elements(list.encoded.decode()).ok()?.into_iter();
        let accepted = stored.last_answer(resolved, now);
        let element = |element| resolved.of_part(&parts.element, Part::Element(element), None);
        Some(elements.map(|each| stored.view(&element(each), None, accepted.as_deref(), now)).collect())
    }

    /// The same for `question`, which one of `routes` answers.
    #[must_use]
    pub fn elements_of(&self, routes: &RouteTable, question: &Question) -> Option<Vec<ElementView>> {
        self.elements(&live(routes, question)?)
    }

    /// The stored answers and failures. It reads all in memory, once for all that is looked up.
    pub(crate) fn stored_now(&self) -> Stored<'_> {
        Stored {
            engine: self,
            memory: self.answers().memory().iter().collect(),
            failing: self.known.failing.backoffs().collect(),
        }
    }
}
