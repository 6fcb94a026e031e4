//! Prefetches answers. Argo CD asks for the elements of a matrix one after the other, so 200 elements whose source
//! takes 50 ms would take 10 s. When one of them is due, those that came after it in the reconcile before are renewed
//! while it is waited for: [`AT_ONCE`] at most, and one more whenever a caller has taken one. So a caller that stops asking
//! leaves no more than these behind. Questions that did not come in the last two reconciles are left out.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use foldhash::quality::RandomState;
use indexmap::IndexSet;
use parking_lot::Mutex;

use crate::{
    answer::Engine,
    cache::{Entry, Freshness, Key},
    route::{ResolvedQuery, Route},
    run::Wanted,
};
use domain::clock::Timestamp;

/// How many prefetched answers wait for a caller, at most.
const AT_ONCE: usize = 8;
/// The number of questions that are known of one ApplicationSet at one route.
const MAX_PER_GROUP: usize = 5_000;
/// The number of questions that are known in all. If there are more, those of the route with the most of them are forgotten, and learned
/// again by the next calls.
const MAX_KNOWN: usize = 100_000;
/// A prefetched answer that no caller got for this long does not count as waiting any more.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the order of a group is computed again, at most.
const PLANNED_EVERY: Duration = Duration::from_secs(1);

/// The questions of each ApplicationSet to each route.
#[derive(Debug, Default)]
pub(crate) struct Prefetch(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    groups: HashMap<(Arc<str>, Box<str>), Group, RandomState>,
    /// The number of questions of all groups.
    known: usize,
}

/// The questions of one ApplicationSet at one route.
#[derive(Debug, Default)]
struct Group {
    /// In the order in which they came first, which counts where several came in the same millisecond.
    known: IndexSet<Key, RandomState>,
    /// Those that come next, in the order of the reconcile before.
    next: VecDeque<Key>,
    /// Those that were prefetched, and when. A caller is expected to want them in a moment.
    prefetched: Vec<(Key, Timestamp)>,
    planned_at: Option<Timestamp>,
}

impl Prefetch {
    /// Notes that `resolved` came at `now`, and calls `work` with its group.
    fn note<T>(&self, resolved: &ResolvedQuery, now: Timestamp, work: impl FnOnce(&mut Group) -> T) -> T {
        let mut book = self.0.lock();
        if book.known >= MAX_KNOWN {
            book.forget_most();
        }
        let group =
            book.groups.entry((Arc::clone(&resolved.route.name), resolved.query.requester().into())).or_default();
        let before = group.known.len();
        if before < MAX_PER_GROUP {
            group.known.insert(resolved.key);
        }
        group.prefetched.retain(|(key, at)| *key != resolved.key && now.since(*at).is_some_and(|age| age < PATIENCE));
        let result = work(group);
        let after = group.known.len();
        book.known = (book.known + after).saturating_sub(before);
        result
    }
}

impl Book {
    /// Forgets the questions of the route with the most of them.
    fn forget_most(&mut self) {
        let mut counts = HashMap::<Arc<str>, usize, RandomState>::default();
        for ((route, _), group) in &self.groups {
            // A group without questions takes memory too.
            *counts.entry(Arc::clone(route)).or_default() += 1 + group.known.len();
        }
        let Some((most, _)) = counts.into_iter().max_by_key(|(_, count)| *count) else { return };
        self.groups.retain(|(route, _), _| *route != most);
        self.known = self.groups.values().map(|group| group.known.len()).sum();
    }
}

impl Engine {
    /// Renews due answers of the group of `resolved`, which came at `now`. `last` is when it came before, if it is
    /// due now; without that, only earlier plans continue.
    pub(crate) fn prefetch(&self, resolved: &ResolvedQuery, last: Option<Timestamp>, now: Timestamp) {
        if !resolved.route.policy.prefetches() {
            return;
        }
        let started = self.prefetch.note(resolved, now, |group| {
            let is_planned = |at| now.since(at).is_some_and(|age: Duration| age < PLANNED_EVERY);
            if let Some(last) = last
                && !group.planned_at.is_some_and(is_planned)
            {
                group.planned_at = Some(now);
                self.plan(group, &resolved.route, last, now);
            }
            let mut started = Vec::new();
            while group.prefetched.len() < AT_ONCE
                && let Some(key) = group.next.pop_front()
            {
                if key != resolved.key
                    && let Some(entry) = self.due(&resolved.route, &key, now)
                {
                    group.prefetched.push((key, now));
                    started.push((key, entry));
                }
            }
            started
        });
        for (key, entry) in started {
            let query = ResolvedQuery::again(Arc::clone(&resolved.route), &entry.question.open());
            if query.key == key && resolved.route.accepts(&query.query.parameters) {
                // The run continues without a waiting caller.
                drop(self.join(&Arc::new(query), Wanted::Prefetch(entry.last_served.at().unwrap_or(entry.queried_at))));
            }
        }
    }

    /// Puts the due questions of `group` in the order in which they came, beginning after `last`. Forgets those that were
    /// not sent in the two reconciles before `now`, as far as that can be known from the time since `last`.
    fn plan(&self, group: &mut Group, route: &Route, last: Timestamp, now: Timestamp) {
        let since_last = now.since(last).unwrap_or_default();
        let mut order = Vec::new();
        group.known.retain(|key| {
            let Some(entry) = self.known.answers.memory().get(key) else { return false };
            let Some(at) = entry.last_served.at() else { return true };
            let is_recent = last.since(at).is_none_or(|before| before <= since_last + PATIENCE);
            // Otherwise it came in this reconcile already.
            let is_to_come = now.since(at).is_some_and(|age| age > since_last / 2);
            if is_recent && is_to_come && self.due(route, key, now).is_some() {
                order.push((at < last, at, *key));
            }
            is_recent
        });
        order.sort_by_key(|(is_before, at, _)| (*is_before, *at));
        group.next = order.into_iter().map(|(_, _, key)| key).collect();
    }

    /// The answer under `key`, if it is to be renewed: it is not fresh, and not in backoff.
    fn due(&self, route: &Route, key: &Key, now: Timestamp) -> Option<Arc<Entry>> {
        let entry = self.known.answers.memory().get(key)?;
        let state = route.state(entry.made_under, entry.stored_at, entry.life, now);
        let is_due = !matches!(state, Freshness::Fresh { .. }) && self.known.failing.backoff(key, now).is_none();
        is_due.then_some(entry)
    }
}
