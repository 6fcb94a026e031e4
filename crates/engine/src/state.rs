//! All that the engine has stored about questions.

pub(crate) mod baselines;
mod gathering;
pub mod notices;
pub(crate) mod requesters;
pub mod set_counts;

use std::sync::{Arc, atomic::AtomicBool};

use parking_lot::Mutex;

use crate::{
    cache::{Answers, Entry, Failing, Freshness, Key, Life, MadeUnder, Unreadable},
    failure::{Failed, Failure},
    guard::{Baseline, Held, HeldAnswers},
    replica::peers::Peers,
    route::{OtherKeys, ResolvedQuery, Route},
    state::{
        baselines::{Baselines, last_answer},
        gathering::Gathering,
        notices::Notices,
        set_counts::Served,
    },
};
use domain::{clock::Timestamp, generator::Question};
use flight::Flights;

/// The result of a run: the answer, or why there is none.
pub(crate) type Finished = Result<Arc<Entry>, Failure>;

/// All that the engine has stored about questions.
pub(crate) struct EngineState {
    pub answers: Answers,
    pub failing: Failing<Failed>,
    pub held: HeldAnswers,
    pub baselines: Baselines,
    pub served: Served,
    pub notices: Notices,
    /// The store that this replica shares with others. The records here are a copy of it.
    pub peers: Peers,
    /// Locked from reading the baseline until the new answer is recorded. Otherwise two runs of one lineage that end together
    /// would both be compared with the same earlier answer.
    pub(crate) deciding: Mutex<()>,
    /// By cache key, the route's revision and its keys. After a change of these, no caller waits for an earlier run.
    pub(crate) flights: Flights<(Key, MadeUnder), Question, Finished>,
    /// The tasks that query the elements of answers.
    pub(crate) gathering: Gathering,
    /// Whether the candidates of shadows are called.
    pub(crate) calls_candidates: AtomicBool,
}

impl EngineState {
    pub(crate) fn new(answers: Answers, peers: Peers) -> Self {
        Self {
            answers,
            failing: Failing::default(),
            held: HeldAnswers::default(),
            baselines: Baselines::default(),
            served: Served::default(),
            notices: Notices::default(),
            peers,
            deciding: Mutex::default(),
            flights: Flights::default(),
            gathering: Gathering::default(),
            calls_candidates: AtomicBool::default(),
        }
    }

    /// Removes from the disk the held answers that memory has forgotten.
    pub(crate) fn erase_forgotten(&self) {
        self.held.take_forgotten().into_iter().for_each(|lineage| self.erase(lineage));
    }

    /// Holds `held` in `lineage`, on disk too.
    pub(crate) fn hold(&self, lineage: Key, held: Held) {
        if let Some(disk) = self.answers.disk() {
            disk.hold(lineage, Some(&held));
        }
        self.held.hold(held);
    }

    /// The baseline of the lineage of `resolved`; empty if there never was an answer, also under another name of its route.
    ///
    /// # Errors
    /// When there may have been an answer, and its record is lost, here or in the shared store.
    pub(crate) fn baseline(&self, resolved: &ResolvedQuery) -> Result<Arc<Baseline>, Unreadable> {
        let (key, lineage, guard) = (resolved.key, resolved.lineage(), &resolved.route.guard);
        let read = |lineage: &Key, key: &Key| match self.baselines.get(lineage, key, &self.answers, guard) {
            // The store has all records: a loss of this replica's file concerns none that the store never had.
            Err(Unreadable) if self.peers.never_had(lineage, key) => Ok(None),
            found => found,
        };
        let own = read(&lineage, &key)?;
        // Each other key takes a hash, and is needed only without a baseline under the own one.
        let mut others = own.is_none().then(|| resolved.other_keys()).into_iter().flatten();
        let other = loop {
            let Some(OtherKeys { key, lineage }) = others.next() else { break None };
            if let Some(baseline) = read(&lineage, &key)? {
                break Some(baseline);
            }
        };
        let has_baseline = || other.is_some() || self.baselines.has(&lineage, &self.answers);
        if self.peers.is_lost(&lineage, &key, has_baseline) {
            return Err(Unreadable);
        }
        Ok(own.or(other).unwrap_or_default())
    }

    /// The held answer in the lineage of `resolved`, even under a former name of its route.
    pub(crate) fn held_of(&self, resolved: &ResolvedQuery, now: Timestamp) -> Option<Held> {
        let renamed = || {
            let held = resolved.other_keys().find_map(|other| self.held.get(&other.lineage, now))?;
            Some(held.requeried_as(resolved.question.clone(), resolved.key, resolved.lineage()))
        };
        self.held.get(&resolved.lineage(), now).or_else(renamed)
    }

    /// Removes the held answer in the lineage of `resolved` under other names of its route.
    pub(crate) fn end_holds_under_other_names(&self, resolved: &ResolvedQuery) {
        for other in resolved.other_keys() {
            if self.held.remove(&other.lineage) {
                self.erase(other.lineage);
            }
        }
    }

    /// The last answer of the lineage of `resolved`, also under another name of its route.
    pub(crate) fn last_answer(&self, resolved: &ResolvedQuery) -> Option<Arc<Entry>> {
        let last = |lineage: &Key, key: &Key| last_answer(lineage, key, &self.answers);
        match last(&resolved.lineage(), &resolved.key) {
            Ok(None) => resolved.other_keys().find_map(|other| last(&other.lineage, &other.key).ok().flatten()),
            own => own.ok().flatten(),
        }
    }

    /// Removes from the disk the answer held in `lineage`.
    pub(crate) fn erase(&self, lineage: Key) {
        if let Some(disk) = self.answers.disk() {
            disk.hold(lineage, None::<&()>);
        }
    }

    /// The state of an answer under `key`. With a shared store, one that it does not have, or had before it lost writes, counts as expired.
    pub(crate) fn state(
        &self,
        route: &Route,
        key: &Key,
        (made_under, stored_at, life): (MadeUnder, Timestamp, Life),
        now: Timestamp,
    ) -> Freshness {
        let state = route.state(made_under, stored_at, life, now);
        // A fresh one was brought by a sync or a commit of this epoch.
        let may_serve = matches!(state, Freshness::Fresh { .. }) || self.peers.may_serve(key);
        if may_serve { state } else { Freshness::Expired }
    }

    /// The answer stored under `key`, unless it has expired.
    pub(crate) fn usable(&self, route: &Route, key: &Key, now: Timestamp) -> Option<(Arc<Entry>, Freshness)> {
        let entry = self.answers.get(key)?;
        let state = self.state(route, key, (entry.made_under, entry.stored_at, entry.life), now);
        (state != Freshness::Expired).then_some((entry, state))
    }

    /// Whether `entry`, the stored answer to `resolved`, is empty, and the lineage has a later answer that is not. The older, empty
    /// answer must not delete the Applications that the later one created.
    pub(crate) fn is_outshone(&self, resolved: &ResolvedQuery, entry: &Entry, now: Timestamp) -> bool {
        entry.encoded.sets() == 0
            && resolved.lineage() != resolved.key
            && self
                .usable(&resolved.route, &resolved.lineage(), now)
                .is_some_and(|(last, _)| last.encoded.sets() > 0 && last.stored_at > entry.stored_at)
    }
}
