//! How many workers live.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A place among the living.
#[derive(Debug)]
pub(crate) struct WorkerPermit(Arc<AtomicUsize>);

impl WorkerPermit {
    /// One more.
    pub(crate) fn new(live: &Arc<AtomicUsize>) -> Self {
        live.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(live))
    }

    /// One more, unless there are `most`.
    pub(crate) fn take(live: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let one_more = |now| (now < most).then_some(now + 1);
        live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(Arc::clone(live)))
    }
}

impl Drop for WorkerPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
