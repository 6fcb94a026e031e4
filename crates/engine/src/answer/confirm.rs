//! Confirmations: the gateway makes further runs for held answers at the times that the guard's rules say, so that a
//! real loss does not wait for Argo CD's next call.

use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{Engine, Wanted, live::live_under, wait};
use crate::route::RouteTable;
use flight::FlightJoin;

/// How many confirmations are under way at once, at most.
const AT_ONCE: usize = 16;

/// Bounds the confirmations that are under way.
#[derive(Debug, Clone)]
pub(super) struct Confirmations(Arc<Semaphore>);

impl Default for Confirmations {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Engine {
    /// Starts a run for each held answer that is due, within the limit. Routes take turns. Skips a question that
    /// no route of `routes` answers any more, or that rests after a failure. Call it once a second.
    pub fn confirm_due(&self, routes: &RouteTable) {
        if !self.may_run() {
            return;
        }
        let now = self.clock.now();
        for held in self.known.held.due(now) {
            let Some(asked) = live_under(routes, &held.question, &held.key) else { continue };
            let is_same = asked.lineage() == held.lineage && asked.route.accepts(&held.question.parameters);
            if !is_same || self.known.failing.resting(&asked.key, now).is_some() {
                continue;
            }
            let Ok(permit) = Arc::clone(&self.confirmations.0).try_acquire_owned() else { return };
            let deadline = asked.query.deadline;
            if let FlightJoin::Started(result) = self.join(&Arc::new(asked), Wanted::Since(held.asked_at)) {
                tokio::spawn(async move {
                    let _permit = permit;
                    // The run records its own result.
                    let _ = wait(result, deadline).await;
                });
            }
        }
    }
}
