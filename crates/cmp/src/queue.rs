//! Who runs next: the call with the earliest deadline. A call that would wait beyond its deadline is refused at once.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

/// How much the last run counts in the average: an eighth.
const WEIGHT: u32 = 8;

/// The places for runs.
#[derive(Debug)]
pub(crate) struct Queue {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    /// Those that wait, the earliest deadline first.
    waiting: BinaryHeap<Reverse<Waiting>>,
    count: u64,
    /// How long runs take. Unknown before the first.
    average: Option<Duration>,
}

#[derive(Debug)]
struct Waiting {
    deadline: Instant,
    /// Calls with equal deadlines run in their order.
    number: u64,
    place: oneshot::Sender<Place>,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        (self.deadline, self.number) == (other.deadline, other.number)
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline, self.number).cmp(&(other.deadline, other.number))
    }
}

/// The right to run. Dropping it lets the next one run.
#[derive(Debug)]
pub(crate) struct Place {
    /// `None` once it was handed on.
    queue: Option<Arc<Queue>>,
    since: Instant,
}

/// Why there is no place.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoPlace {
    /// The deadline would pass first.
    #[error(
        "{ahead} runs are ahead, which take about {each:?} each, {max} at once (`concurrency`): that is beyond the deadline"
    )]
    TooLong {
        /// The runs before this one.
        ahead: usize,
        /// The average time of a run.
        each: Duration,
        /// How many run at once.
        max: usize,
    },
    /// The deadline has passed.
    #[error("no place was free in time: {max} runs were under way until the deadline (`concurrency`)")]
    TimedOut {
        /// How many run at once.
        max: usize,
    },
}

impl Queue {
    /// At most `max` run at once.
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(1), state: Mutex::default() })
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// When there is none before `deadline`, or it is plain that there will be none.
    pub(crate) async fn place(self: &Arc<Self>, deadline: Instant) -> Result<Place, NoPlace> {
        let receiver = {
            let mut state = self.state.lock();
            if state.running < self.max {
                state.running += 1;
                return Ok(Place { queue: Some(Arc::clone(self)), since: Instant::now() });
            }
            self.refuse_early(&state, deadline)?;
            let (place, receiver) = oneshot::channel();
            let number = state.count;
            state.count += 1;
            state.waiting.push(Reverse(Waiting { deadline, number, place }));
            receiver
        };
        match timeout_at(deadline, receiver).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(NoPlace::TimedOut { max: self.max }),
        }
    }

    /// How many run and wait.
    pub(crate) fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.running, state.waiting.iter().filter(|Reverse(waiting)| !waiting.place.is_closed()).count())
    }

    fn refuse_early(&self, state: &State, deadline: Instant) -> Result<(), NoPlace> {
        let Some(each) = state.average else { return Ok(()) };
        let is_ahead = |waiting: &&Reverse<Waiting>| waiting.0.deadline <= deadline && !waiting.0.place.is_closed();
        let ahead = state.waiting.iter().filter(is_ahead).count();
        // The runs under way are half done, on average.
        let rounds = u32::try_from(ahead / self.max).unwrap_or(u32::MAX);
        let wait = each.saturating_mul(rounds) + each / 2;
        if Instant::now() + wait > deadline {
            return Err(NoPlace::TooLong { ahead: ahead + self.max, each, max: self.max });
        }
        Ok(())
    }

    /// Gives a place to the next one that still waits.
    fn release(self: Arc<Self>, took: Duration) {
        let mut state = self.state.lock();
        state.average = Some(state.average.map_or(took, |average| (average * (WEIGHT - 1) + took) / WEIGHT));
        let mut place = Place { queue: Some(Arc::clone(&self)), since: Instant::now() };
        while let Some(Reverse(next)) = state.waiting.pop() {
            match next.place.send(place) {
                Ok(()) => return,
                Err(unwanted) => place = unwanted,
            }
        }
        place.queue = None;
        state.running -= 1;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.release(self.since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_deadline_runs_first() {
        let queue = Queue::new(1);
        let now = Instant::now();
        let first = queue.place(now).await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for seconds in [30, 10, 20, 10] {
            let (queue, order) = (Arc::clone(&queue), Arc::clone(&order));
            tasks.push(tokio::spawn(async move {
                let place = queue.place(now + Duration::from_secs(seconds)).await.unwrap();
                order.lock().push(seconds);
                drop(place);
            }));
            tokio::task::yield_now().await;
        }
        assert_eq!(queue.load(), (1, 4));
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!((order.lock().as_slice(), queue.load()), (&[10, 10, 20, 30][..], (0, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_lost_to_nobody() {
        let queue = Queue::new(1);
        let first = queue.place(Instant::now()).await.unwrap();
        let waiting = queue.place(Instant::now() + Duration::from_secs(1)).await;
        assert!(matches!(waiting, Err(NoPlace::TimedOut { max: 1 })));
        let abandoned = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.place(Instant::now() + Duration::from_secs(9)).await.map(drop) }
        });
        tokio::task::yield_now().await;
        abandoned.abort();
        assert!(abandoned.await.is_err());
        drop(first);
        assert_eq!(queue.load(), (0, 0));
        drop(queue.place(Instant::now()).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hopeless_call_is_refused_at_once() {
        let queue = Queue::new(1);
        let place = queue.place(Instant::now()).await.unwrap();
        tokio::time::advance(Duration::from_secs(10)).await;
        drop(place);
        let _running = queue.place(Instant::now()).await.unwrap();
        let soon = queue.place(Instant::now() + Duration::from_secs(1)).await.unwrap_err();
        assert!(soon.to_string().contains("beyond the deadline"), "{soon}");
        assert!(matches!(queue.place(Instant::now() + Duration::from_secs(8)).await, Err(NoPlace::TimedOut { .. })));
    }
}
