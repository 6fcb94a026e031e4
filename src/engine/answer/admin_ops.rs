//! Operations for operators: list the stored answers, invalidate them, decide on held ones.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{Engine, Failure, Unknown, askers::named, notices::What, served::ServedNow, state};
use crate::{
    clients::store::StoreError,
    domain::generator::{Question, Selector},
    engine::{
        cache::{Disk, Entry, Freshness, Key, Listed},
        guard::{Decision, Held, identity::label, usual_key},
        route::{ResolvedQuery, Route, RouteTable},
    },
};

/// How many ApplicationSets are listed with a question.
const MAX_LISTED_ASKERS: usize = 5;
/// How many sets that a held answer leaves are named.
const MAX_STAYING: usize = 100;

/// A recent failure, and how long the question still rests.
type Failed = (state::Failed, Duration);

/// All that is known about a question.
#[derive(Debug)]
pub(crate) struct Overview {
    /// Its key.
    pub(crate) key: Key,
    /// The key of its lineage.
    pub(crate) lineage: Key,
    /// The question.
    pub(crate) question: Question,
    /// The stored answer.
    pub(crate) answer: Option<Listed>,
    /// The answer's state, by its name for operators.
    pub(crate) state: &'static str,
    /// The time since the answer was stored; `None` if the clock was put back.
    pub(crate) age: Option<Duration>,
    /// For how long the answer is fresh.
    pub(crate) fresh_for: Option<Duration>,
    /// Why the last run failed, and how long until the backend is asked again.
    pub(crate) failing: Option<(Failure, Duration)>,
    /// The held answer.
    pub(crate) held: Option<Held>,
    /// The ApplicationSets that asked recently, the last one first.
    pub(crate) asked_by: Vec<Arc<str>>,
}

/// The operator of an action, and the request, for the log.
#[derive(Debug)]
pub(crate) struct Operator {
    /// The caller's name.
    pub(crate) caller: String,
    /// The request's id.
    pub(crate) request_id: String,
    /// Why, in the operator's words.
    pub(crate) reason: Option<String>,
}

/// The effect of an invalidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Invalidated {
    /// Answers whose backend is asked before they are served again.
    pub(crate) answers: usize,
    /// Runs that were cut off: later callers do not get their answers.
    pub(crate) runs: usize,
}

impl Engine {
    /// Stores answers on `disk` too, from now on, and restores the held answers on it.
    pub(crate) fn keep_on(&self, disk: Disk, routes: &RouteTable) {
        for (lineage, held) in disk.held::<Held>() {
            // No route answers this question any more.
            if live(routes, &held.question).is_some_and(|asked| asked.key == held.key && asked.lineage() == lineage) {
                self.known.held.restore(lineage, held);
            } else {
                disk.hold(lineage, None::<&()>);
            }
        }
        if let Some(shared) = &self.known.shared {
            shared.found_on(&disk);
        }
        self.restore_askers(&disk);
        self.known.answers.keep_on(disk);
    }

    /// The size of the cache in entries and bytes, and the number of runs under way, for metrics.
    pub fn observe(&self) {
        let as_gauge = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.metrics.cache_entries.set(as_gauge(self.answers().memory().len()));
        self.metrics.cache_bytes.set(as_gauge(self.answers().memory().size()));
        self.metrics.flights.set(as_gauge(self.flights.len() as u64));
        if let Some(shared) = &self.known.shared {
            let contact = shared.contact();
            let metrics = &self.metrics.store;
            metrics.set_in_contact(contact.is_in_contact);
            metrics.replicas.set(as_gauge(contact.replicas as u64));
            metrics.recovering.set(i64::from(contact.is_recovering));
            metrics.lossy.set(i64::from(contact.has_lost_records));
        }
    }

    /// How many runs are under way.
    pub(crate) fn runs(&self) -> usize {
        self.flights.len()
    }

    /// Sets the metrics of each of `routes`: its held answers and its parameter sets.
    pub(crate) fn observe_routes(&self, routes: &RouteTable) {
        let now = self.clock.now();
        let mut held = HashMap::<Arc<str>, usize>::new();
        for route in self.known.held.routes(now) {
            *held.entry(route).or_default() += 1;
        }
        let (served, stand_ins) = (self.served(routes), self.oldest_stand_ins(routes));
        let as_gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for route in routes.iter() {
            let gauges = &route.metrics.now;
            gauges.held.set(as_gauge(held.get(&route.name).copied().unwrap_or_default()));
            gauges.parameter_sets.set(as_gauge(served.get(&route.name).map_or(0, |served| served.sets)));
            gauges.ttl.set(i64::try_from(route.policy.ttl().as_secs()).unwrap_or(i64::MAX));
            let age = stand_ins.get(&route.name).and_then(|oldest| now.since(*oldest));
            gauges.stand_in_age.set(i64::try_from(age.unwrap_or_default().as_secs()).unwrap_or(i64::MAX));
        }
        self.known.erase_forgotten();
    }

    /// The last answers that each of `routes` serves.
    #[must_use]
    pub(crate) fn served(&self, routes: &RouteTable) -> HashMap<Arc<str>, ServedNow> {
        self.known.served.count(routes, self.clock.now())
    }

