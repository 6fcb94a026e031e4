//! The clock of a replica: the machine's clock, corrected by the store's time.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use domain::clock::{Clock, Timestamp};

/// A clock that shows the store's time once it is known.
pub struct SharedClock {
    own: Arc<dyn Clock>,
    /// The store's time minus this machine's, in milliseconds.
    offset: AtomicI64,
}

impl SharedClock {
    /// The clock of this machine, uncorrected.
    pub fn new(own: Arc<dyn Clock>) -> Self {
        Self { own, offset: AtomicI64::new(0) }
    }

    /// The machine's own time.
    pub(crate) fn own(&self) -> Timestamp {
        self.own.now()
    }

    /// Corrects the clock: the store's time was `store` at some moment between `sent` and `received` by the machine's own time.
    pub(crate) fn correct(&self, sent: Timestamp, received: Timestamp, store: Timestamp) {
        let middle = i128::midpoint(i128::from(sent.0), i128::from(received.0));
        let offset = i64::try_from(i128::from(store.0) - middle).unwrap_or_default();
        self.offset.store(offset, Ordering::Relaxed);
    }
}

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.own.now().0.saturating_add_signed(self.offset.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::clock::SystemClock;

    #[test]
    fn a_clock_that_is_off_shows_the_stores_time() {
        struct Fixed;
        impl Clock for Fixed {
            fn now(&self) -> Timestamp {
                Timestamp(1_000_000)
            }
        }
        let clock = SharedClock::new(Arc::new(Fixed));
        assert_eq!(clock.now(), Timestamp(1_000_000));
        for off in [-300_000_i64, 0, 300_000] {
            let store = Timestamp(1_000_000_u64.saturating_add_signed(off));
            clock.correct(Timestamp(999_990), Timestamp(1_000_010), store);
            assert_eq!(clock.now(), store);
        }
        assert!(SharedClock::new(Arc::new(SystemClock)).now().0 > 1_700_000_000_000);
    }
}
