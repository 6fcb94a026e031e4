//! How many requests are under way.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A count of the requests under way.
#[derive(Debug, Default)]
pub struct InFlight(AtomicUsize);

impl InFlight {
    /// A place for one more request, or `None` when `most` are taken.
    pub(crate) fn enter(&self, most: usize) -> Option<RequestSlot<'_>> {
        let place = RequestSlot(self);
        if self.0.fetch_add(1, Ordering::Relaxed) < most { Some(place) } else { None }
    }

    /// How many requests are under way.
    #[must_use]
    pub fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A request's place, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct RequestSlot<'a>(&'a InFlight);

impl Drop for RequestSlot<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_come_back() {
        let in_flight = InFlight::default();
        let (first, second) = (in_flight.enter(2), in_flight.enter(2));
        assert!(first.is_some() && second.is_some());
        assert!(in_flight.enter(2).is_none());
        assert_eq!(in_flight.now(), 2);
        drop(first);
        assert!(in_flight.enter(2).is_some());
    }
}
