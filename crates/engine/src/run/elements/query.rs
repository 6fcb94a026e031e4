//! Queries parts of an answer: several at a time, until the deadline of the whole. What is not done by then goes on, so that the next call has it.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, timeout_at},
};

use crate::{
    cache::{Entry, Life},
    failure::{Failed, Failure},
    route::ResolvedQuery,
    run::{Finished, Wanted, elements::Gathering, join, wait},
    state::EngineState,
};
use domain::{clock::Clock, error::ErrorKind};
use flight::FlightJoin;
use source::{ELEMENTS_AT_ONCE, MaxUnknown};

/// How long the answer waits for elements that were slow before, once it has all others. Their runs go on, and the next answer has the result.
const PATIENCE: Duration = Duration::from_secs(1);
/// So many elements are refused in the same way, and none is answered, that the refusal is not about single elements.
const MANY: usize = 3;

/// The results of the elements that were queried, by their places in the list.
type Results = UnboundedReceiver<(usize, Finished)>;

impl Gathering<'_> {
    /// What is known of each of `elements` now: its answer, or why it has none.
    ///
    /// # Errors
    /// When this replica may not decide: the shared store is needed and does not answer.
    pub(super) async fn query_all(&self, elements: &[Arc<ResolvedQuery>]) -> Result<Vec<Finished>, Failure> {
        let mut found: Vec<Option<Finished>> = Vec::with_capacity(elements.len());
        for element in elements {
            self.renew_if_held(&element.key);
            found.push(self.fresh(element).map(Ok));
        }
        let mut left = Failure::Deadline;
        let due: Vec<usize> = (0..elements.len()).filter(|index| found[*index].is_none()).collect();
        if !due.is_empty() {
            let mut tally = Tally::default();
            let slow: HashSet<usize> = due.iter().copied().filter(|index| self.was_slow(&elements[*index])).collect();
            let (mut others, mut until) = (due.len() - slow.len(), self.until);
            let (mut results, stop) = self.start(elements, due);
            loop {
                if others == 0 {
                    // Counted once: the minimum only moves it forward.
                    until = until.min(Instant::now() + PATIENCE);
                }
                let Ok(next) = timeout_at(until, results.recv()).await else { break };
                let Some((index, result)) = next else {
                    left = tally.not_queried();
                    break;
                };
                others -= usize::from(!slow.contains(&index));
                if tally.ends_lookups(&result, self.parts.max_unknown, elements.len()) {
                    stop.store(true, Ordering::Relaxed);
                }
                found[index] = Some(result);
            }
        }
        let found: Vec<Finished> = found.into_iter().map(|each| each.unwrap_or_else(|| Err(left.clone()))).collect();
        match found.iter().find_map(|each| each.as_ref().err().filter(|failure| matches!(failure, Failure::Store(_)))) {
            Some(failure) => Err(failure.clone()),
            None => Ok(found),
        }
    }

    /// Whether the last run of `element`, with this or another item, ended without an answer at its deadline, and the answer can have what it had last.
    fn was_slow(&self, element: &ResolvedQuery) -> bool {
        let is_slow = |failure: &Failure| match failure {
            Failure::Deadline => true,
            Failure::Backend(error) => error.kind == ErrorKind::Timeout,
            _ => false,
        };
        let of_element = || self.known.failing.about(Failed::subject_of(&element.question)?);
        let last = self.known.failing.get(&element.key).or_else(of_element);
        last.is_some_and(|last| is_slow(&last.failure.failure)) && self.last_known(element, self.clock.now()).is_some()
    }

    /// Queries the elements at the places `due` in a task of its own. It ends before all are queried if the flag is set.
    fn start(&self, elements: &[Arc<ResolvedQuery>], due: Vec<usize>) -> (Results, Arc<AtomicBool>) {
        let (sender, results) = unbounded_channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut due: Vec<_> = due.into_iter().map(|index| (index, Arc::clone(&elements[index]))).collect();
        // If the time is too short for all, those come first of which least is known.
        due.sort_by_cached_key(|(_, element)| self.known.answers.get(&element.lineage()).map(|entry| entry.stored_at));
        let (known, clock, is_stopped) = (Arc::clone(self.known), Arc::clone(self.clock), Arc::clone(&stop));
        let task = tokio::spawn(telemetry::trace::carry(query_each(known, clock, due, sender, is_stopped)));
        self.known.gathering.replace(self.resolved.key, task.abort_handle());
        (results, stop)
    }
}