    /// All that is known about the questions to `routes` that `selector` selects, in the order of their keys. Reads the whole
    /// file, if there is one.
    #[must_use]
    pub(crate) fn list(&self, routes: &RouteTable, selector: &Selector) -> Vec<Overview> {
        let now = self.clock.now();
        let mut failing: HashMap<Key, Failed> =
            self.known.failing.resting_all(now).map(|(key, rest, left)| (key, (rest.failure, left))).collect();
        let mut all = Vec::new();
        for (key, answer) in self.answers().list() {
            all.extend(self.overview(routes, key, answer.question.clone(), Some(answer), failing.remove(&key)));
        }
        for (key, failed) in failing {
            all.extend(self.overview(routes, key, failed.0.question.clone(), None, Some(failed)));
        }
        all.retain(|overview| selector.selects(&overview.question));
        all.sort_unstable_by_key(|overview| *overview.key.as_bytes());
        all
    }

    /// `None` for a lineage's record, which is a copy of another key's answer, and for a question that no route answers any more.
    fn overview(
        &self,
        routes: &RouteTable,
        key: Key,
        question: Question,
        answer: Option<Listed>,
        failed: Option<Failed>,
    ) -> Option<Overview> {
        let asked = live(routes, &question).filter(|asked| asked.key == key)?;
        Some(self.overview_from(&asked, question, answer, failed))
    }

    /// All that is known about `asked`, whose stored answer is `entry`.
    pub(super) fn overview_with(&self, asked: &ResolvedQuery, entry: Option<&Entry>) -> Overview {
        let resting = self.known.failing.resting_all(self.clock.now()).find(|(key, ..)| *key == asked.key);
        let failed = resting.map(|(_, rest, left)| (rest.failure, left));
        self.overview_from(asked, asked.question.clone(), entry.map(Listed::remembered), failed)
    }

    fn overview_from(
        &self,
        asked: &ResolvedQuery,
        question: Question,
        answer: Option<Listed>,
        failed: Option<Failed>,
    ) -> Overview {
        let (route, key, lineage) = (&asked.route, asked.key, asked.lineage());
        let now = self.clock.now();
        let state = answer.as_ref().map(|answer| route.state(answer.made_under, answer.stored_at, answer.life, now));
        let state_name = state.map_or(if failed.is_some() { "failing" } else { "none" }, Freshness::as_str);
        let fresh_for = if let Some(Freshness::Fresh { left, .. }) = state { Some(left) } else { None };
        Overview {
            key,
            lineage,
            asked_by: self.asked_by(&question, &key),
            question,
            age: answer.as_ref().and_then(|answer| now.since(answer.stored_at)),
            answer,
            state: state_name,
            fresh_for,
            failing: failed.map(|(failed, left)| (failed.failure, left)),
            held: self.known.held.get(&lineage, now),
        }
    }

    /// The ApplicationSets that recently asked `question`, whose key is `key`: the last one first. If the answer depends on the
    /// ApplicationSet, all have its name, and perhaps a namespace.
    #[must_use]
    pub(crate) fn asked_by(&self, question: &Question, key: &Key) -> Vec<Arc<str>> {
        let askers = self.askers.of(key, self.clock.now());
        named(question, askers.into_iter().take(MAX_LISTED_ASKERS).map(|asker| asker.name).collect())
    }

    /// Makes the backend be asked before an answer that `selector` selects is served again. The answers stay as last good
    /// answers, so an invalidation never lets a loss pass. Waits until the change is on disk.
    pub(crate) fn invalidate(&self, routes: &RouteTable, selector: &Selector, by: &Operator) -> Invalidated {
        let done = self.expire(routes, selector);
        tracing::info!(
            request_id = by.request_id,
            caller = by.caller,
            route = selector.route,
            application_set = selector.application_set,
            answers = done.answers,
            runs = done.runs,
            "invalidated"
        );
        done
    }

    /// Makes an invalidation here.
    pub(crate) fn expire(&self, routes: &RouteTable, selector: &Selector) -> Invalidated {
        let (mut expired, runs) = self.expire_in_memory(routes, selector);
        expired.extend(self.answers().disk().map(|disk| disk.expire(selector.clone())).into_iter().flatten());
        let is_own =
            |(key, question): &(&Key, &Question)| live(routes, question).is_some_and(|asked| asked.key == **key);
        Invalidated { answers: expired.iter().filter(is_own).count(), runs }
    }

