//! The replicas of one remote: their addresses, and who is asked first.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::SystemTime,
};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::{Duration, Instant};

use super::link::Link;
use crate::archive::digest::TreeDigest;
use domain::bounded_cache::Recent;

/// How many calls a replica gets of one relay before its share of all calls counts: a tree is sent to as few replicas as possible.
const AT_LEAST: usize = 8;
/// How long a replica that failed is asked last.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How many trees that were sent are remembered.
const MAX_PUTS: usize = 1000;

/// A tree that is being sent, or was: whether, and when it was done.
pub(super) type Sent = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// One replica.
#[derive(Debug)]
pub(super) struct Replica {
    /// Where it is.
    pub(super) address: SocketAddr,
    /// The name that has this address.
    pub(super) host: String,
    link: Mutex<Option<Link>>,
    /// One call connects, and others wait for it.
    pub(super) connecting: tokio::sync::Mutex<()>,
    calls: AtomicUsize,
    sent: Recent<TreeDigest, Sent>,
    state: Mutex<ReplicaState>,
}

/// What is known of a replica.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplicaState {
    /// Why it could not be asked the last time, if it could not.
    pub(super) trouble: Option<String>,
    failed: Option<Instant>,
    /// The last failure, also if all is well since then.
    pub(super) last_failure: Option<(SystemTime, String)>,
}

/// A call of a replica that is under way.
pub(super) struct Calling(Arc<Replica>);

impl Replica {
    fn new(address: SocketAddr, host: String) -> Self {
        Self {
            address,
            host,
            link: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            calls: AtomicUsize::new(0),
            sent: Recent::new(MAX_PUTS),
            state: Mutex::default(),
        }
    }

    /// The connection, if there is one that is open.
    pub(super) fn link(&self) -> Option<Link> {
        self.link.lock().clone().filter(Link::is_open)
    }

    /// Calls use `link` from now on.
    pub(super) fn connected(&self, link: Link) {
        *self.link.lock() = Some(link);
        self.answered();
    }

    /// It has answered.
    pub(super) fn answered(&self) {
        let mut state = self.state.lock();
        (state.trouble, state.failed) = (None, None);
    }

    /// It could not be asked.
    pub(super) fn failed(&self, why: &str) {
        let mut state = self.state.lock();
        state.trouble = Some(why.to_owned());
        state.failed = Some(Instant::now());
        state.last_failure = Some((SystemTime::now(), why.to_owned()));
    }

    /// Its connection is not used any more.
    pub(super) fn drop_link(&self) {
        self.link.lock().take();
    }

    /// A call begins.
    pub(super) fn calling(self: &Arc<Self>) -> Calling {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Calling(Arc::clone(self))
    }

    /// How many calls are under way.
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Who sends the tree `digest`.
    pub(super) fn sent(&self, digest: TreeDigest) -> Sent {
        self.sent.get_or_insert_with(digest, Sent::default)
    }

    /// What is known.
    pub(super) fn state(&self) -> ReplicaState {
        self.state.lock().clone()
    }

    /// Why it could not be asked, if that was tried since `began`.
    pub(super) fn trouble_since(&self, began: Instant) -> Option<String> {
        let state = self.state.lock();
        state.trouble.clone().filter(|_| state.failed.is_some_and(|at| at >= began))
    }

    fn is_failing(&self) -> bool {
        self.state.lock().failed.is_some_and(|at| at.elapsed() < AFTER_FAILURE)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All replicas.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    known: Mutex<BTreeMap<SocketAddr, Arc<Replica>>>,
    /// Why names have no addresses, by these names.
    problems: Mutex<BTreeMap<String, String>>,
}

impl Replicas {
    /// These addresses, with their hosts, are there now. What is known of others is forgotten; their open calls go on. Those of a host with one of
    /// the `problems` stay: a name server may be away.
    pub(super) fn set(&self, found: BTreeMap<SocketAddr, String>, problems: BTreeMap<String, String>) {
        let mut known = self.known.lock();
        known.retain(|address, replica| found.contains_key(address) || problems.contains_key(&replica.host));
        *self.problems.lock() = problems;
        for (address, host) in found {
            known.entry(address).or_insert_with(|| Arc::new(Replica::new(address, host)));
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<Replica>> {
        self.known.lock().values().cloned().collect()
    }

    /// Why names have no addresses.
    pub(super) fn problem(&self) -> Option<String> {
        let problems = self.problems.lock();
        (!problems.is_empty()).then(|| problems.values().cloned().collect::<Vec<_>>().join("; "))
    }

    /// All of them, in the order in which a call about the tree `key` asks: by rendezvous, those that have more than their share of calls later,
    /// and those that have failed last.
    pub(super) fn order(&self, key: &TreeDigest) -> Vec<Arc<Replica>> {
        let mut all = self.all();
        let calls: usize = all.iter().map(|replica| replica.calls()).sum();
        let share = ((calls + 1) * 5).div_ceil(4 * all.len().max(1)).max(AT_LEAST);
        all.sort_by_cached_key(|replica| {
            let place = Sha256::new_with_prefix(key.bytes()).chain_update(replica.address.to_string()).finalize();
            (replica.is_failing(), replica.calls() >= share, place)
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replicas(ports: impl IntoIterator<Item = u16>) -> Replicas {
        let replicas = Replicas::default();
        replicas.set(
            ports.into_iter().map(|port| (SocketAddr::from(([10, 0, 0, 1], port)), "x".to_owned())).collect(),
            BTreeMap::new(),
        );
        replicas
    }

    fn key(number: u8) -> TreeDigest {
        TreeDigest::from_bytes(&[number; 32]).unwrap()
    }

    fn first(replicas: &Replicas, number: u8) -> u16 {
        replicas.order(&key(number))[0].address.port()
    }

    #[test]
    fn a_tree_stays_where_it_is_when_replicas_come_and_go() {
        let (three, four) = (replicas(1..4), replicas(1..5));
        let moved = (0..200).filter(|number| first(&three, *number) != first(&four, *number));
        let moved: Vec<u16> = moved.map(|number| first(&four, number)).collect();
        assert!(moved.iter().all(|port| *port == 4), "only to the new one");
        assert!((20..90).contains(&moved.len()), "about a quarter: {}", moved.len());
        four.set(BTreeMap::new(), BTreeMap::from([("x".to_owned(), "no name server".to_owned())]));
        assert_eq!(four.all().len(), 4, "addresses stay when names cannot be resolved");
        four.set(BTreeMap::new(), BTreeMap::new());
        assert!(four.all().is_empty());
    }

    #[test]
    fn a_busy_replica_and_one_that_failed_come_later() {
        let replicas = replicas(1..3);
        let chosen = Arc::clone(&replicas.order(&key(0))[0]);
        let mut calls: Vec<Calling> = (0..AT_LEAST).map(|_| chosen.calling()).collect();
        assert_ne!(first(&replicas, 0), chosen.address.port());
        calls.pop();
        assert_eq!(first(&replicas, 0), chosen.address.port());
        chosen.failed("x");
        assert_ne!(first(&replicas, 0), chosen.address.port());
    }
}
