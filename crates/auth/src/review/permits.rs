//! Permits for reviews of unknown tokens: a few in all, and fewer per address, so that one address cannot keep the others waiting for long.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::budget::address_group;

/// All permits.
#[derive(Debug)]
pub(super) struct ReviewPermits {
    all: Semaphore,
    max_per_peer: usize,
    by_peer: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A permit, returned when it is dropped.
#[derive(Debug)]
pub(super) struct ReviewPermit<'a> {
    _of_all: SemaphorePermit<'a>,
    _of_peer: OwnedSemaphorePermit,
    /// The last field, because its drop checks whether the permits are returned.
    _interest: Interest<'a>,
}

/// Keeps an address's entry while it has a permit or waits for one.
#[derive(Debug)]
struct Interest<'a> {
    permits: &'a ReviewPermits,
    peer: IpAddr,
}

impl ReviewPermits {
    /// So many permits in all, and per address.
    pub(super) fn new(max: usize, max_per_peer: usize) -> Self {
        Self { all: Semaphore::new(max), max_per_peer, by_peer: Mutex::default() }
    }

    /// Waits for a permit for `peer`. Waiting for others at the same address does not delay other addresses.
    ///
    /// # Errors
    /// Never: the semaphores are not closed.
    pub(super) async fn enter(&self, peer: IpAddr) -> Result<ReviewPermit<'_>, AcquireError> {
        let interest = Interest { permits: self, peer: address_group(peer) };
        let own = || Arc::new(Semaphore::new(self.max_per_peer));
        let of_peer = Arc::clone(self.by_peer().entry(interest.peer).or_insert_with(own));
        let of_peer = of_peer.acquire_owned().await?;
        Ok(ReviewPermit { _of_all: self.all.acquire().await?, _of_peer: of_peer, _interest: interest })
    }

    fn by_peer(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Semaphore>>> {
        self.by_peer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Interest<'_> {
    fn drop(&mut self) {
        let mut by_peer = self.permits.by_peer();
        if by_peer.get(&self.peer).is_some_and(|of_peer| Arc::strong_count(of_peer) == 1) {
            by_peer.remove(&self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_address_waits_only_for_itself_and_its_entry_is_removed() {
        let permits = ReviewPermits::new(3, 2);
        let [one, other, third]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap());
        let first = permits.enter(one).await.unwrap();
        let second = permits.enter("::ffff:10.0.0.1".parse().unwrap()).await.unwrap();
        let mut waiting = pin!(permits.enter(one));
        assert!(waiting.as_mut().now_or_never().is_none());
        let of_other = permits.enter(other).now_or_never().expect("one is left").unwrap();
        assert!(permits.enter(third).now_or_never().is_none(), "there are three");
        assert_eq!(permits.by_peer().len(), 2, "an address that stopped waiting has no entry");
        drop(of_other);
        let of_third = permits.enter(third).now_or_never().expect("one is left").unwrap();
        drop(first);
        let again = waiting.now_or_never().expect("the first is free again").unwrap();
        drop((second, of_third, again));
        assert!(permits.by_peer().is_empty());
        assert_eq!(permits.all.available_permits(), 3);
    }
}
