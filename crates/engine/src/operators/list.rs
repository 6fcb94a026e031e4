//! Lists the known questions with their facts.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    answer::{Engine, live::live_whole_under},
    cache::{Entry, Freshness, Key, Listed},
    failure::{self, Failure},
    guard::Held,
    route::{ResolvedQuery, RouteTable},
    state::requesters::named,
};
use domain::{
    clock::Timestamp,
    generator::{Question, Selector},
};

/// How many ApplicationSets are listed with a question.
const MAX_REQUESTERS: usize = 5;
/// The failure of the last run, and how long its backoff still lasts.
type Failed = (failure::Failed, Duration);

/// All that is known about a question.
#[derive(Debug)]
pub struct Overview {
    /// Its key.
    pub key: Key,
    /// The key of its lineage.
    pub lineage: Key,
    /// The question.
    pub question: Question,
    /// The stored answer.
    pub answer: Option<Listed>,
    /// The answer's state, by its name for operators.
    pub state: &'static str,
    /// The time since the answer was stored; `None` if the clock was put back.
    pub age: Option<Duration>,
    /// For how long the answer is fresh.
    pub fresh_for: Option<Duration>,
    /// Why the last run failed, and how long until the backend is called again. Zero: with the next call.
    pub failing: Option<(Failure, Duration)>,
    /// The held answer.
    pub held: Option<Held>,
    /// The recent requesters, the last one first.
    pub requesters: Vec<Arc<str>>,
    /// The time of all of this.
    pub now: Timestamp,
}

impl Engine {
    /// All that is known about the questions to `routes` that `selector` selects, in the order of their keys. Reads the whole
    /// file, if there is one.
    #[must_use]
    pub fn list(&self, routes: &RouteTable, selector: &Selector) -> Vec<Overview> {
        let now = self.clock.now();
        let mut failing: HashMap<Key, Failed> = self
            .known
            .failing
            .all_with_backoffs(now)
            .map(|(key, backoff, left)| (key, (backoff.failure, left)))
            .collect();
        let mut all = Vec::new();
        for (key, answer) in self.answers().list() {
            all.extend(self.overview(routes, key, &answer.question.clone(), Some(answer), failing.remove(&key)));
        }
        for (key, failed) in failing {
            all.extend(self.overview(routes, key, &failed.0.question.clone(), None, Some(failed)));
        }
        all.retain(|overview| selector.selects(&overview.question));
        all.sort_unstable_by_key(|overview| *overview.key.as_bytes());
        all
    }

    /// `None` for a lineage's record, which is a copy of another key's answer, for a part of an answer, and for a question that no route
    /// answers any more.
    fn overview(
        &self,
        routes: &RouteTable,
        key: Key,
        question: &Question,
        answer: Option<Listed>,
        failed: Option<Failed>,
    ) -> Option<Overview> {
        let resolved = live_whole_under(routes, question, &key)?;
        Some(self.overview_from(&resolved, resolved.question.clone(), answer, failed))
    }

    /// All that is known about `resolved`, whose stored answer is `entry`.
    pub(crate) fn overview_with(&self, resolved: &ResolvedQuery, entry: Option<&Entry>) -> Overview {
        let backoff = self.known.failing.all_with_backoffs(self.clock.now()).find(|(key, ..)| *key == resolved.key);
        let failed = backoff.map(|(_, backoff, left)| (backoff.failure, left));
        self.overview_from(resolved, resolved.question.clone(), entry.map(Listed::remembered), failed)
    }

    fn overview_from(
        &self,
        resolved: &ResolvedQuery,
        question: Question,
        answer: Option<Listed>,
        failed: Option<Failed>,
    ) -> Overview {
        let (route, key, lineage) = (&resolved.route, resolved.key, resolved.lineage());
        let now = self.clock.now();
        let of = |answer: &Listed| (answer.made_under, answer.stored_at, answer.life);
        let state = answer.as_ref().map(|answer| self.known.state(route, &key, of(answer), now));
        let state_name = state.map_or(if failed.is_some() { "failing" } else { "none" }, Freshness::as_str);
        let fresh_for = if let Some(Freshness::Fresh { left, .. }) = state { Some(left) } else { None };
        Overview {
            key,
            lineage,
            requesters: self.requesters(&question, &key),
            question,
            age: answer.as_ref().and_then(|answer| now.since(answer.stored_at)),
            answer,
            state: state_name,
            fresh_for,
            failing: failed.map(|(failed, left)| (failed.failure, left)),
            held: self.known.held.get(&lineage, now),
            now,
        }
    }

    /// The recent requesters of `question`, whose key is `key`: the last one first. If the answer depends on the
    /// ApplicationSet, all have its name, and perhaps a namespace.
    #[must_use]
    pub fn requesters(&self, question: &Question, key: &Key) -> Vec<Arc<str>> {
        let requesters = self.requesters.of(key, self.clock.now());
        named(question, requesters.into_iter().take(MAX_REQUESTERS).map(|requester| requester.name).collect())
    }
}
