//! Single flight (invariant I5): however many callers wait for a key, the work runs once, in a task
//! of its own. A caller that leaves neither stops nor repeats it.
//!
//! Start at [`Flights::join`]. [`wait::wait`] joins a flight and waits for its result until the caller's deadline. The `second_lookup` of a
//! join is a lookup in the caller's cache under the lock, because a flight may have ended since the first lookup.

pub mod wait;

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::quality::RandomState;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use telemetry::trace;

/// The end of a flight; `None` when its work panicked.
pub type SharedResult<T> = Shared<BoxFuture<'static, Option<T>>>;

/// The flights under way, by key `K`. Each has a label `L` that describes it.
#[derive(Debug)]
pub struct Flights<K, L, T>(Arc<Table<K, L, T>>);

#[derive(Debug)]
struct Table<K, L, T> {
    under_way: Mutex<HashMap<K, Flight<L, T>, RandomState>>,
    next_number: AtomicU64,
}

#[derive(Debug)]
struct Flight<L, T> {
    number: u64,
    label: L,
    /// The span of the caller that started the flight.
    span: Option<trace::TraceContext>,
    result: SharedResult<T>,
}

/// How a caller gets its value.
#[derive(Debug)]
pub enum FlightJoin<T> {
    /// `second_lookup` found the value.
    Finished(T),
    /// Another call started the work.
    Joined(SharedResult<T>),
    /// This call started the work.
    Started(SharedResult<T>),
}

impl<K, L, T> Default for Flights<K, L, T> {
    fn default() -> Self {
        Self(Arc::new(Table { under_way: Mutex::default(), next_number: AtomicU64::new(1) }))
    }
}

impl<K, L, T> Flights<K, L, T>
where
    K: Hash + Eq + Copy + Send + 'static,
    L: Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the flight for `key`, or starts `work`, which is about `label`. Without a flight, `second_lookup` runs under the
    /// lock: a flight may have ended since the caller's own lookup. So `work` must record its result with
    /// [`FlightGuard::finish`] before it ends.
    pub fn join<W>(
        &self,
        key: K,
        second_lookup: impl FnOnce() -> Option<T>,
        label: impl FnOnce() -> L,
        work: impl FnOnce(FlightGuard<K, L, T>) -> W,
    ) -> FlightJoin<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.0.lock();
        if let Some(flight) = under_way.get(&key) {
            trace::wait_for(flight.span);
            return FlightJoin::Joined(flight.result.clone());
        }
        if let Some(value) = second_lookup() {
            return FlightJoin::Finished(value);
        }
        let (finish, finished) = oneshot::channel();
        // A dropped sender is a panic of `work`: callers then get `None`.
        let result = finished.map(Result::ok).boxed().shared();
        let number = self.0.next_number.fetch_add(1, Ordering::Relaxed);
        let span = trace::current().map(|current| current.context());
        under_way.insert(key, Flight { number, label: label(), span, result: result.clone() });
        drop(under_way);

        // Boxed here, so that the future is not moved several times on its way into a task.
        let work = Box::pin(work(FlightGuard { table: Arc::clone(&self.0), key, number }));
        tokio::spawn(trace::carry(work.map(|value| {
            // Nobody may wait any more: all callers have left.
            let _ = finish.send(value);
        })));
        FlightJoin::Started(result)
    }

    /// Cuts off the flights whose label `is_selected`. Callers that wait already still get their value; later callers
    /// start another flight. Runs `record` before any of these flights can finish. Returns how many were cut off.
    pub fn supersede(&self, is_selected: impl Fn(&L) -> bool, record: impl FnOnce()) -> usize {
        let mut under_way = self.0.lock();
        let before = under_way.len();
        under_way.retain(|_, flight| !is_selected(&flight.label));
        record();
        before - under_way.len()
    }

    /// How many flights are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<K, L, T> Table<K, L, T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Flight<L, T>, RandomState>> {
        self.under_way.lock()
    }
}

