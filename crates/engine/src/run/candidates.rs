//! The candidates of shadows. Only a gateway that serves calls them: `call` and `test` also answer questions, and must call no other
//! backend.

use std::sync::atomic::Ordering;

use crate::{
    failure::Failure,
    run::{Finished, Run},
    shadow::Own,
    state::EngineState,
};
use domain::generator::Query;

impl Run {
    /// Lets the route's shadow follow this run, which came to `finished`. Returns at once.
    pub(crate) fn let_follow(&self, known: &EngineState, finished: &Finished) {
        let route = &self.resolved.route;
        let Some(shadow) = route.shadow.as_ref().filter(|_| known.calls_candidates.load(Ordering::Relaxed)) else {
            return;
        };
        let query = Query { ttl: route.policy.ttl(), ..self.resolved.query.clone() };
        let own = match finished {
            Ok(entry) => Own::Answer(entry.encoded.clone()),
            Err(Failure::Held(_)) => Own::Held,
            Err(_) => Own::Failed,
        };
        shadow.follow(query, self.resolved.key, own);
    }
}
