//! The sources behind the routes: they return the truth, or nothing, or for a moment something else.

mod elements;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::sleep;

pub use self::elements::{Affected, Share};
use self::elements::{ElementState, PullsBackend};
use crate::{
    history::History,
    seed::Seed,
    truth::{Set, Truth, digest},
};
use domain::{
    error::{BackendError, ErrorKind},
    generator::{Outcome, ParameterSet, Parameters, Query},
};
use lang::scope::ValueType;
use source::{Backend, Nature};

/// What all of them are.
static NATURE: Nature =
    Nature { reads_application_set: false, takes_notes: false, gets_old: true, item: ValueType::Anything };

/// The behaviour of a source that does not return the truth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// It is away.
    Unavailable,
    /// It does not answer in time.
    Hangs,
    /// It takes many seconds.
    Slow,
    /// It wants no calls for a minute.
    Throttles,
    /// It refuses the credential.
    Denies,
    /// Its answer is not a list.
    Garbles,
    /// It loses all.
    LosesAll,
    /// It loses most of its items.
    LosesMost,
    /// It loses something else each time.
    Wavers,
    /// It loses the same each third time, as behind a proxy with a bad server, and tells the truth in between.
    Flaps,
}

impl Trouble {
    /// Whether its answer is wrong.
    pub const fn is_lie(self) -> bool {
        matches!(self, Self::LosesAll | Self::LosesMost | Self::Wavers | Self::Flaps)
    }
}

/// All sources.
#[derive(Debug)]
pub struct Sources {
    seed: Seed,
    history: Arc<History>,
    /// The truth.
    pub truth: Arc<Mutex<Truth>>,
    state: Mutex<BTreeMap<Set, State>>,
    elements: Mutex<ElementState>,
}

#[derive(Debug, Default)]
struct State {
    trouble: Option<Trouble>,
    /// How many items there were when the trouble began. Items that come meanwhile do not make a wrong answer better.
    then: usize,
    calls: u64,
}

impl Sources {
    /// Sources of `truth`.
    pub fn new(seed: Seed, history: &Arc<History>, truth: &Arc<Mutex<Truth>>) -> Arc<Self> {
        let state = Set::ALL.map(|set| (set, State::default())).into();
        let (state, elements) = (Mutex::new(state), Mutex::default());
        Arc::new(Self { seed, history: Arc::clone(history), truth: Arc::clone(truth), state, elements })
    }

    /// The backend of the route of `set`.
    pub fn backend(self: &Arc<Self>, set: Set) -> Arc<dyn Backend> {
        let source = SourceOf { all: Arc::clone(self), set };
        if set == Set::Pulls { Arc::new(PullsBackend::new(source)) } else { Arc::new(source) }
    }

    /// Gives the source of `set` this trouble, or none.
    pub fn set_trouble(&self, set: Set, trouble: Option<Trouble>) {
        let then = self.true_sets(set, &Parameters::default()).len();
        let mut state = self.state.lock();
        let state = state.entry(set).or_default();
        (state.trouble, state.then) = (trouble, then);
    }

    /// How often the source of `set` was called.
    pub fn calls(&self, set: Set) -> u64 {
        self.state.lock().get(&set).map_or(0, |state| state.calls)
    }

    /// The true items of the source of `set` for a question with these parameters.
    fn true_sets(&self, set: Set, parameters: &Parameters) -> Vec<ParameterSet> {
        let truth = self.truth.lock();
        let made = |value: serde_json::Value| ParameterSet(value.as_object().cloned().unwrap_or_default());
        if set == Set::Pulls {
            let item = |name: &String, commit: &str| made(json!({"branch": name, "commit": commit}));
            return truth.open().filter_map(|(name, branch)| Some(item(name, &branch.head()?.id))).collect();
        }
        if set != Set::Previews {
            return truth.items(set).into_iter().map(|name| made(json!({"name": name, "of": set.name()}))).collect();
        }
        let text = |name: &str| parameters.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let (name, commit) = (text("branch"), text("commit"));
        // While CI builds a commit, or after it failed, the last build is used.
        let built = truth.branch(&name).and_then(|branch| branch.last_passed(&commit, self.history.now()));
        let image = built.map(|built| made(json!({"name": name, "digest": digest(built)})));
        image.into_iter().collect()
    }

    fn lie(trouble: Trouble, mut sets: Vec<ParameterSet>, then: usize, call: u64) -> Vec<ParameterSet> {
        let kept = match trouble {
            Trouble::LosesAll => 0,
            // Three wrong ones in a row would be confirmed. These do not come, also if some answers are lost.
            Trouble::Flaps if !call.is_multiple_of(3) => sets.len(),
            // It loses more than the guard's limit of 30 %, also of a list to which something came that nobody has seen yet.
            _ => sets.len().min(then) * 4 / 10,
        };
        if trouble == Trouble::Wavers && !sets.is_empty() {
            // Not the same for many calls in a row, also if some of them are lost.
            let by = usize::try_from(call).unwrap_or_default() % sets.len();
            sets.rotate_left(by);
        }
        sets.truncate(kept);
        sets
    }
}

impl Sources {
    /// The reply of a source in `trouble` to `query`, with the true sets or those of a lie.
    async fn reply(
        &self,
        query: &Query,
        trouble: Option<Trouble>,
        mut dice: Rng,
        truth: impl Fn() -> Vec<ParameterSet> + Send + Sync,
        lie: impl Fn(Trouble, Vec<ParameterSet>) -> Vec<ParameterSet> + Send + Sync,
    ) -> Result<Outcome, BackendError> {
        let latency = if trouble == Some(Trouble::Slow) { dice.u64(3000..24_000) } else { dice.u64(3..400) };
        // Its answer is of the moment at which the request came, or of that at which it answers.
        let early = dice.bool().then(&truth);
        sleep(Duration::from_millis(latency)).await;
        let failed = |kind| Err(BackendError::new(kind, "as the simulation wants it"));
        match trouble {
            Some(Trouble::Unavailable) => failed(ErrorKind::Unavailable),
            Some(Trouble::Hangs) => {
                tokio::time::sleep_until(query.deadline).await;
                failed(ErrorKind::Timeout)
            }
            Some(Trouble::Throttles) => failed(ErrorKind::Throttled { retry_after: Some(Duration::from_mins(1)) }),
            Some(Trouble::Denies) => failed(ErrorKind::Denied),
            Some(Trouble::Garbles) => failed(ErrorKind::InvalidOutput),
            trouble => {
                let sets = early.unwrap_or_else(truth);
                let sets = match trouble.filter(|trouble| trouble.is_lie()) {
                    Some(trouble) => lie(trouble, sets),
                    None => sets,
                };
                Ok(Outcome::of_list(sets, "the source", "[]"))
            }
        }
    }
}

/// The source of one set; of [`Set::Pulls`], of its list.
#[derive(Debug, Clone)]
pub struct SourceOf {
    /// All sources.
    pub all: Arc<Sources>,
    /// The set.
    pub set: Set,
}

#[async_trait]
impl Backend for SourceOf {
    fn nature(&self) -> &Nature {
        &NATURE
    }

    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let (trouble, then, call) = {
            let mut state = self.all.state.lock();
            let state = state.entry(self.set).or_default();
            state.calls += 1;
            (state.trouble, state.then, state.calls)
        };
        let dice = self.all.seed.dice((self.set, call));
        let lie = |trouble, sets| Sources::lie(trouble, sets, then, call);
        self.all.reply(query, trouble, dice, || self.all.true_sets(self.set, &query.parameters), lie).await
    }
}
