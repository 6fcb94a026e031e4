//! All that the engine has stored about questions.

use std::sync::{Arc, atomic::AtomicBool};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Failure, baselines::Baselines, notices::Notices, served::Served, shared::Shared};
use crate::{
    domain::{clock::Timestamp, generator::Question},
    engine::{
        cache::{Answers, Entry, Failing, Freshness, Key, Unreadable},
        guard::{Baseline, Guard, Held, Ledger},
        route::{ResolvedQuery, Route},
    },
};

/// A question that failed, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Failed {
    pub(crate) question: Question,
    pub(crate) failure: Failure,
}

/// All that the engine has stored about questions.
pub(super) struct EngineState {
    pub(crate) answers: Answers,
    pub(crate) failing: Failing<Failed>,
    pub(crate) held: Ledger,
    pub(crate) baselines: Baselines,
    pub(crate) served: Served,
    pub(crate) notices: Notices,
    /// The store that this replica shares with others. What is stored here is a copy of it.
    pub(crate) shared: Option<Arc<Shared>>,
    /// Locked from reading the baseline until the new answer is recorded. Otherwise two runs of one lineage that end together
    /// would both be compared with the same earlier answer.
    pub(super) judging: Mutex<()>,
    /// Whether the candidates of shadows are asked.
    pub(super) asks_candidates: AtomicBool,
}

impl EngineState {
    pub(crate) fn new(answers: Answers, shared: Option<Arc<Shared>>) -> Self {
        Self {
            answers,
            failing: Failing::default(),
            held: Ledger::default(),
            baselines: Baselines::default(),
            served: Served::default(),
            notices: Notices::default(),
            shared,
            judging: Mutex::default(),
            asks_candidates: AtomicBool::default(),
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

    /// The baseline of `lineage`, as [`Baselines::get`] reads it.
    ///
    /// # Errors
    /// When there may have been an answer, and its record is lost, here or in the shared store.
    pub(crate) fn baseline(&self, lineage: &Key, key: &Key, guard: &Guard) -> Result<Arc<Baseline>, Unreadable> {
        let baseline = self.baselines.get(lineage, key, &self.answers, guard)?;
        match &self.shared {
            Some(shared) if shared.is_lost(lineage, key, || self.baselines.has(lineage, &self.answers)) => {
                Err(Unreadable)
            }
            _ => Ok(baseline),
        }
    }

    /// Removes from the disk the answer held in `lineage`.
    pub(crate) fn erase(&self, lineage: Key) {
        if let Some(disk) = self.answers.disk() {
            disk.hold(lineage, None::<&()>);
        }
    }

    /// The answer stored under `key`, unless it has expired.
    pub(crate) fn usable(&self, route: &Route, key: &Key, now: Timestamp) -> Option<(Arc<Entry>, Freshness)> {
        let entry = self.answers.get(key)?;
        let state = route.state(entry.made_under, entry.stored_at, entry.life, now);
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
