//! What gates said, for as long as it holds: what passed has passed, what failed may be run again, and what is pending
//! is asked each time. Equal questions that are asked at once are asked once.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use moka::{ops::compute::Op, sync::Cache};
use tokio::{sync::OnceCell, time::Instant};

use super::{Asked, Gate, Ruling, State};
use crate::{
    clock::{Clock, Timestamp},
    error::BackendError,
};

/// For how long a commit that passed is known to have passed.
const PASSED_FOR: Duration = Duration::from_mins(10);
/// For how long a commit that failed is taken to be failed: a run may be repeated.
const FAILED_FOR: Duration = Duration::from_mins(1);
/// How many rulings are remembered; those looked at least leave first.
const MOST: u64 = 4096;

type Said = Result<Ruling, BackendError>;

/// A system that rules on commits. What is asked is written out first, so that it is known for what it is: however the
/// parameters differ that it is made of, an equal question is asked once.
#[async_trait]
pub trait System: fmt::Debug + Send + Sync + 'static {
    /// What is asked, with every parameter in its place.
    type Question: Send + Sync + 'static;

    /// The question that `asked` comes down to.
    ///
    /// # Errors
    /// When the parameters do not make one.
    fn question(&self, asked: Asked<'_>) -> Result<Self::Question, BackendError>;

    /// What tells `question` from all others to this system.
    fn key(question: &Self::Question) -> String;

    /// Asks for CI's word by `deadline`. Read only.
    ///
    /// # Errors
    /// When there is no clear answer.
    async fn rule(&self, question: &Self::Question, deadline: Instant) -> Result<Ruling, BackendError>;

    /// Whether what is asked depends on the ApplicationSet's name.
    fn reads_application_set(&self) -> bool;
}

/// Rulings by what was asked.
pub struct Memory {
    clock: Arc<dyn Clock>,
    kept: Cache<String, Kept>,
    under_way: Mutex<HashMap<String, Arc<OnceCell<Said>>>>,
    /// Counts what begins: questions, and the times that all was forgotten.
    turns: AtomicU64,
    forgotten: AtomicU64,
}

#[derive(Clone)]
struct Kept {
    ruling: Ruling,
    since: Timestamp,
    turn: u64,
}

impl Memory {
    /// Nothing is remembered yet.
    #[must_use]
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            kept: Cache::new(MOST),
            under_way: Mutex::default(),
            turns: AtomicU64::new(1),
            forgotten: AtomicU64::new(0),
        }
    }

    /// The ruling under `key`: a remembered one if that will do, else what `ask` finds. Whoever asks the same meanwhile
    /// waits for it too; when the one who began leaves, the next one asks.
    ///
    /// # Errors
    /// Those of `ask`, which are not remembered.
    pub async fn ruling<F>(&self, key: &str, may_reuse: bool, ask: impl FnOnce() -> F) -> Said
    where
        F: Future<Output = Said>,
    {
        // A question that began earlier may not know what this one is about.
        if !may_reuse {
            return self.learn(key, ask).await;
        }
        if let Some(ruling) = self.recall(key) {
            return Ok(ruling);
        }
        let cell = Arc::clone(self.lock().entry(key.to_owned()).or_default());
        let seat = Seat { memory: self, key, cell };
        seat.cell.get_or_init(|| self.learn(key, ask)).await.clone()
    }

    /// Forgets all rulings, those too that are asked for right now.
    pub fn forget(&self) {
        self.forgotten.store(self.turn(), Ordering::SeqCst);
        self.lock().clear();
        self.kept.invalidate_all();
    }

    async fn learn<F>(&self, key: &str, ask: impl FnOnce() -> F) -> Said
    where
        F: Future<Output = Said>,
    {
        let turn = self.turn();
        let ruling = ask().await?;
        self.keep(key, &ruling, turn);
        Ok(ruling)
    }

    fn recall(&self, key: &str) -> Option<Ruling> {
        let kept = self.kept.get(key)?;
        let life = life(&kept.ruling)?;
        let is_fresh = self.clock.now().since(kept.since).is_some_and(|age| age < life);
        (is_fresh && kept.turn > self.forgotten.load(Ordering::SeqCst)).then_some(kept.ruling)
    }

    /// Keeps what a question of `turn` found, unless a later one found something already.
    fn keep(&self, key: &str, ruling: &Ruling, turn: u64) {
        let kept = Kept { ruling: ruling.clone(), since: self.clock.now(), turn };
        self.kept.entry(key.to_owned()).and_compute_with(|before| match before {
            Some(before) if before.value().turn > turn => Op::Nop,
            Some(_) if life(ruling).is_none() => Op::Remove,
            None if life(ruling).is_none() => Op::Nop,
            _ => Op::Put(kept),
        });
    }

    fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::SeqCst)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<OnceCell<Said>>>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long `ruling` holds. Of a commit to which a gate walked back it holds only now: the one that was asked about
/// may pass at any time.
const fn life(ruling: &Ruling) -> Option<Duration> {
    match ruling.state {
        _ if ruling.is_earlier => None,
        State::Passed => Some(PASSED_FOR),
        State::Failed => Some(FAILED_FOR),
        State::Pending => None,
    }
}

