//! Confirmations: the gateway makes further runs for held answers at the times of the guard's rules, so that a
//! real loss does not wait for Argo CD's next call.

use std::sync::Arc;

use crate::{
    answer::{Engine, live::live_under},
    route::RouteTable,
    run::{Wanted, wait},
};
use flight::FlightJoin;

impl Engine {
    /// Starts a run for each held answer that is due, within the limit. Routes come round-robin. Skips a question that
    /// no route of `routes` answers any more, or that is in backoff. Call it once a second.
    pub fn confirm_due(&self, routes: &RouteTable) {
        if !self.may_run() {
            return;
        }
        let now = self.clock.now();
        for held in self.known.held.due(now) {
            let Some(resolved) = live_under(routes, &held.question, &held.key) else { continue };
            let is_same = resolved.lineage() == held.lineage && resolved.route.accepts(&held.question.parameters);
            if !is_same || self.known.failing.backoff(&resolved.key, now).is_some() {
                continue;
            }
            let Ok(permit) = Arc::clone(&self.confirmations).try_acquire_owned() else { return };
            let deadline = resolved.query.deadline;
            if let FlightJoin::Started(result) = self.join(&Arc::new(resolved), Wanted::Since(held.queried_at)) {
                tokio::spawn(async move {
                    let _permit = permit;
                    // The run records its own result.
                    let _ = wait(result, deadline).await;
                });
            }
        }
    }
}
