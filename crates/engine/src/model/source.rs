//! The source behind the model's routes. It answers and waits as the case demands, and logs all
//! its runs. Two runs of one question must not overlap, unless the first was cut off (invariant I5).

use std::{future::pending, panic::resume_unwind, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::{sync::oneshot, time::Instant};

use crate::model::rules::{ModelQuery, Wall};
use domain::{
    clock::{Clock, Timestamp},
    error::{BackendError, ErrorKind},
    generator::{Outcome, ParameterSet, Query},
};
use lang::scope::ValueType;
use source::{Backend, Nature};

/// The source's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Says {
    /// This many parameter sets with consecutive names, and for how many seconds they are fresh, if the source sets it.
    List { first: u8, count: u8, lasting: Option<u64> },
    /// Proof that there is nothing.
    Nothing,
    /// Two equal parameter sets.
    Duplicates,
    /// No answer, but an error.
    Unknown(SourceFault),
    /// No answer, but a panic.
    Crash,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceFault {
    Unavailable,
    Timeout,
    Throttled,
    /// It asks not to be called for this many seconds.
    ThrottledFor(u64),
    Denied,
    InvalidInput,
    InvalidOutput,
}

impl SourceFault {
    pub(super) const fn kind(self) -> ErrorKind {
        match self {
            Self::Unavailable => ErrorKind::Unavailable,
            Self::Timeout => ErrorKind::Timeout,
            Self::Throttled => ErrorKind::Throttled { retry_after: None },
            Self::ThrottledFor(seconds) => ErrorKind::Throttled { retry_after: Some(Duration::from_secs(seconds)) },
            Self::Denied => ErrorKind::Denied,
            Self::InvalidInput => ErrorKind::InvalidInput,
            Self::InvalidOutput => ErrorKind::InvalidOutput,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// The source answered.
    Said,
    /// It was dropped, because no caller waited any more.
    Dropped,
}

/// One run.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub query: ModelQuery,
    pub says: Says,
    /// The value in each parameter set.
    pub version: u8,
    pub began: Instant,
    /// The same by the gateway's clock, which may be put back.
    pub(crate) began_at: Timestamp,
    pub ended: Option<(Timestamp, RunEnd)>,
    generation: usize,
}

impl Ran {
    /// The names of the parameter sets, if there is an answer.
    pub(super) fn names(&self) -> Option<Vec<u8>> {
        match self.says {
            Says::List { first, count, .. } => Some((first..first + count).collect()),
            Says::Nothing => Some(Vec::new()),
            Says::Duplicates => Some(vec![0, 0]),
            Says::Unknown(_) | Says::Crash => None,
        }
    }

    /// The parameter sets, if there is an answer.
    pub(super) fn sets(&self) -> Option<Vec<Value>> {
        let ModelQuery { branch, commit, .. } = self.query;
        let (of, version) = (format!("{branch}/{commit}"), self.version.to_string());
        let set = |name: u8| json!({"name": format!("n{name}"), "of": of, "version": version});
        Some(self.names()?.into_iter().map(set).collect())
    }
}

/// The source.
#[derive(Debug, Default)]
pub(super) struct ModelSource(Mutex<Freshness>);

#[derive(Debug)]
struct Freshness {
    clock: Arc<Wall>,
    says: Says,
    version: u8,
    is_slow: bool,
    log: Vec<Ran>,
    /// The waiting runs, in the order in which they began.
    gates: Vec<(usize, oneshot::Sender<()>)>,
    /// The newest run that each invalidation has cut off.
    cuts: Vec<(Vec<ModelQuery>, usize)>,
    overlap: Option<String>,
}

impl Default for Freshness {
    fn default() -> Self {
        Self {
            clock: Arc::default(),
            says: Says::List { first: 0, count: 6, lasting: None },
            version: 0,
            is_slow: false,
            log: Vec::new(),
            gates: Vec::new(),
            cuts: Vec::new(),
            overlap: None,
        }
    }
}

impl ModelSource {
    /// Forgets everything for the next case.
    pub(super) fn reset(&self, clock: &Arc<Wall>) {
        *self.lock() = Freshness { clock: Arc::clone(clock), ..Freshness::default() };
    }

    pub(super) fn say(&self, says: Says, version: u8) {
        let mut state = self.lock();
        (state.says, state.version) = (says, version);
    }

    /// Whether the runs that begin from now on wait.
    pub(super) fn slow(&self, is_slow: bool) {
        self.lock().is_slow = is_slow;
    }

    /// The waiting runs.
    pub(super) fn waiting(&self) -> Vec<usize> {
        self.lock().gates.iter().map(|(run, _)| *run).collect()
    }

    /// Ends a waiting run.
    pub(super) fn open(&self, run: usize) {
        let mut state = self.lock();
        if let Some(index) = state.gates.iter().position(|(waiting, _)| *waiting == run) {
            let _ = state.gates.remove(index).1.send(());
        }
    }

    /// The runs under way were cut off. Another run of their questions may begin now.
    pub(super) fn cut(&self, query: Vec<ModelQuery>) {
        let mut state = self.lock();
        let runs = state.log.len();
        state.cuts.push((query, runs));
    }

    /// The runs under way ended with their process.
    pub(super) fn lose(&self, all: Vec<ModelQuery>) {
        self.lock().gates.clear();
        self.cut(all);
    }

    /// The first run that `is_meant` selects.
    pub(super) fn find(&self, is_meant: impl Fn(&Ran) -> bool) -> Option<Ran> {
        self.lock().log.iter().find(|ran| is_meant(ran)).cloned()
    }

    pub(super) fn run(&self, run: usize) -> Ran {
        self.lock().log[run].clone()
    }

    /// How many runs have begun.
    pub(super) fn runs(&self) -> usize {
        self.lock().log.len()
    }

    /// Two overlapping runs of one question, if there were any.
    pub(super) fn overlap(&self) -> Option<String> {
        self.lock().overlap.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Freshness> {
        self.0.lock()
    }

    fn begin(&self, query: &Query) -> (UnderWay<'_>, Ran, Option<oneshot::Receiver<()>>) {
        let query = ModelQuery::of(&query.parameters);
        let mut state = self.lock();
        let generation = state.cuts.iter().filter(|(cut, _)| cut.contains(&query)).count();
        let is_same = |ran: &&Ran| ran.query == query && ran.generation == generation && ran.ended.is_none();
        if let Some(other) = state.log.iter().find(is_same) {
            state.overlap = Some(format!("{query:?} runs already: {other:?}"));
        }
        let (says, version) = (state.says.clone(), state.version);
        let (began, began_at) = (Instant::now(), state.clock.now());
        let ran = Ran { query, says, version, began, began_at, ended: None, generation };
        let run = state.log.len();
        state.log.push(ran.clone());
        let gate = state.is_slow.then(|| {
            let (open, gate) = oneshot::channel();
            state.gates.push((run, open));
            gate
        });
        (UnderWay { source: self, run, ended: RunEnd::Dropped }, ran, gate)
    }
}

/// A run under way. Its end is logged, however it ends.
struct UnderWay<'a> {
    source: &'a ModelSource,
    run: usize,
    ended: RunEnd,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.source.lock();
        let now = state.clock.now();
        state.gates.retain(|(run, _)| *run != self.run);
        // A run of an earlier case does not count.
        if let Some(ran) = state.log.get_mut(self.run) {
            ran.ended = Some((now, self.ended));
        }
    }
}

#[async_trait]
impl Backend for ModelSource {
    fn nature(&self) -> &Nature {
        static NATURE: Nature =
            Nature { reads_application_set: false, takes_notes: false, gets_old: true, item: ValueType::Anything };
        &NATURE
    }

    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let (mut under_way, ran, gate) = self.begin(query);
        if let Some(gate) = gate
            && gate.await.is_err()
        {
            pending::<()>().await;
        }
        under_way.ended = RunEnd::Said;
        let sets = ran.sets().unwrap_or_default();
        let sets = sets.iter().map(|set| ParameterSet(set.as_object().unwrap().clone())).collect();
        match ran.says {
            Says::List { lasting, .. } => {
                Ok(Outcome::of_list(sets, "the model", "[]").lasting(lasting.map(Duration::from_secs)))
            }
            Says::Nothing | Says::Duplicates => Ok(Outcome::of_list(sets, "the model", "[]")),
            Says::Unknown(fault) => Err(BackendError::new(fault.kind(), "as meant by this test")),
            // A panic without output on stderr.
            Says::Crash => resume_unwind(Box::new("as meant by this test")),
        }
    }
}
