//! The source of elements: it answers for each pull request of the list, and may be in trouble about some of them only.

use std::{collections::BTreeMap, hash::BuildHasher as _, sync::Arc};

use async_trait::async_trait;
use foldhash::quality::FixedState;
use serde_json::json;

use super::{NATURE, SourceOf, Sources, Trouble};
use crate::truth::{Set, digest};
use domain::{
    error::{BackendError, ErrorKind},
    generator::{Outcome, ParameterSet, Query},
};
use source::{Backend, Each, MaxUnknown, Nature};

/// How many elements a trouble is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Share {
    /// One that there is.
    One,
    /// About a third, also of those that come.
    Some,
    /// All.
    All,
}

/// The elements that a trouble is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Affected {
    /// That of one branch.
    Only(String),
    /// About a third of all.
    Third,
    /// All.
    All,
}

impl Affected {
    fn has(&self, branch: &str) -> bool {
        match self {
            Self::Only(name) => name == branch,
            Self::Third => number(branch).is_multiple_of(3),
            Self::All => true,
        }
    }
}

/// A number of the branch that does not change.
fn number(branch: &str) -> u64 {
    FixedState::default().hash_one(branch) >> 8
}

#[derive(Debug, Default)]
pub(super) struct ElementState {
    trouble: Option<(Affected, Trouble)>,
    /// How often each element was asked for with each commit: questions that are asked at once come in any order.
    calls: BTreeMap<(String, String), u64>,
}

impl Sources {
    /// Gives the source of elements this trouble about some of them, or none.
    pub fn set_elements(&self, trouble: Option<(Affected, Trouble)>) {
        self.elements.lock().trouble = trouble;
    }

    /// How often the source of elements was called.
    pub fn calls_of_elements(&self) -> u64 {
        self.elements.lock().calls.values().sum()
    }
}

/// Whether the wrong answer of a call about `branch` is that there is nothing.
fn is_lost(trouble: Trouble, branch: &str, call: u64) -> bool {
    match trouble {
        // Each third time, and not the same elements each time.
        Trouble::Wavers => (call + number(branch)).is_multiple_of(3),
        Trouble::Flaps => call.is_multiple_of(3),
        _ => true,
    }
}

/// The backend of the route with elements.
#[derive(Debug)]
pub(super) struct PullsBackend(Each);

impl PullsBackend {
    /// One whose list is of `source`.
    pub(super) fn new(source: SourceOf) -> Self {
        let element = Arc::new(ElementSource(Arc::clone(&source.all)));
        Self(Each {
            list: Arc::new(source),
            element,
            kinds: ["simulated", "simulated"],
            key: vec!["branch".to_owned()],
            max_unknown: MaxUnknown::HALF,
            has_item_in_sets: true,
        })
    }
}

#[async_trait]
impl Backend for PullsBackend {
    fn nature(&self) -> &Nature {
        &NATURE
    }

    fn each(&self) -> Option<&Each> {
        Some(&self.0)
    }

    async fn fetch(&self, _: &Query) -> Result<Outcome, BackendError> {
        Err(BackendError::new(ErrorKind::InvalidOutput, "the engine makes the whole answer of its parts"))
    }
}

/// The source of elements.
#[derive(Debug)]
struct ElementSource(Arc<Sources>);

#[async_trait]
impl Backend for ElementSource {
    fn nature(&self) -> &Nature {
        &NATURE
    }

    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let item = query.item().cloned().unwrap_or_default();
        let text = |field: &str| item.get(field).and_then(|value| value.as_str()).unwrap_or_default();
        let (branch, commit) = (text("branch"), text("commit"));
        let (trouble, call) = {
            let mut state = self.0.elements.lock();
            let calls = state.calls.entry((branch.to_owned(), commit.to_owned())).or_default();
            *calls += 1;
            let call = *calls;
            let trouble = state.trouble.as_ref().filter(|(affected, _)| affected.has(branch));
            (trouble.map(|(_, trouble)| *trouble), call)
        };
        let dice = self.0.seed.dice((Set::Pulls, branch, commit, call));
        let truth = || {
            let truth = self.0.truth.lock();
            let there = truth.branch(branch).filter(|there| there.element.exists());
            // While CI builds a commit, or after it failed, the last build is used.
            let built = there.and_then(|there| there.last_passed(commit, self.0.history.now()));
            let set = built.map(|built| json!({"name": branch, "digest": digest(built)}));
            set.and_then(|set| set.as_object().cloned()).map(ParameterSet).into_iter().collect()
        };
        let lie = |trouble, sets| if is_lost(trouble, branch, call) { Vec::new() } else { sets };
        self.0.reply(query, trouble, dice, truth, lie).await
    }
}
