//! Places for questions about tokens that nobody knows: few, and fewer for each address, so that strangers wait for each other and
//! keep nobody else waiting for long.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::auth::budget::place;

/// The places that there are.
#[derive(Debug)]
pub(crate) struct ReviewPermits {
    all: Semaphore,
    most_per_peer: usize,
    by_peer: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

/// A place, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ReviewPermit<'a> {
    _of_all: SemaphorePermit<'a>,
    _of_peer: OwnedSemaphorePermit,
    /// The last one, since it looks whether the others are gone.
    _interest: Interest<'a>,
}

/// That somebody at an address has a place, or waits for one.
#[derive(Debug)]
struct Interest<'a> {
    places: &'a ReviewPermits,
    peer: IpAddr,
}

impl ReviewPermits {
    /// So many in all, and for each address.
    pub(crate) fn new(most: usize, most_per_peer: usize) -> Self {
        Self { all: Semaphore::new(most), most_per_peer, by_peer: Mutex::default() }
    }

    /// A place for somebody at `peer`, once there is one. Who waits for others at the same address waits in nobody else's way.
    ///
    /// # Errors
    /// Never: places are not closed.
    pub(crate) async fn enter(&self, peer: IpAddr) -> Result<ReviewPermit<'_>, AcquireError> {
        let interest = Interest { places: self, peer: place(peer) };
        let own = || Arc::new(Semaphore::new(self.most_per_peer));
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
        let mut by_peer = self.places.by_peer();
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
    async fn an_address_waits_for_itself_and_leaves_nothing_behind() {
        let places = ReviewPermits::new(3, 2);
        let [one, other, third]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map(|ip| ip.parse().unwrap());
        let first = places.enter(one).await.unwrap();
        let second = places.enter("::ffff:10.0.0.1".parse().unwrap()).await.unwrap();
        let mut waiting = pin!(places.enter(one));
        assert!(waiting.as_mut().now_or_never().is_none());
        let of_other = places.enter(other).now_or_never().expect("one is left").unwrap();
        assert!(places.enter(third).now_or_never().is_none(), "there are three");
        assert_eq!(places.by_peer().len(), 2, "who left waits no more");
        drop(of_other);
        let of_third = places.enter(third).now_or_never().expect("one is left").unwrap();
        drop(first);
        let again = waiting.now_or_never().expect("the first is free again").unwrap();
        drop((second, of_third, again));
        assert!(places.by_peer().is_empty());
        assert_eq!(places.all.available_permits(), 3);
    }
}
