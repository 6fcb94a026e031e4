//! The candidates of shadows. Only a gateway that serves asks them: `call` and `test` also answer questions, and must ask nobody else.

use std::sync::atomic::Ordering;

use super::{
    Engine,
    run::{Ended, Run},
    state::EngineState,
};
use crate::domain::generator::Query;

impl Engine {
    /// Asks candidates from now on.
    pub fn ask_candidates(&self) {
        self.known.asks_candidates.store(true, Ordering::Relaxed);
    }
}

impl Run {
    /// Lets the route's shadow follow this run, which has `ended`. Returns at once.
    pub(super) fn let_follow(&self, known: &EngineState, ended: &Ended) {
        let route = &self.asked.route;
        let Some(shadow) = route.shadow.as_ref().filter(|_| known.asks_candidates.load(Ordering::Relaxed)) else {
            return;
        };
        let query = Query { ttl: route.policy.ttl(), ..self.asked.query.clone() };
        let answer = ended.result.as_ref().ok().map(|found| found.encoded.clone());
        shadow.follow(query, self.asked.key, answer);
    }
}
