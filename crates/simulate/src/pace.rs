//! Leaves out the time in which nothing happens. Replicas sync four times a second, day and night; while there are no calls, nothing fails and
//! nothing is held, these syncs bring nothing, and the replicas are parked.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use crate::link::SharedStore;

/// For how long everything goes on after the last reason has ended.
const LINGER: Duration = Duration::from_millis(2500);
/// How long replicas sync before something happens.
const SETTLE: Duration = Duration::from_millis(400);

/// Whether time is left out.
#[derive(Debug)]
pub struct Pace {
    state: Mutex<State>,
    awake: Notify,
    store: SharedStore,
}

#[derive(Debug)]
struct State {
    holds: usize,
    /// Until when nothing is left out, although there is no reason to wait.
    until: Instant,
    settled: Instant,
}

/// A reason to leave nothing out, until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<Pace>);

impl Pace {
    /// One that leaves nothing out yet.
    pub fn new(store: SharedStore) -> Arc<Self> {
        let now = Instant::now();
        let state = State { holds: 0, until: now + LINGER, settled: now };
        Arc::new(Self { state: Mutex::new(state), awake: Notify::new(), store })
    }

    /// Leaves nothing out from now on. Returns when the replicas are in contact again.
    pub async fn busy(self: &Arc<Self>) -> Busy {
        let settled = {
            let (mut state, now) = (self.state.lock(), Instant::now());
            if state.holds == 0 && now >= state.until {
                self.store.leave_out(now.duration_since(state.until));
                state.settled = now + SETTLE;
                self.awake.notify_waiters();
            }
            state.holds += 1;
            state.settled
        };
        let busy = Busy(Arc::clone(self));
        sleep_until(settled).await;
        busy
    }

    /// Whether nothing is left out now.
    pub fn is_busy(&self) -> bool {
        let state = self.state.lock();
        state.holds > 0 || Instant::now() < state.until
    }

    /// Waits until nothing is left out.
    pub async fn awake(&self) {
        while !self.is_busy() {
            self.awake.notified().await;
        }
    }

    /// Does `work`, and nothing of it while time is left out.
    pub async fn within<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            self.awake().await;
            let polled = poll_fn(|context| {
                if !self.is_busy() {
                    return Poll::Ready(None);
                }
                work.as_mut().poll(context).map(Some)
            });
            if let Some(done) = polled.await {
                return done;
            }
        }
    }
}

/// Does `work`, and waits after each of its steps until all that it gave to other threads is done. So the order is the same each time. The runtime
/// has one thread for such work.
pub async fn in_order<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let polled = work.as_mut().poll(context);
        let (done, waits) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || done.send(()));
        let _ = waits.recv();
        polled
    })
    .await
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.holds -= 1;
        state.until = Instant::now() + LINGER;
    }
}
