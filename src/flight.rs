//! Single flight (invariant I5): however many callers wait for a key, the work runs once, detached
//! from all of them. A caller that leaves neither stops nor repeats it.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use tokio::sync::oneshot;

/// The end of a flight; `None` when its work panicked.
pub type Landing<T> = Shared<BoxFuture<'static, Option<T>>>;

/// The flights that are under way.
#[derive(Debug)]
pub struct Flights<K, T> {
    under_way: Arc<Mutex<HashMap<K, Landing<T>>>>,
}

/// How a caller gets its value.
#[derive(Debug)]
pub enum Boarding<T> {
    /// It was there already when the door closed.
    Landed(T),
    /// Others wait for it too.
    Joined(Landing<T>),
    /// This call started the work.
    Started(Landing<T>),
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self { under_way: Arc::default() }
    }
}

impl<K, T> Flights<K, T>
where
    K: Hash + Eq + Copy + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Joins the flight for `key`, or starts `work`. `recheck` runs under the lock when there is no
    /// flight: one may have landed since the caller looked, and `work` must have recorded its result
    /// before it ends.
    pub fn board<W>(&self, key: K, recheck: impl FnOnce() -> Option<T>, work: impl FnOnce() -> W) -> Boarding<T>
    where
        W: Future<Output = T> + Send + 'static,
    {
        let mut under_way = lock(&self.under_way);
        if let Some(landing) = under_way.get(&key) {
            return Boarding::Joined(landing.clone());
        }
        if let Some(value) = recheck() {
            return Boarding::Landed(value);
        }
        let (land, landed) = oneshot::channel();
        let landing = landed.map(Result::ok).boxed().shared();
        under_way.insert(key, landing.clone());
        drop(under_way);

        let seat = Seat { under_way: Arc::clone(&self.under_way), key };
        let work = work();
        tokio::spawn(async move {
            let seat = seat;
            let value = work.await;
            drop(seat);
            let _ = land.send(value);
        });
        Boarding::Started(landing)
    }

    /// How many flights are under way.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.under_way).len()
    }

    /// Whether no flight is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A flight's place in the table, given up however the flight ends, panics included.
struct Seat<K: Hash + Eq, T> {
    under_way: Arc<Mutex<HashMap<K, Landing<T>>>>,
    key: K,
}

impl<K: Hash + Eq, T> Drop for Seat<K, T> {
    fn drop(&mut self) {
        lock(&self.under_way).remove(&self.key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;

    async fn landed<T: Clone>(boarding: Boarding<T>) -> Option<T> {
        match boarding {
            Boarding::Landed(value) => Some(value),
            Boarding::Joined(landing) | Boarding::Started(landing) => landing.await,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_callers_of_whom_most_leave_make_one_run() {
        let flights = Arc::new(Flights::<u8, usize>::default());
        let runs = Arc::new(AtomicUsize::new(0));
        let stored = Arc::new(AtomicUsize::new(0));
        let callers: Vec<_> = (0..1000)
            .map(|_| {
                let (flights, runs, stored) = (flights.clone(), runs.clone(), stored.clone());
                tokio::spawn(async move {
                    let recheck = || Some(stored.load(Ordering::SeqCst)).filter(|value| *value > 0);
                    let stored = stored.clone();
                    let work = || async move {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        stored.store(runs.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        1
                    };
                    landed(flights.board(1, recheck, work)).await
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(500)).await;
        callers[..990].iter().for_each(tokio::task::JoinHandle::abort);
        for caller in callers.into_iter().skip(990) {
            assert_eq!(caller.await.unwrap(), Some(1));
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        assert!(flights.is_empty());
    }

    #[tokio::test]
    async fn a_panic_ends_the_flight_and_the_next_one_starts() {
        let flights = Flights::<u8, u8>::default();
        let crashed = flights.board(1, || None, || async { panic!("as meant by this test") });
        assert_eq!(landed(crashed).await, None);
        let next = flights.board(1, || None, || async { 7 });
        assert!(matches!(next, Boarding::Started(_)));
        assert_eq!(landed(next).await, Some(7));
        assert!(matches!(flights.board(1, || Some(8), || async { 9 }), Boarding::Landed(8)));
    }
}
