//! The candidates of shadows. Only a gateway that serves asks them: `call` and `test` also answer questions, and must ask nobody else.

use std::sync::atomic::Ordering;

use super::{Engine, Failure, Landed, run::Run, state::EngineState};
use crate::shadow::Own;
use domain::generator::Query;

impl Engine {
    /// Asks candidates from now on.
    pub fn ask_candidates(&self) {
        self.known.asks_candidates.store(true, Ordering::Relaxed);
    }
}

impl Run {
    /// Lets the route's shadow follow this run, which came to `landed`. Returns at once.
    pub(super) fn let_follow(&self, known: &EngineState, landed: &Landed) {
        let route = &self.asked.route;
        let Some(shadow) = route.shadow.as_ref().filter(|_| known.asks_candidates.load(Ordering::Relaxed)) else {
            return;
        };
        let query = Query { ttl: route.policy.ttl(), ..self.asked.query.clone() };
        let own = match landed {
            Ok(entry) => Own::Answer(entry.encoded.clone()),
            Err(Failure::Held(_)) => Own::Held,
            Err(_) => Own::Failed,
        };
        shadow.follow(query, self.asked.key, own);
    }
}
