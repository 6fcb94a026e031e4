//! Refreshes that a replica could not make before its end. They are left in the shared store, and another replica makes them.

use std::{collections::HashMap, hash::BuildHasher as _, sync::Arc, time::Duration};

use foldhash::quality::RandomState;

use crate::answer::Engine;
use domain::clock::Timestamp;

/// The list of the refreshes in the store.
const LIST: &str = "refreshes";
/// For how long another replica may take them. Later, Argo CD has reconciled by itself, or soon does.
const LEFT_FOR: Duration = Duration::from_mins(30);

/// For how long a replica that took a refresh has it for itself. If it has not noted by then that it is done, another one takes it: the
/// replica may have been killed. A refresh that is made twice does no harm.
const LEASE: Duration = Duration::from_mins(1);

/// Notes of the store that were read: the name of an ApplicationSet, and the note. Each is read again at this time.
pub type SeenNotes = HashMap<(String, String), Timestamp>;

/// A refresh that this replica makes in place of one that has ended.
#[derive(Debug)]
pub struct LeftRefresh {
    /// The ApplicationSet.
    pub name: Arc<str>,
    /// Names the refresh in the store.
    pub receipt: String,
}

impl Engine {
    /// Leaves it to other replicas to notify these ApplicationSets. Returns whether the store has taken it.
    pub async fn leave_refreshes(&self, names: &[Arc<str>]) -> bool {
        if self.known.peers.replica().is_none() {
            return false;
        }
        let (now, hasher) = (self.clock.now(), RandomState::default());
        // Each note is another one, so that a later request is not taken for an earlier one that was fulfilled.
        let notes: Vec<(String, String)> = names
            .iter()
            .map(|name| (name.to_string(), format!("{} {:x}", now.0, hasher.hash_one((name, now.0)))))
            .collect();
        let left = self.known.peers.note(LIST, &notes, LEFT_FOR).await;
        left.inspect_err(|error| tracing::warn!(%error, "the refreshes cannot be left to another replica")).is_ok()
    }

    /// The refreshes that this replica is to make in place of one that has ended. `seen` has the notes of the call before. What is made is
    /// noted by [`Self::note_refreshed`].
    pub async fn left_refreshes(&self, seen: &mut SeenNotes) -> Vec<LeftRefresh> {
        let (now, peers, mut ours) = (self.clock.now(), &self.known.peers, Vec::new());
        // Without contact, they are read a moment later.
        let Ok(notes) = peers.notes(LIST).await else { return ours };
        seen.retain(|known, _| notes.contains(known));
        for (name, note) in notes {
            let at = note.split_once(' ').and_then(|(at, _)| at.parse().ok()).map(Timestamp);
            let is_young = at.is_some_and(|at| now.since(at).is_none_or(|age| age < LEFT_FOR));
            let known = (name, note);
            if !is_young || seen.get(&known).is_some_and(|again| now < *again) {
                continue;
            }
            let receipt = format!("refresh:{}:{}", known.0, known.1);
            let Ok(is_ours) = peers.claim(&receipt, LEASE).await else { break };
            let is_done = is_ours && peers.notes(&receipt).await.is_ok_and(|notes| !notes.is_empty());
            // Another replica has it: it may be killed. This one continues to try by itself.
            let pause = if is_ours { LEFT_FOR } else { LEASE };
            if is_ours && !is_done {
                ours.push(LeftRefresh { name: known.0.as_str().into(), receipt });
            }
            seen.insert(known, now.plus(pause));
        }
        ours
    }

    /// Notes that the refresh `receipt` is no longer needed.
    pub async fn note_refreshed(&self, receipt: &str) {
        self.note_done(receipt, LEFT_FOR).await;
    }

    /// Whether no replica has claimed `name` within the time `lasts`, or noted that its work is done. Without contact with the store, each
    /// replica counts as the first.
    pub async fn is_first(&self, name: &str, lasts: Duration) -> bool {
        let peers = &self.known.peers;
        let is_claimed = peers.claim(name, lasts).await.unwrap_or(true);
        is_claimed && peers.notes(name).await.ok().is_none_or(|notes| notes.is_empty())
    }

    /// Notes for the time `lasts` that the work for `name` is done. Returns whether that worked.
    pub async fn note_done(&self, name: &str, lasts: Duration) -> bool {
        let done = [("done".to_owned(), String::new())];
        let noted = self.known.peers.note(name, &done, lasts).await;
        noted.inspect_err(|error| tracing::debug!(%error, "other replicas do not know that work is done")).is_ok()
    }
}