    /// The same without the file, which may be large. Returns the expired answers, and how many runs were cut off.
    pub(in crate::engine::answer) fn expire_in_memory(
        &self,
        routes: &RouteTable,
        selector: &Selector,
    ) -> (HashMap<Key, Question>, usize) {
        // This comes first, so that no run that begins now uses what a backend remembers. A run for a single question says itself that
        // it must ask.
        let is_meant = |route: &&Arc<Route>| {
            !selector.is_exact && selector.route.as_deref().is_none_or(|name| *name == *route.name)
        };
        for route in routes.iter().filter(is_meant) {
            route.backend.forget();
            route.shadow.iter().for_each(|shadow| shadow.forget());
        }
        let mut expired = HashMap::new();
        let runs = self.flights.supersede(
            |question| selector.selects(question),
            || expired.extend(self.answers().expire_in_memory(selector, self.clock.now())),
        );
        if selector.is_exact {
            // A source that asked not to be called is not called.
            let is_free = |failure: &Failure| failure.retry_after().is_none();
            self.known.failing.end_rests(|failed| selector.selects(&failed.question) && is_free(&failed.failure));
        } else {
            self.known.failing.forget(|failed| selector.selects(&failed.question));
        }
        (expired, runs)
    }

    /// Ends the rest of failed questions of the routes that `is_meant`, because these routes changed.
    pub(crate) fn forget_failures(&self, is_meant: impl Fn(&str) -> bool) {
        self.known.failing.forget(|failed| is_meant(&failed.question.route));
    }

    /// The held answers, by lineage.
    #[must_use]
    pub(crate) fn held(&self) -> Vec<(Key, Held)> {
        self.known.held.list(self.clock.now())
    }

    /// How many answers are held.
    #[must_use]
    pub(crate) fn held_count(&self) -> usize {
        self.known.held.routes(self.clock.now()).len()
    }

    /// The last good answer that is served instead of `held`, if it is still stored.
    #[must_use]
    pub(crate) fn last_good(&self, held: &Held) -> Option<Arc<Entry>> {
        self.answers().get(&held.key).or_else(|| self.answers().get(&held.lineage))
    }

    /// The names of the sets of the last good answer that `held` leaves, at most a hundred. Empty if they are not known by name.
    #[must_use]
    pub(crate) fn staying(&self, held: &Held) -> Vec<String> {
        let gone = &held.breach.gone;
        let last = self.last_good(held).map(|entry| entry.encoded.decode()).unwrap_or_default();
        let keys = Some(held.breach.identity.clone()).filter(|keys| !keys.is_empty());
        let Some(keys) = keys.or_else(|| usual_key(&[&last])) else { return Vec::new() };
        let mut names: Vec<String> = last.iter().map(|set| label(set, &keys)).collect();
        if !gone.iter().all(|name| names.contains(name)) {
            return Vec::new();
        }
        names.retain(|name| !gone.contains(name));
        names.truncate(MAX_STAYING);
        names
    }

    /// Records `decision` on the answer held under `id`. After a release, asks the backend once more. If `fingerprint` is given, the
    /// held answer must still have it.
    ///
    /// # Errors
    /// When nothing is held under `id`, another answer is held there, or the shared store does not answer.
    pub(crate) async fn decide(
        &self,
        routes: &RouteTable,
        id: &str,
        fingerprint: Option<&str>,
        decision: Decision,
        by: &Operator,
    ) -> Result<Decided, NotDecided> {
        let decide = || {
            let now = self.clock.now();
            let held = self.known.held.find(id, now).ok_or(NotDecided::NotHeld)?;
            if fingerprint.is_some_and(|fingerprint| fingerprint != held.fingerprint()) {
                return Err(NotDecided::Changed);
            }
            Ok((held.lineage, held.decided(decision, now)))
        };
        let (lineage, held) = if let Some(shared) = &self.known.shared {
            shared.decide(&self.known, decide).await?
        } else {
            // A run that is under review meanwhile sees the decision before or after its own change.
            let _judging = self.known.judging.lock();
            self.known.erase_forgotten();
            let (lineage, held) = decide()?;
            self.known.hold(lineage, held.clone());
            (lineage, held)
        };
        tracing::info!(
            request_id = by.request_id,
            caller = by.caller,
            id,
            route = &*held.question.route,
            application_set = held.question.application_set.as_deref(),
            ?decision,
            reason = by.reason,
            "an operator decided"
        );
        let mut unknown = None;
        if decision == Decision::Released
            && let Some(asked) = live(routes, &held.question)
        {
            self.known.failing.recovered(&asked.key);
            unknown = self.ask(&Arc::new(asked), self.clock.now()).await.err();
            self.known.notices.send(held.key, &held.question, || What::Released);
        }
        Ok(Decided { was: held, is: self.known.held.get(&lineage, self.clock.now()), unknown })
    }
}

/// Why a decision was not recorded.
#[derive(Debug)]
pub(crate) enum NotDecided {
    /// Nothing is held under this id.
    NotHeld,
    /// Another answer is held there by now.
    Changed,
    /// The shared store does not answer.
    Store(StoreError),
}

impl From<StoreError> for NotDecided {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The effect of a decision.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The answer that was held.
    pub(crate) was: Held,
    /// The answer that is held now.
    pub(crate) is: Option<Held>,
    /// Why there is no new answer.
    pub(crate) unknown: Option<Unknown>,
}

/// `question` asked again on its route; `None` when no route has its name any more.
pub(super) fn live(routes: &RouteTable, question: &Question) -> Option<ResolvedQuery> {
    let route = routes.by_name(&question.route)?;
    Some(ResolvedQuery::again(Arc::clone(route), question))
}
