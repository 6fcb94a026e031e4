//! A memory budget for all connections on which nobody has authenticated yet (strangers). When the budget is used up, the oldest such
//! connection is closed. A good caller sends its token at once, so it is never among the oldest for long.
//!
//! The budget counts estimates, not allocations. The estimates err upwards.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::Notify;

/// The memory of a connection that has sent nothing, in bytes.
const CONNECTION_BYTES: usize = 8 * 1024;
/// The most received bytes that one connection keeps in memory: the size limit of a TLS handshake.
const MAX_RECEIVED_BYTES: usize = 64 * 1024;

/// The connections on which nobody has authenticated yet.
#[derive(Debug)]
pub(crate) struct Strangers {
    /// How many bytes all strangers together may hold.
    budget: usize,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// How many bytes all strangers together hold.
    held: usize,
    /// How many connections there have been.
    count: u64,
    /// The strangers' connections by number, so the oldest is first.
    connections: BTreeMap<u64, Held>,
}

/// What one connection holds, in bytes.
#[derive(Debug)]
struct Held {
    received: usize,
    other: usize,
    crowded_out: Arc<Notify>,
}

impl Held {
    /// All bytes. Buffers grow by doubling, so they are larger than the bytes received.
    const fn sum(&self) -> usize {
        self.received + self.received / 2 + self.other
    }
}

/// One connection's share of the budget, freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    strangers: Arc<Strangers>,
    number: u64,
    /// Whether the connection counts: nobody has authenticated on it, and it was not crowded out.
    counts: AtomicBool,
    crowded_out: Arc<Notify>,
}

impl Strangers {
    /// No connections yet. All strangers together may hold `budget` bytes.
    pub(crate) fn new(budget: usize) -> Self {
        Self { budget, now: Mutex::default() }
    }

    /// A new connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Stranger {
        let crowded_out = Arc::new(Notify::new());
        let mut now = self.now();
        now.count += 1;
        let number = now.count;
        now.held += CONNECTION_BYTES;
        let held = Held { received: 0, other: CONNECTION_BYTES, crowded_out: Arc::clone(&crowded_out) };
        now.connections.insert(number, held);
        self.make_room(&mut now);
        drop(now);
        Stranger { strangers: Arc::clone(self), number, counts: AtomicBool::new(true), crowded_out }
    }

    /// Closes the oldest connections until the rest fits into the budget.
    fn make_room(&self, now: &mut Now) {
        while now.held > self.budget
            && let Some((_, oldest)) = now.connections.pop_first()
        {
            now.held -= oldest.sum();
            oldest.crowded_out.notify_one();
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stranger {
    /// Whether the connection counts against the budget.
    pub(crate) fn counts(&self) -> bool {
        self.counts.load(Ordering::Relaxed)
    }

    /// The client has authenticated: the connection no longer counts.
    pub(crate) fn admit(&self) {
        if self.counts.swap(false, Ordering::Relaxed) {
            self.leave();
        }
    }

    /// The client has sent so many more bytes.
    pub(crate) fn received(&self, bytes: usize) {
        self.change(|held| held.received = MAX_RECEIVED_BYTES.min(held.received + bytes));
    }

    /// The bytes that the client sent are no longer in memory.
    pub(crate) fn is_idle(&self) {
        self.change(|held| held.received = 0);
    }

    /// The connection holds so many bytes besides the received ones, until they are [released](Self::release).
    pub(crate) fn hold(&self, bytes: usize) {
        self.change(|held| held.other += bytes);
    }

    /// The connection holds so many bytes less.
    pub(crate) fn release(&self, bytes: usize) {
        self.change(|held| held.other -= bytes);
    }

    /// Waits until the connection must be closed in favour of newer ones.
    pub(crate) async fn crowded_out(&self) {
        self.crowded_out.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        if !self.counts() {
            return;
        }
        let mut now = self.strangers.now();
        let Some(held) = now.connections.get_mut(&self.number) else {
            self.counts.store(false, Ordering::Relaxed);
            return;
        };
        let before = held.sum();
        change(held);
        let after = held.sum();
        now.held = now.held - before + after;
        self.strangers.make_room(&mut now);
    }

    fn leave(&self) {
        let mut now = self.strangers.now();
        if let Some(held) = now.connections.remove(&self.number) {
            now.held -= held.sum();
        }
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        if *self.counts.get_mut() {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_crowded_out(stranger: &Stranger) -> bool {
        stranger.crowded_out().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_stranger_makes_room() {
        let strangers = Arc::new(Strangers::new(5 * CONNECTION_BYTES));
        let [first, second, third] = [(); 3].map(|()| strangers.enter());
        second.received(CONNECTION_BYTES);
        assert!(!is_crowded_out(&first), "they fit");
        third.received(CONNECTION_BYTES);
        assert!(is_crowded_out(&first) && !is_crowded_out(&second) && !is_crowded_out(&third));
        second.is_idle();
        third.hold(CONNECTION_BYTES);
        assert!(!is_crowded_out(&second), "its received bytes are freed");
        third.release(CONNECTION_BYTES);
        drop((first, second, third));
        let now = strangers.now();
        assert_eq!((now.held, now.connections.len()), (0, 0));
    }

    #[test]
    fn an_authenticated_client_is_never_crowded_out() {
        let strangers = Arc::new(Strangers::new(CONNECTION_BYTES));
        let caller = strangers.enter();
        caller.received(100);
        assert!(is_crowded_out(&caller), "it was the only one, and too large");
        let caller = strangers.enter();
        caller.admit();
        caller.received(usize::MAX);
        caller.hold(usize::MAX);
        let stranger = strangers.enter();
        assert!(!is_crowded_out(&caller) && !is_crowded_out(&stranger));
        drop(caller);
        assert_eq!(strangers.now().held, CONNECTION_BYTES);
    }

    #[test]
    fn no_connection_counts_for_more_than_its_buffers() {
        let strangers = Arc::new(Strangers::new(2 * MAX_RECEIVED_BYTES));
        let stranger = strangers.enter();
        (0..1000).for_each(|_| stranger.received(MAX_RECEIVED_BYTES));
        assert!(!is_crowded_out(&stranger));
        assert_eq!(strangers.now().held, CONNECTION_BYTES + MAX_RECEIVED_BYTES / 2 * 3);
    }
}
