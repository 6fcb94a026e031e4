//! Refreshes that a replica could not make before its end. They are left in the shared store, and another replica makes them.

use std::{collections::HashSet, hash::BuildHasher as _, sync::Arc, time::Duration};

use foldhash::quality::RandomState;

use super::Engine;
use crate::domain::clock::Timestamp;

/// The list of the refreshes in the store.
const LIST: &str = "refreshes";
/// For how long another replica may take them. Later, Argo CD has asked by itself, or soon does.
const LEFT_FOR: Duration = Duration::from_mins(30);

/// Notes of the store that were looked at: the name of an ApplicationSet, and what was noted.
pub(crate) type SeenNotes = HashSet<(String, String)>;

impl Engine {
    /// Leaves it to other replicas to tell these ApplicationSets. Returns whether the store has taken it.
    pub(crate) async fn leave_refreshes(&self, names: &[Arc<str>]) -> bool {
        let Some(shared) = &self.known.shared else { return false };
        let (now, hasher) = (self.clock.now(), RandomState::default());
        // Each note is another one, so that a later wish is not taken for an earlier one that was fulfilled.
        let notes: Vec<(String, String)> = names
            .iter()
            .map(|name| (name.to_string(), format!("{} {:x}", now.0, hasher.hash_one((name, now.0)))))
            .collect();
        let left = shared.store().note(LIST, &notes, LEFT_FOR).await;
        left.inspect_err(|error| tracing::warn!(%error, "the refreshes cannot be left to another replica")).is_ok()
    }

    /// The ApplicationSets that this replica is to tell in place of one that has ended. `seen` has the notes of the call before.
    pub(crate) async fn left_refreshes(&self, seen: &mut SeenNotes) -> Vec<Arc<str>> {
        let Some(shared) = &self.known.shared else { return Vec::new() };
        let (now, mut ours) = (self.clock.now(), Vec::new());
        // Without contact, they are read a moment later.
        let Ok(notes) = shared.store().notes(LIST).await else { return ours };
        seen.retain(|known| notes.contains(known));
        for (name, note) in notes {
            let at = note.split_once(' ').and_then(|(at, _)| at.parse().ok()).map(Timestamp);
            let is_young = at.is_some_and(|at| now.since(at).is_none_or(|age| age < LEFT_FOR));
            if !is_young || seen.contains(&(name.clone(), note.clone())) {
                continue;
            }
            let Ok(is_ours) = shared.store().claim(&format!("refresh:{name}:{note}"), LEFT_FOR).await else { break };
            if is_ours {
                ours.push(name.as_str().into());
            }
            seen.insert((name, note));
        }
        ours
    }
}
