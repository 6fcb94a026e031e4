//! How many requests are under way.

use std::sync::atomic::{AtomicUsize, Ordering};

use telemetry::count::CountGuard;

/// A count of the requests under way.
#[derive(Debug, Default)]
pub struct InFlight(AtomicUsize);

/// A request that counts as under way until the slot is dropped.
pub(crate) type RequestSlot<'a> = CountGuard<&'a AtomicUsize>;

impl InFlight {
    /// A slot for one more request, or `None` when `max` are taken.
    pub(crate) fn enter(&self, max: usize) -> Option<RequestSlot<'_>> {
        CountGuard::below(&self.0, max)
    }

    /// How many requests are under way.
    #[must_use]
    pub fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_and_become_free_again() {
        let in_flight = InFlight::default();
        let (first, second) = (in_flight.enter(2), in_flight.enter(2));
        assert!(first.is_some() && second.is_some());
        assert!(in_flight.enter(2).is_none());
        assert_eq!(in_flight.now(), 2);
        drop(first);
        assert!(in_flight.enter(2).is_some());
    }
}
