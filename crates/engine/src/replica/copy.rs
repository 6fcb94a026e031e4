//! A replica's copy of the shared store.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::cache::{Key, Revision};
use domain::{
    clock::Timestamp,
    generator::{Question, Selector},
};
use store::{CopyState, StoreError};

/// The version of a record is forgotten after this time without a change: a day after the store has dropped the record.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(31 * 24);
/// How often versions are forgotten.
const SWEEP_EVERY: Duration = Duration::from_hours(1);

/// The store when a copy held all of it. It is in the file too, so that another process can compute how old the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WhenComplete {
    /// How many replicas were live, this one included.
    pub(crate) replicas: usize,
    /// All changes up to this version were in the copy.
    pub(crate) version: u64,
}

/// This replica's copy of the store.
#[derive(Debug)]
pub(crate) struct Copy {
    pub(crate) epoch: Option<String>,
    /// Whether the copy was offered in `epoch`.
    pub(crate) has_offered: bool,
    /// The revisions that this replica last registered.
    pub(crate) registered: HashMap<Arc<str>, Revision>,
    /// All changes up to this version are here.
    pub(crate) version: u64,
    pub(crate) invalidation: u64,
    /// Up to this number, invalidations are not known: they may have selected anything.
    pub(crate) floor: u64,
    /// The recent invalidations of this epoch, by their numbers.
    pub(crate) invalidations: VecDeque<(u64, Selector)>,
    pub(crate) highest: u64,
    pub(crate) state: CopyState,
    /// When the copy was last complete, if it is complete.
    pub(crate) complete: Option<WhenComplete>,
    /// The file had all changes up to this version when it was opened. 0: it is not known.
    pub(crate) filed_version: u64,
    pub(crate) versions: HashMap<Key, KnownRecord>,
    /// When the versions of dropped records were last forgotten.
    pub(crate) swept: Instant,
    /// The versions before this epoch, until all of it is known: they are offered again if yet another epoch begins.
    pub(crate) before: HashMap<Key, u64>,
    /// The versions of records that other serving replicas may not know, and when they came here.
    pub(crate) unacknowledged: HashMap<Key, (u64, Instant)>,
    pub(crate) acknowledged: u64,
    /// Records that cannot be read.
    pub(crate) unreadable: HashSet<Key>,
    pub(crate) is_recovering: bool,
    pub(crate) lost_at: Option<Timestamp>,
    /// Routes of which the store names another revision.
    pub(crate) outdated: HashSet<Arc<str>>,
    /// Since when no live replica has all the revisions that the store names.
    pub(crate) orphaned: Option<Instant>,
    pub(crate) replicas: usize,
    /// Why there is no contact.
    pub(crate) why: String,
    pub(crate) is_logged_in_contact: bool,
    /// The last error in the log.
    pub(crate) logged: Option<StoreError>,
}

/// A record that is here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownRecord {
    pub(crate) version: u64,
    /// The number of the run that brought its answer.
    pub(crate) run: u64,
    /// Whether its answer was stored in this epoch, and so may be served.
    pub(crate) is_served: bool,
    /// When it came.
    pub(crate) at: Instant,
}

impl Copy {
    /// The copy of a replica that was never in contact.
    pub(crate) fn new() -> Self {
        Self {
            epoch: None,
            has_offered: false,
            registered: HashMap::new(),
            version: 0,
            invalidation: 0,
            floor: 0,
            invalidations: VecDeque::new(),
            highest: 0,
            state: CopyState::Empty,
            complete: None,
            filed_version: 0,
            versions: HashMap::new(),
            swept: Instant::now(),
            before: HashMap::new(),
            unacknowledged: HashMap::new(),
            acknowledged: 0,
            unreadable: HashSet::new(),
            is_recovering: false,
            lost_at: None,
            outdated: HashSet::new(),
            orphaned: None,
            replicas: 0,
            why: "no contact yet".to_owned(),
            is_logged_in_contact: false,
            logged: None,
        }
    }

    /// Forgets the versions of records that the store has dropped.
    pub(crate) fn forget_dropped(&mut self) {
        if self.swept.elapsed() >= SWEEP_EVERY {
            self.swept = Instant::now();
            self.versions.retain(|_, known| known.at.elapsed() < FORGOTTEN_AFTER);
            self.unreadable.retain(|key| self.versions.contains_key(key));
        }
    }

    /// Whether an invalidation after number `since` selects `question`.
    pub(crate) fn is_invalidated(&self, since: u64, question: &Question) -> bool {
        let selects = |(number, selector): &(u64, Selector)| *number > since && selector.selects(question);
        since < self.floor || since < self.invalidation && self.invalidations.iter().any(selects)
    }

    /// The version of the record under `key` that is here. 0: none.
    pub(crate) fn version_of(&self, key: &Key) -> u64 {
        self.versions.get(key).map_or(0, |known| known.version)
    }

    /// Records that the record under `key` is here in `version`, with the answer of `run`.
    pub(crate) fn store(&mut self, key: Key, version: u64, run: (u64, bool), is_readable: bool) {
        let (run, is_served) = run;
        self.versions.insert(key, KnownRecord { version, run, is_served, at: Instant::now() });
        if is_readable {
            self.unreadable.remove(&key);
        } else {
            self.unreadable.insert(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store drops a record 30 days after its last change.
    #[tokio::test(start_paused = true)]
    async fn versions_of_dropped_records_are_forgotten() {
        let (old, young) = (Key::of_bytes([1; 32]), Key::of_bytes([2; 32]));
        let day = Duration::from_hours(24);
        let mut copy = Copy::new();
        copy.store(old, 1, (1, true), false);
        tokio::time::advance(day * 30).await;
        copy.store(young, 2, (2, true), false);
        copy.forget_dropped();
        assert_eq!((copy.version_of(&old), copy.unreadable.len()), (1, 2));
        tokio::time::advance(day).await;
        copy.forget_dropped();
        assert_eq!((copy.version_of(&old), copy.version_of(&young), copy.unreadable.len()), (0, 2, 1));
    }
}
