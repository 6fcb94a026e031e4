//! Counts of things that exist right now. A [`CountGuard`] adds one, and takes it off again when it is dropped.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A number that goes up and down, shared by everything that is counted.
pub trait Count {
    /// Adds one.
    fn increment(&self);
    /// Takes one off.
    fn decrement(&self);
}

/// One thing that is counted until the guard is dropped.
#[derive(Debug)]
#[must_use]
pub struct CountGuard<C: Count>(C);

impl<C: Count> CountGuard<C> {
    /// Counts one more.
    pub fn new(count: C) -> Self {
        count.increment();
        Self(count)
    }
}

impl<C: Count + Deref<Target = AtomicUsize>> CountGuard<C> {
    /// Counts one more, unless `max` are counted already.
    pub fn below(count: C, max: usize) -> Option<Self> {
        let one_more = |now| if now < max { Some(now + 1) } else { None };
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Self(count))
    }
}

impl<C: Count> Drop for CountGuard<C> {
    fn drop(&mut self) {
        self.0.decrement();
    }
}

impl Count for AtomicUsize {
    fn increment(&self) {
        self.fetch_add(1, Ordering::Relaxed);
    }

    fn decrement(&self) {
        self.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<C: Count + ?Sized> Count for &C {
    fn increment(&self) {
        (**self).increment();
    }

    fn decrement(&self) {
        (**self).decrement();
    }
}

impl<C: Count + ?Sized> Count for Arc<C> {
    fn increment(&self) {
        (**self).increment();
    }

    fn decrement(&self) {
        (**self).decrement();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_counts_until_it_is_dropped() {
        let count = Arc::new(AtomicUsize::new(0));
        let first = CountGuard::new(Arc::clone(&count));
        let second = CountGuard::below(&*count, 2).expect("one is counted");
        assert!(CountGuard::below(&*count, 2).is_none(), "two are counted");
        assert_eq!(count.load(Ordering::Relaxed), 2);
        drop((first, second));
        assert_eq!(count.load(Ordering::Relaxed), 0);
    }
}