/// A place among those who wait for one question; the question is gone when it is answered, or all have left.
struct Seat<'a> {
    memory: &'a Memory,
    key: &'a str,
    cell: Arc<OnceCell<Said>>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut under_way = self.memory.lock();
        let is_own = under_way.get(self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        // Two hold it when nobody else waits: the table, and this.
        if is_own && (self.cell.initialized() || Arc::strong_count(&self.cell) <= 2) {
            under_way.remove(self.key);
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("kept", &self.kept.entry_count()).finish_non_exhaustive()
    }
}

/// A system whose rulings are remembered.
#[derive(Debug)]
pub struct Remembered<S> {
    /// The system itself.
    pub system: S,
    memory: Memory,
}

impl<S: System> Remembered<S> {
    /// `system`, with a memory by `clock`.
    #[must_use]
    pub fn new(system: S, clock: &Arc<dyn Clock>) -> Self {
        Self { system, memory: Memory::new(clock) }
    }

    /// The ruling on `question`, remembered or asked for by the deadline of `asked`.
    ///
    /// # Errors
    /// When the system gives no clear answer.
    pub async fn ruling(&self, question: &S::Question, asked: Asked<'_>) -> Result<Ruling, BackendError> {
        let ask = || self.system.rule(question, asked.deadline);
        self.memory.ruling(&S::key(question), asked.may_reuse, ask).await
    }
}

#[async_trait]
impl<S: System> Gate for Remembered<S> {
    async fn ask(&self, asked: Asked<'_>) -> Result<Ruling, BackendError> {
        self.ruling(&self.system.question(asked)?, asked).await
    }

    fn reads_application_set(&self) -> bool {
        self.system.reads_application_set()
    }

    fn forget(&self) {
        self.memory.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Hands(AtomicU64);

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::SeqCst))
        }
    }

    fn ruling(state: State, is_earlier: bool) -> Ruling {
        Ruling { state, commit: None, is_earlier, evidence: Vec::new(), run_url: None, built_at: None }
    }

    struct Asker {
        hands: Arc<Hands>,
        memory: Arc<Memory>,
        asked: Arc<AtomicU64>,
    }

    impl Asker {
        fn new() -> Self {
            let hands = Arc::new(Hands::default());
            let clock: Arc<dyn Clock> = hands.clone();
            Self { hands, memory: Arc::new(Memory::new(&clock)), asked: Arc::default() }
        }

        async fn ask(&self, may_reuse: bool, says: Said) -> State {
            let ask = || async {
                self.asked.fetch_add(1, Ordering::SeqCst);
                says
            };
            self.memory.ruling("k", may_reuse, ask).await.map_or(State::Pending, |ruling| ruling.state)
        }

        async fn lasts(&self, says: Ruling) -> u64 {
            self.memory.forget();
            let _ = self.ask(true, Ok(says.clone())).await;
            for second in 0.. {
                let before = self.asked.load(Ordering::SeqCst);
                // Asked anew, it would be remembered anew: an error is not.
                let _ = self.ask(true, Err(BackendError::unavailable("x"))).await;
                if self.asked.load(Ordering::SeqCst) > before {
                    return second;
                }
                self.hands.0.fetch_add(1000, Ordering::SeqCst);
            }
            unreachable!()
        }
    }

    #[tokio::test]
    async fn each_ruling_holds_for_its_time() {
        let asker = Asker::new();
        assert_eq!(asker.lasts(ruling(State::Passed, false)).await, 600);
        assert_eq!(asker.lasts(ruling(State::Failed, false)).await, 60);
        assert_eq!(asker.lasts(ruling(State::Pending, false)).await, 0);
        assert_eq!(asker.lasts(ruling(State::Passed, true)).await, 0);
    }

    #[tokio::test]
    async fn who_may_not_reuse_asks_and_corrects_what_is_remembered() {
        let asker = Asker::new();
        assert_eq!(asker.ask(true, Ok(ruling(State::Passed, false))).await, State::Passed);
        assert_eq!(asker.ask(false, Ok(ruling(State::Failed, false))).await, State::Failed);
        assert_eq!(asker.ask(true, Ok(ruling(State::Passed, false))).await, State::Failed);
        assert_eq!(asker.ask(false, Ok(ruling(State::Pending, false))).await, State::Pending);
        assert_eq!(asker.ask(true, Ok(ruling(State::Passed, false))).await, State::Passed);
        assert_eq!(asker.asked.load(Ordering::SeqCst), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn equal_questions_share_one_even_when_the_first_one_leaves() {
        let asker = Arc::new(Asker::new());
        let callers: Vec<_> = (0..100)
            .map(|_| {
                let asker = Arc::clone(&asker);
                tokio::spawn(async move {
                    let ask = || async {
                        asker.asked.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        Ok(ruling(State::Pending, false))
                    };
                    asker.memory.ruling("k", true, ask).await.unwrap().state
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        callers[0].abort();
        for caller in callers.into_iter().skip(1) {
            assert_eq!(caller.await.unwrap(), State::Pending);
        }
        assert_eq!(asker.asked.load(Ordering::SeqCst), 2, "the first, and who took over");
        assert!(asker.memory.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_began_before_all_was_forgotten_is_not_remembered() {
        let asker = Arc::new(Asker::new());
        let slow = {
            let memory = Arc::clone(&asker.memory);
            tokio::spawn(async move {
                let ask = || async {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    Ok(ruling(State::Failed, false))
                };
                memory.ruling("k", true, ask).await.unwrap().state
            })
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        asker.memory.forget();
        assert_eq!(slow.await.unwrap(), State::Failed);
        assert_eq!(asker.ask(true, Ok(ruling(State::Passed, false))).await, State::Passed);
    }
}