/// Queries each of `due`, and sends the results while anybody wants them.
async fn query_each(
    known: Arc<EngineState>,
    clock: Arc<dyn Clock>,
    due: Vec<(usize, Arc<ResolvedQuery>)>,
    results: UnboundedSender<(usize, Finished)>,
    stop: Arc<AtomicBool>,
) {
    let query_one = |(index, element): (usize, Arc<ResolvedQuery>)| {
        let (known, clock, results, stop) = (&known, &clock, &results, &stop);
        async move {
            if !stop.load(Ordering::Relaxed) {
                let until = Instant::now() + element.route.deadline;
                let result = query(known, clock, &element, until).await;
                // The run of the whole may have ended.
                let _ = results.send((index, result));
            }
        }
    };
    stream::iter(due).for_each_concurrent(ELEMENTS_AT_ONCE, query_one).await;
}

/// Queries the part `resolved`: joins its run, or starts one, unless the last one failed just now.
pub(super) async fn query(
    known: &Arc<EngineState>,
    clock: &Arc<dyn Clock>,
    resolved: &ResolvedQuery,
    until: Instant,
) -> Finished {
    if let Some((backoff, _)) = known.failing.backoff(&resolved.key, clock.now()) {
        return Err(backoff.failure.failure);
    }
    let mut resolved = resolved.again_until(Instant::now() + resolved.route.deadline);
    // After an event, what the backend remembers may be outdated.
    let is_invalidated = |entry: Arc<Entry>| entry.life == Life::For(Duration::ZERO);
    resolved.query.must_ask |= known.answers.get(&resolved.key).is_some_and(is_invalidated);
    match join(known, clock, &Arc::new(resolved), Wanted::Now) {
        FlightJoin::Finished(finished) => finished,
        FlightJoin::Joined(result) | FlightJoin::Started(result) => wait(result, until).await,
    }
}

/// What the look-ups of a run have brought so far.
#[derive(Debug, Default)]
struct Tally {
    known: usize,
    unknown: usize,
    /// Those that [`concerns_all`].
    of_all: usize,
    /// The failure that ended the look-ups.
    last: Option<Failure>,
}

impl Tally {
    /// Counts `result`, one of `all`. Whether more queries would not make the answer known. Those under way may end.
    fn ends_lookups(&mut self, result: &Finished, max_unknown: MaxUnknown, all: usize) -> bool {
        let Err(failure) = result else {
            self.known += 1;
            return false;
        };
        self.unknown += 1;
        self.of_all += usize::from(concerns_all(failure));
        // One refusal may concern one element. If others are answered, the source does not refuse as a whole.
        let is_of_all = self.of_all >= MANY && self.known == 0;
        let ends = is_of_all || max_unknown.is_exceeded(self.unknown, all);
        if ends && self.last.is_none() {
            self.last = Some(failure.clone());
        }
        ends
    }

    /// Why an element was not queried before the look-ups ended.
    fn not_queried(&self) -> Failure {
        match &self.last {
            Some(Failure::Backend(last)) => {
                Failure::Backend(last.clone().within("not queried, since too many others failed, the last with"))
            }
            Some(last) => last.clone(),
            None => Failure::Deadline,
        }
    }
}

/// Whether what failed is not one element, but what all elements are queried of.
fn concerns_all(failure: &Failure) -> bool {
    match failure {
        Failure::Backend(error) => matches!(error.kind, ErrorKind::Denied | ErrorKind::Throttled { .. }),
        Failure::Store(_) => true,
        Failure::Deadline | Failure::Crashed | Failure::Held(_) => false,
    }
}
