//! Single flight (invariant I5): however many callers wait for a key, the work runs once, detached
//! from all of them. A caller that leaves neither stops nor repeats it.

pub(crate) mod wait;

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

use crate::telemetry::trace;

/// The end of a flight; `None` when its work panicked.
pub(crate) type SharedResult<T> = Shared<BoxFuture<'static, Option<T>>>;

/// The flights that are under way, by key `K`; each with a label `L` that says what it is about.
#[derive(Debug)]
pub(crate) struct Flights<K, L, T>(Arc<Table<K, L, T>>);

#[derive(Debug)]
struct Table<K, L, T> {
    under_way: Mutex<HashMap<K, Flight<L, T>, RandomState>>,
    turns: AtomicU64,
}

#[derive(Debug)]
struct Flight<L, T> {
    turn: u64,
    label: L,
    /// Which trace it belongs to: that of whoever started it.
    place: Option<trace::Context>,
    landing: SharedResult<T>,
}

/// How a caller gets its value.
#[derive(Debug)]
pub(crate) enum Join<T> {
    /// It was there already when the door closed.
    Landed(T),
    /// Others wait for it too.
    Joined(SharedResult<T>),
    /// This call started the work.
    Started(SharedResult<T>),
}

impl<K, L, T> Default for Flights<K, L, T> {
    fn default() -> Self {
        Self(Arc::new(Table { under_way: Mutex::default(), turns: AtomicU64::new(1) }))
    }
}

impl<K, L, T> Flights<K, L, T>
where
    K: Hash + Eq + Copy + Send + 'static,
    L: Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the flight for `key`, or starts `work`, which is about `label`. `recheck` runs under the lock when
    /// there is no flight: one may have landed since the caller looked, and `work` must have recorded its result
    /// with [`FlightGuard::land`] before it ends.
    pub(crate) fn join<W>(
        &self,
        key: K,
        recheck: impl FnOnce() -> Option<T>,
        label: impl FnOnce() -> L,
        work: impl FnOnce(FlightGuard<K, L, T>) -> W,
    ) -> Join<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        let mut under_way = self.0.lock();
        if let Some(flight) = under_way.get(&key) {
            trace::wait_for(flight.place);
            return Join::Joined(flight.landing.clone());
        }
        if let Some(value) = recheck() {
            return Join::Landed(value);
        }
        let (land, landed) = oneshot::channel();
        let landing = landed.map(Result::ok).boxed().shared();
        let turn = self.0.turns.fetch_add(1, Ordering::Relaxed);
        let place = trace::current().map(|place| place.context());
        under_way.insert(key, Flight { turn, label: label(), place, landing: landing.clone() });
        drop(under_way);

        // Boxed here, it is not moved from hand to hand on its way into a task.
        let work = Box::pin(work(FlightGuard { table: Arc::clone(&self.0), key, turn }));
        tokio::spawn(trace::carry(work.map(|value| {
            let _ = land.send(value);
        })));
        Join::Started(landing)
    }

    /// Cuts off the flights whose label `is_meant`: who waits for them still gets their value, who comes from now on
    /// starts another. Runs `record` before any of them can land. The number of flights that were cut off.
    pub(crate) fn supersede(&self, is_meant: impl Fn(&L) -> bool, record: impl FnOnce()) -> usize {
        let mut under_way = self.0.lock();
        let before = under_way.len();
        under_way.retain(|_, flight| !is_meant(&flight.label));
        record();
        before - under_way.len()
    }

    /// How many flights are under way.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<K, L, T> Table<K, L, T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Flight<L, T>, RandomState>> {
        self.under_way.lock()
    }
}

/// A flight's place in the table, given up when it is dropped: however the flight ends, panics included.
#[derive(Debug)]
pub(crate) struct FlightGuard<K: Hash + Eq, L, T> {
    table: Arc<Table<K, L, T>>,
    key: K,
    turn: u64,
}

impl<K: Hash + Eq, L, T> FlightGuard<K, L, T> {
    /// A number that is higher the later the flight began.
    #[must_use]
    pub(crate) const fn turn(&self) -> u64 {
        self.turn
    }

    /// Records the flight's end with `record`, which is told whether the flight was not cut off meanwhile. Nobody
    /// boards or cuts off a flight until it returns.
    pub(crate) fn land<R>(&self, record: impl FnOnce(bool) -> R) -> R {
        let under_way = self.table.lock();
        record(under_way.get(&self.key).is_some_and(|flight| flight.turn == self.turn))
    }
}

impl<K: Hash + Eq, L, T> Drop for FlightGuard<K, L, T> {
    fn drop(&mut self) {
        let mut under_way = self.table.lock();
        if under_way.get(&self.key).is_some_and(|flight| flight.turn == self.turn) {
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

    async fn landed<T: Clone>(boarding: Join<T>) -> Option<T> {
        match boarding {
            Join::Landed(value) => Some(value),
            Join::Joined(landing) | Join::Started(landing) => landing.await,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_callers_of_whom_most_leave_make_one_run() {
        let flights = Arc::new(Flights::<u8, (), usize>::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let stored = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..1000)
            .map(|_| {
                let (flights, runs, stored) = (flights.clone(), runs.clone(), stored.clone());
                tokio::spawn(async move {
                    let recheck = || Some(stored.load(Ordering::SeqCst)).filter(|value| *value > 0);
                    let stored = stored.clone();
                    let work = |seat: FlightGuard<_, _, _>| async move {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        seat.land(|_| stored.store(runs.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst));
                        1
                    };
                    landed(flights.join(1, recheck, || (), work)).await
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
        let join = |recheck: Option<u8>, value: Option<u8>| {
            let work = |seat: FlightGuard<_, _, _>| async move {
                let _seat = seat;
                value.expect("as meant by this test")
            };
            flights.join(1, || recheck, || (), work)
        };
        assert_eq!(landed(join(None, None)).await, None);
        let next = join(None, Some(7));
        assert!(matches!(next, Join::Started(_)));
        assert_eq!(landed(next).await, Some(7));
        assert!(matches!(join(Some(8), Some(9)), Join::Landed(8)));
    }

    #[tokio::test]
    async fn a_flight_that_is_cut_off_knows_it_and_leaves_the_next_one_alone() {
        let flights = Flights::<u8, &str, (bool, u64)>::default();
        let (first_gate, second_gate) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
        let join = |gate: &Arc<tokio::sync::Notify>| {
            let gate = Arc::clone(gate);
            let work = |seat: FlightGuard<_, _, _>| async move {
                gate.notified().await;
                (seat.land(|is_current| is_current), seat.turn())
            };
            flights.join(1, || None, || "about x", work)
        };
        let first = join(&first_gate);
        assert_eq!(flights.supersede(|label| *label == "about y", || ()), 0);
        assert_eq!(flights.supersede(|label| *label == "about x", || ()), 1);
        let second = join(&second_gate);
        assert!(matches!(second, Join::Started(_)));
        first_gate.notify_one();
        let (is_current, first_turn) = landed(first).await.unwrap();
        assert!(!is_current);
        assert_eq!(flights.len(), 1, "the second still flies");
        second_gate.notify_one();
        let (is_current, second_turn) = landed(second).await.unwrap();
        assert!(is_current && second_turn > first_turn);
        assert!(flights.len() == 0);
    }
}
