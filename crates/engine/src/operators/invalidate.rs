//! Operators invalidate answers.

use crate::{
    answer::{Engine, expire::Invalidated},
    operators::Operator,
    route::RouteTable,
};
use domain::generator::Selector;
use store::StoreError;

impl Engine {
    /// Makes the answers that `selector` selects wait for a call of the backend. The answers stay as last good
    /// answers, so an invalidation never lets a loss pass. Waits until the change is on disk.
    pub fn invalidate(&self, routes: &RouteTable, selector: &Selector, by: &Operator) -> Invalidated {
        let done = self.expire(routes, std::slice::from_ref(selector));
        tracing::info!(
            request_id = by.request_id,
            caller = by.caller,
            route = selector.route,
            application_set = selector.application_set,
            answers = done.answers,
            runs = done.runs,
            "invalidated"
        );
        done
    }

    /// Notifies all other replicas of an invalidation.
    ///
    /// # Errors
    /// When replicas share a store, and it does not answer.
    pub async fn publish_invalidation(&self, selector: &Selector) -> Result<(), StoreError> {
        self.known.peers.publish_invalidation(selector).await
    }
}
