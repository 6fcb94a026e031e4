//! The baselines that a change of the configuration leaves behind. A question whose callers are answered under another key from now on has no last good
//! answer there, so the guard lets any first answer pass.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    answer::{
        Engine,
        live::{live, live_under},
    },
    cache::{Entry, Key, Listed, PackedQuestion},
    route::{ResolvedQuery, Route, RouteTable},
};
use domain::{
    clock::Timestamp,
    generator::{Parameters, Query, Question},
};

/// Questions of longer ago than this are no longer missed.
const MISSED_FOR: Duration = Duration::from_hours(24);

/// Remembered questions that a route does not take over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftBehind {
    /// The route that they are remembered of.
    pub from: Arc<str>,
    /// The route that answers them from now on.
    pub to: Arc<str>,
    /// How many there are.
    pub questions: usize,
    /// Whether it is one route, and its `formerly` has changed.
    pub(crate) is_forgotten_name: bool,
}

impl LeftBehind {
    /// Logs it as a warning: from now on, the guard has nothing to compare the answers with.
    pub fn warn(&self) {
        let Self { from, to, questions, is_forgotten_name } = self;
        let (from, to) = (&**from, &**to);
        if from != to {
            let help = format!("if it was renamed, write `formerly: {from}` on the route `{to}`");
            tracing::warn!(
                route = to,
                gone = from,
                questions,
                help,
                "a route is gone, and another one takes its calls: its guard has no baseline, and accepts the first answers"
            );
        } else if *is_forgotten_name {
            let help = "put the former names back into `formerly`; they are needed as long as the route exists";
            tracing::warn!(
                route = to,
                questions,
                help,
                "the former names of a route have changed: its guard has no baseline, and accepts the first answers"
            );
        } else {
            let help =
                "a default or a type in `input` has changed; the answers before this change are not compared with";
            tracing::warn!(
                route = to,
                questions,
                help,
                "questions of a route have other parameters now: its guard has no baseline, and accepts the first answers"
            );
        }
    }
}

impl Engine {
    /// The records of the routes `before` that the routes `after` do not take over. Reads the whole file, if there is one.
    #[must_use]
    pub fn left_behind(&self, before: &RouteTable, after: &RouteTable) -> Vec<LeftBehind> {
        let mut found = Counts::default();
        for (key, listed) in self.answers().list().into_iter().filter(|each| self.is_missed(each)) {
            let Some(resolved) = live_under(before, &listed.question, &key) else { continue };
            let parameters = resolved.route.without_defaults(&listed.question.parameters);
            let query = self.call(&listed.question, &key, parameters);
            let is_by_match = before.is_matched(&resolved.route.name, &query);
            let renamed = |route: &&Arc<Route>| {
                route.revision() == resolved.route.revision() && before.by_name(&route.name).is_none()
            };
            let next = if is_by_match {
                after.probably_matched(&query)
            } else {
                after.by_name(&resolved.route.name).or_else(|| after.iter().find(renamed))
            };
            if let Some(next) = next.and_then(|route| resolved_for(route, &query)) {
                found.add(&resolved.route, &resolved, &next);
            }
        }
        found.into_list()
    }

    /// The records from before the start that `routes` do not take over. The earlier routes are known by name only.
    #[must_use]
    pub(crate) fn left_behind_before_the_start(&self, routes: &RouteTable, all: &[(Key, Listed)]) -> Vec<LeftBehind> {
        let mut found = Counts::default();
        for (key, listed) in all.iter().filter(|each| self.is_missed(each)) {
            let question = &listed.question;
            if routes.by_any_name(&question.route).is_some() || live_under(routes, question, key).is_some() {
                continue;
            }
            let query = self.call(question, key, (*question.parameters).clone());
            let renamed = |route: &&Arc<Route>| route.revision() == listed.made_under.revision;
            let next = routes.probably_matched(&query).or_else(|| routes.iter().find(renamed));
            let Some(next) = next.and_then(|route| resolved_for(route, &query)) else { continue };
            if next.key != *key && next.lineage() != *key {
                found.count(Arc::clone(&question.route), &next.route, false);
            }
        }
        found.into_list()
    }

    /// Gives the records in memory the names that routes have now.
    pub fn rename(&self, routes: &RouteTable) {
        let renamed = |question: &Question, key: &Key| {
            if routes.by_name(&question.route).is_some() {
                return None;
            }
            let of_lineage = || live(routes, question).filter(|resolved| resolved.lineage() == *key);
            live_under(routes, question, key).or_else(of_lineage).map(|resolved| resolved.question)
        };
        // No run stores an answer meanwhile.
        self.known.flights.supersede(
            |_| false,
            || {
                for (key, entry) in self.answers().memory().iter() {
                    if let Some(question) = renamed(&entry.question.open(), &key) {
                        let question = PackedQuestion::from(&question);
                        self.answers().memory().insert(key, Arc::new(Entry { question, ..(*entry).clone() }));
                    }
                }
            },
        );
        let _deciding = self.known.deciding.lock();
        for (lineage, held) in self.known.held.all() {
            if let Some(question) = renamed(&held.question, &held.key) {
                let key = held.key;
                self.known.hold(lineage, held.requeried_as(question, key, lineage));
            }
        }
    }

    /// Whether callers came of late, and there is something to lose.
    fn is_missed(&self, (_, listed): &(Key, Listed)) -> bool {
        let now: Timestamp = self.clock.now();
        listed.question.part.is_none()
            && listed.sets > 0
            && now.since(listed.queried_at).is_none_or(|idle| idle < MISSED_FOR)
    }

    /// A call with `parameters` of a requester of `question`, whose key is `key`.
    fn call(&self, question: &Question, key: &Key, parameters: Parameters) -> Query {
        let requester = self.requesters(question, key).into_iter().next();
        let requester = requester.or_else(|| question.application_set.clone()).unwrap_or_default();
        let (namespace, name) = match requester.split_once('/') {
            Some((namespace, name)) => (Some(namespace.into()), name.into()),
            None => (None, requester),
        };
        Query { namespace, ..Query::new(name, Arc::new(parameters), Instant::now()) }
    }
}

/// `query` as `route` gets it; `None` if the route refuses it.
fn resolved_for(route: &Arc<Route>, query: &Query) -> Option<ResolvedQuery> {
    let parameters = route.probably_admitted((*query.parameters).clone())?;
    Some(ResolvedQuery::new(Arc::clone(route), Query { parameters: Arc::new(parameters), ..query.clone() }))
}

/// How many questions are left behind, by the earlier and the present routes.
#[derive(Default)]
struct Counts(BTreeMap<(Arc<str>, Arc<str>, bool), usize>);

impl Counts {
    /// Counts `resolved`, a question to `from`, unless it is remembered of `next` too as the question that its callers send now.
    fn add(&mut self, from: &Route, resolved: &ResolvedQuery, next: &ResolvedQuery) {
        if next.is_remembered_under(&resolved.key) || next.is_remembered_under(&resolved.lineage()) {
            return;
        }
        let is_forgotten_name = from.name == next.route.name && from.memory_name() != next.route.memory_name();
        self.count(Arc::clone(&from.name), &next.route, is_forgotten_name);
    }

    fn count(&mut self, from: Arc<str>, to: &Route, is_forgotten_name: bool) {
        *self.0.entry((from, Arc::clone(&to.name), is_forgotten_name)).or_default() += 1;
    }

    fn into_list(self) -> Vec<LeftBehind> {
        let all = self.0.into_iter();
        all.map(|((from, to, is_forgotten_name), questions)| LeftBehind { from, to, questions, is_forgotten_name })
            .collect()
    }
}
