//! Limits the number of connections, in all and per address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The open connections, counted.
#[derive(Debug)]
pub(crate) struct Peers {
    max: usize,
    max_per_peer: usize,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// The permit of an open connection, returned when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    peers: Arc<Peers>,
    peer: IpAddr,
}

impl Peers {
    /// No connections yet.
    pub(crate) fn new(max: usize, max_per_peer: usize) -> Self {
        Self { max, max_per_peer, now: Mutex::default() }
    }

    /// A permit for one more connection of `peer`; `None` at a limit.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionPermit> {
        // A listener on `[::]` sees IPv4 peers as IPv6 addresses; both count as one address.
        let peer = peer.to_canonical();
        let mut now = self.now();
        let of_peer = now.by_peer.get(&peer).copied().unwrap_or_default();
        if now.all >= self.max || of_peer >= self.max_per_peer {
            return None;
        }
        now.all += 1;
        now.by_peer.insert(peer, of_peer + 1);
        Some(ConnectionPermit { peers: Arc::clone(self), peer })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut now = self.peers.now();
        now.all -= 1;
        if let Some(of_peer) = now.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                now.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_and_come_back() {
        let peers = Arc::new(Peers::new(3, 2));
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        let first = peers.enter(one).unwrap();
        let second = peers.enter("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert!(peers.enter(one).is_none());
        let third = peers.enter(other).unwrap();
        assert!(peers.enter(other).is_none(), "there are three");
        drop(first);
        let again = peers.enter(one).unwrap();
        drop((second, third, again));
        assert!(peers.now().by_peer.is_empty() && peers.now().all == 0);
    }
}
