//! The problems of routes, for operators and metrics: the questions whose last run failed, and the fallback that callers get. It reads
//! memory only, changes nothing, and counts as no use of an answer.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    answer::{Engine, live::live_under},
    cache::{Entry, Freshness, Key},
    failure::Failure,
    route::{ResolvedQuery, Route, RouteTable},
    run::elements::is_forgotten,
};
use domain::{
    clock::Timestamp,
    generator::{Part, Question},
};

/// A failure longer ago proves nothing about now: no caller came since.
pub const RECENT: Duration = Duration::from_hours(1);

/// A question whose last run failed within the last hour. Held answers are not among these.
#[derive(Debug)]
pub struct FailingQuestion {
    /// Its key.
    pub key: Key,
    /// The key of the whole answer that the question is about.
    pub whole: Key,
    /// The question.
    pub question: Question,
    /// Why the last run failed.
    pub failure: Failure,
    /// When the last run failed.
    pub failed_at: Timestamp,
    /// When the answer was stored that callers get meanwhile. `None` if they get an error.
    pub fallback: Option<Timestamp>,
}

impl Engine {
    /// The questions to `routes` whose last run failed within the last hour, the most recent failure first.
    #[must_use]
    pub fn failing(&self, routes: &RouteTable) -> Vec<FailingQuestion> {
        self.failing_parts(routes, |part| part.is_none())
    }

    /// The same for the elements of answers. One that left the list is none any more.
    #[must_use]
    pub fn failing_elements(&self, routes: &RouteTable) -> Vec<FailingQuestion> {
        let mut failing = self.failing_parts(routes, |part| part.is_some_and(|part| part.element().is_some()));
        if failing.is_empty() {
            return failing;
        }
        let entries: HashMap<Key, Arc<Entry>> = self.answers().memory().iter().collect();
        failing.retain(|failing| {
            let elements = entries.get(&failing.whole).and_then(|entry| entry.elements.as_ref());
            let id = failing.question.part.as_ref().and_then(Part::element).map(|element| &*element.id);
            // Without an answer, all of them are needed.
            elements.zip(id).is_none_or(|(elements, id)| elements.has(id))
        });
        failing
    }

    /// The questions about the parts that are `meant`, whose last run failed within the last hour.
    fn failing_parts(&self, routes: &RouteTable, meant: impl Fn(Option<&Part>) -> bool) -> Vec<FailingQuestion> {
        let now = self.clock.now();
        let backoffs = self.known.failing.backoffs().filter(|(_, backoff)| {
            let is_held = matches!(backoff.failure.failure, Failure::Held(_));
            let is_meant = meant(backoff.failure.question.part.as_ref()) && !is_held;
            is_meant && now.since(backoff.since).is_some_and(|passed| passed < RECENT)
        });
        let failed: Vec<_> = backoffs
            .filter_map(|(key, backoff)| {
                let resolved = live_under(routes, &backoff.failure.question, &key)?;
                Some((resolved, backoff))
            })
            .collect();
        let replaced: Vec<_> = failed
            .iter()
            .map(|(resolved, backoff)| (resolved, backoff.failure.failure.is_invalid_question()))
            .collect();
        let fallbacks = self.fallbacks(&replaced, now);
        let mut failing: Vec<FailingQuestion> = failed
            .into_iter()
            .map(|(resolved, backoff)| FailingQuestion {
                fallback: fallbacks.get(&resolved.key).map(|entry| entry.stored_at),
                key: resolved.key,
                whole: resolved.whole_key(),
                failed_at: backoff.since,
                failure: backoff.failure.failure,
                question: resolved.question,
            })
            .collect();
        failing.sort_unstable_by_key(|failing| (std::cmp::Reverse(failing.failed_at), *failing.key.as_bytes()));
        failing
    }

    /// The answers that may be served in place of new ones to `resolved`, by key. A question's own answer comes before its
    /// lineage's. An invalid question belongs to no lineage. What an element had before it left the list is over.
    fn fallbacks(&self, resolved: &[(&ResolvedQuery, bool)], now: Timestamp) -> HashMap<Key, Arc<Entry>> {
        let keys = |(resolved, is_invalid): &(&ResolvedQuery, bool)| {
            [resolved.key, if *is_invalid { resolved.key } else { resolved.lineage() }]
        };
        let of_whole =
            |(resolved, _): &(&ResolvedQuery, bool)| resolved.query.part.is_some().then(|| resolved.whole_key());
        let wanted: HashSet<Key> = resolved.iter().flat_map(keys).chain(resolved.iter().filter_map(of_whole)).collect();
        // Without contact, a replica answers nothing.
        if wanted.is_empty() || !self.may_run() {
            return HashMap::new();
        }
        // Not `get`, which counts as a use of the answer.
        let entries: HashMap<Key, _> = self.answers().memory().iter().filter(|(key, _)| wanted.contains(key)).collect();
        let usable = |each: &(&ResolvedQuery, bool)| {
            let resolved = each.0;
            let usable = keys(each).into_iter().find_map(|key| {
                let entry = entries.get(&key)?;
                let of = (entry.made_under, entry.stored_at, entry.life);
                let state = self.known.state(&resolved.route, &key, of, now);
                (state != Freshness::Expired).then_some(entry)
            })?;
            let last = of_whole(each).and_then(|whole| entries.get(&whole));
            let is_over = |id: &str| is_forgotten(usable, id, last.map(|last| &**last));
            let is_over = resolved.query.element().is_some_and(|element| is_over(&element.id));
            (!is_over).then(|| (resolved.key, Arc::clone(usable)))
        };
        resolved.iter().filter_map(usable).collect()
    }

    /// When the oldest answer was stored that is the fallback of a failing source, by route.
    pub(crate) fn oldest_fallbacks(&self, routes: &RouteTable) -> HashMap<Arc<str>, Timestamp> {
        let mut oldest = HashMap::<Arc<str>, Timestamp>::new();
        let all = self.failing(routes).into_iter().chain(self.failing_elements(routes));
        for FailingQuestion { question, fallback, .. } in all {
            let Some(at) = fallback else { continue };
            oldest.entry(question.route).and_modify(|oldest| *oldest = at.min(*oldest)).or_insert(at);
        }
        oldest
    }

    /// The requesters of each of `routes` within the last day, by the route's name, as far as is known.
    #[must_use]
    pub fn application_sets(&self, routes: &RouteTable) -> HashMap<Arc<str>, BTreeSet<Arc<str>>> {
        let now = self.clock.now();
        let requesters = |route: &Arc<Route>| {
            let names = self.requesters.of_route(route.id(), now);
            (Arc::clone(&route.name), names.into_iter().collect())
        };
        let mut all: HashMap<Arc<str>, BTreeSet<Arc<str>>> = routes.iter().map(requesters).collect();
        // Where the answer depends on the ApplicationSet, the question has its name, even if the caller did not come since the start.
        let mut note = |route: &Arc<str>, own: Option<&Arc<str>>| {
            let own = own.filter(|name| !name.is_empty());
            if let (Some(name), Some(of_route)) = (own, all.get_mut(route)) {
                let is_known = of_route.iter().any(|known| known.rsplit('/').next() == Some(&**name));
                if !is_known {
                    of_route.insert(Arc::clone(name));
                }
            }
        };
        for (_, entry) in self.answers().memory().iter() {
            note(entry.question.route(), entry.question.application_set());
        }
        for (_, failed) in self.known.failing.all() {
            note(&failed.question.route, failed.question.application_set.as_ref());
        }
        all
    }
}
