//! Memory budgets. Each listener has one for all connections that are not authenticated yet, and one for the bodies of
//! authenticated requests. When a budget is used up, the oldest share must go. A good caller sends its token and its body at once, so its
//! share is never among the oldest for long.
//!
//! A budget counts estimates, not allocations. The estimates err upwards.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

/// The memory of a connection that has sent nothing, in bytes.
const CONNECTION_BYTES: usize = 8 * 1024;
/// The most received bytes that one connection keeps in memory: the size limit of a TLS handshake.
const MAX_RECEIVED_BYTES: usize = 64 * 1024;

/// A memory budget.
#[derive(Debug)]
pub(crate) struct Budget {
    /// How many bytes all shares together may hold.
    max: usize,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// How many bytes all shares together hold.
    held: usize,
    /// How many shares there have been.
    count: u64,
    /// The shares that can be crowded out, by number, so the oldest is first.
    shares: BTreeMap<u64, Held>,
}

/// The size of one share, in bytes.
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

/// A share of a budget, freed when it is dropped: of an unauthenticated connection, or of a body.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    number: u64,
    /// Whether the share can be crowded out: the connection is not authenticated, or the body is still arriving.
    counts: AtomicBool,
    /// How many bytes count although the share can no longer be crowded out.
    kept: AtomicUsize,
    crowded_out: Arc<Notify>,
}

impl Budget {
    /// No shares yet. All together may hold `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, now: Mutex::default() }
    }

    /// A new connection.
    pub(crate) fn connection(self: &Arc<Self>) -> Share {
        self.enter(CONNECTION_BYTES)
    }

    /// A new body, of which nothing has arrived.
    pub(crate) fn body(self: &Arc<Self>) -> Share {
        self.enter(0)
    }

    fn enter(self: &Arc<Self>, other: usize) -> Share {
        let crowded_out = Arc::new(Notify::new());
        let mut now = self.now();
        now.count += 1;
        let number = now.count;
        now.held += other;
        now.shares.insert(number, Held { received: 0, other, crowded_out: Arc::clone(&crowded_out) });
        self.make_room(&mut now);
        drop(now);
        let (counts, kept) = (AtomicBool::new(true), AtomicUsize::new(0));
        Share { budget: Arc::clone(self), number, counts, kept, crowded_out }
    }

    /// Crowds out the oldest shares until the others fit into the budget.
    fn make_room(&self, now: &mut Now) {
        while now.held > self.max
            && let Some((_, oldest)) = now.shares.pop_first()
        {
            now.held -= oldest.sum();
            oldest.crowded_out.notify_one();
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// The budget that it is a share of.
    pub(crate) const fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

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

    /// The body has arrived: it still counts, but it is not crowded out any more. Returns whether it was not crowded out before.
    pub(crate) fn keep(&self) -> bool {
        let mut now = self.budget.now();
        let kept = now.shares.remove(&self.number).map(|held| held.sum());
        drop(now);
        self.counts.store(false, Ordering::Relaxed);
        self.kept.store(kept.unwrap_or(0), Ordering::Relaxed);
        kept.is_some()
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

    /// Waits until the share must go in favour of newer ones.
    pub(crate) async fn crowded_out(&self) {
        self.crowded_out.notified().await;
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        if !self.counts() {
            return;
        }
        let mut now = self.budget.now();
        let Some(held) = now.shares.get_mut(&self.number) else {
            self.counts.store(false, Ordering::Relaxed);
            return;
        };
        let before = held.sum();
        change(held);
        let after = held.sum();
        now.held = now.held - before + after;
        self.budget.make_room(&mut now);
    }

    fn leave(&self) {
        let mut now = self.budget.now();
        if let Some(held) = now.shares.remove(&self.number) {
            now.held -= held.sum();
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if *self.counts.get_mut() {
            self.leave();
        }
        if *self.kept.get_mut() > 0 {
            self.budget.now().held -= *self.kept.get_mut();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_crowded_out(share: &Share) -> bool {
        share.crowded_out().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_unauthenticated_connection_makes_room() {
        let unauthenticated = Arc::new(Budget::new(5 * CONNECTION_BYTES));
        let [first, second, third] = [(); 3].map(|()| unauthenticated.connection());
        second.received(CONNECTION_BYTES);
        assert!(!is_crowded_out(&first), "they fit");
        third.received(CONNECTION_BYTES);
        assert!(is_crowded_out(&first) && !is_crowded_out(&second) && !is_crowded_out(&third));
        second.is_idle();
        third.hold(CONNECTION_BYTES);
        assert!(!is_crowded_out(&second), "its received bytes are freed");
        third.release(CONNECTION_BYTES);
        drop((first, second, third));
        let now = unauthenticated.now();
        assert_eq!((now.held, now.shares.len()), (0, 0));
    }

    #[test]
    fn an_authenticated_client_is_never_crowded_out() {
        let unauthenticated = Arc::new(Budget::new(CONNECTION_BYTES));
        let caller = unauthenticated.connection();
        caller.received(100);
        assert!(is_crowded_out(&caller), "it was the only one, and too large");
        let caller = unauthenticated.connection();
        caller.admit();
        caller.received(usize::MAX);
        caller.hold(usize::MAX);
        let share = unauthenticated.connection();
        assert!(!is_crowded_out(&caller) && !is_crowded_out(&share));
        drop(caller);
        assert_eq!(unauthenticated.now().held, CONNECTION_BYTES);
    }

    #[test]
    fn no_connection_counts_for_more_than_its_buffers() {
        let unauthenticated = Arc::new(Budget::new(2 * MAX_RECEIVED_BYTES));
        let share = unauthenticated.connection();
        (0..1000).for_each(|_| share.received(MAX_RECEIVED_BYTES));
        assert!(!is_crowded_out(&share));
        assert_eq!(unauthenticated.now().held, CONNECTION_BYTES + MAX_RECEIVED_BYTES / 2 * 3);
    }

    #[test]
    fn a_body_that_has_arrived_counts_and_stays() {
        let bodies = Arc::new(Budget::new(100));
        let [first, second, third] = [(); 3].map(|()| bodies.body());
        first.hold(60);
        assert!(first.keep());
        second.hold(30);
        third.hold(30);
        assert!(!is_crowded_out(&first) && is_crowded_out(&second) && !is_crowded_out(&third));
        third.hold(30);
        assert!(is_crowded_out(&third) && !third.keep(), "it was the oldest that had not arrived");
        drop((second, third));
        assert_eq!(bodies.now().held, 60);
        drop(first);
        let now = bodies.now();
        assert_eq!((now.held, now.shares.len()), (0, 0));
    }
}