/// Removes a flight from the table when dropped, however the flight ends, panics included.
#[derive(Debug)]
pub struct FlightGuard<K: Hash + Eq, L, T> {
    table: Arc<Table<K, L, T>>,
    key: K,
    number: u64,
}

impl<K: Hash + Eq, L, T> FlightGuard<K, L, T> {
    /// The flight's number: later flights have higher ones.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Records the flight's end. `record` gets whether the flight is current, that is, was not cut off. No caller joins or
    /// cuts off a flight until `record` returns.
    pub fn finish<R>(&self, record: impl FnOnce(bool) -> R) -> R {
        let under_way = self.table.lock();
        record(under_way.get(&self.key).is_some_and(|flight| flight.number == self.number))
    }
}

impl<K: Hash + Eq, L, T> Drop for FlightGuard<K, L, T> {
    fn drop(&mut self) {
        let mut under_way = self.table.lock();
        if under_way.get(&self.key).is_some_and(|flight| flight.number == self.number) {
            under_way.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;

    async fn finished<T: Clone>(join: FlightJoin<T>) -> Option<T> {
        match join {
            FlightJoin::Finished(value) => Some(value),
            FlightJoin::Joined(result) | FlightJoin::Started(result) => result.await,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_callers_cause_one_run_though_most_leave() {
        let flights = Arc::new(Flights::<u8, (), usize>::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let stored = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..1000)
            .map(|_| {
                let (flights, runs, stored) = (flights.clone(), runs.clone(), stored.clone());
                tokio::spawn(async move {
                    let second_lookup = || Some(stored.load(Ordering::SeqCst)).filter(|value| *value > 0);
                    let stored = stored.clone();
                    let work = |guard: FlightGuard<_, _, _>| async move {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        guard.finish(|_| stored.store(runs.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst));
                        1
                    };
                    finished(flights.join(1, second_lookup, || (), work)).await
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        callers[..990].iter().for_each(tokio::task::JoinHandle::abort);
        for caller in callers.into_iter().skip(990) {
            assert_eq!(caller.await.unwrap(), Some(1));
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert!(flights.len() == 0);
    }

    #[tokio::test]
    async fn a_panic_ends_the_flight_and_the_next_one_starts() {
        let flights = Flights::<u8, (), u8>::default();
        let join = |second_lookup: Option<u8>, value: Option<u8>| {
            let work = |guard: FlightGuard<_, _, _>| async move {
                let _guard = guard;
                value.expect("as meant by this test")
            };
            flights.join(1, || second_lookup, || (), work)
        };
        assert_eq!(finished(join(None, None)).await, None);
        let next = join(None, Some(7));
        assert!(matches!(next, FlightJoin::Started(_)));
        assert_eq!(finished(next).await, Some(7));
        assert!(matches!(join(Some(8), Some(9)), FlightJoin::Finished(8)));
    }

    #[tokio::test]
    async fn a_flight_that_was_cut_off_is_not_current_and_does_not_end_the_next() {
        let flights = Flights::<u8, &str, (bool, u64)>::default();
        let (first_gate, second_gate) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let join = |gate: &Arc<tokio::sync::Notify>| {
            let gate = Arc::clone(gate);
            let work = |guard: FlightGuard<_, _, _>| async move {
                gate.notified().await;
                (guard.finish(|is_current| is_current), guard.number())
            };
            flights.join(1, || None, || "about x", work)
        };
        let first = join(&first_gate);
        assert_eq!(flights.supersede(|label| *label == "about y", || ()), 0);
        assert_eq!(flights.supersede(|label| *label == "about x", || ()), 1);
        let second = join(&second_gate);
        assert!(matches!(second, FlightJoin::Started(_)));
        first_gate.notify_one();
        let (is_current, first_number) = finished(first).await.unwrap();
        assert!(!is_current);
        assert_eq!(flights.len(), 1, "the second still runs");
        second_gate.notify_one();
        let (is_current, second_number) = finished(second).await.unwrap();
        assert!(is_current && second_number > first_number);
        assert!(flights.len() == 0);
    }
}
