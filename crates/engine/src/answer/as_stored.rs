//! Answers of a replica that has another configuration of a route than the store names: it serves the store's answers, and starts no runs.

use crate::{
    answer::{Answer, AnswerSource, Engine, Unknown, last_good::fallback},
    cache::{Freshness, MadeUnder},
    failure::Failure,
    route::ResolvedQuery,
};

impl Engine {
    /// The answer to `resolved` that the store has, else the last good one of its lineage. `why` is the reason why there is no run.
    ///
    /// # Errors
    /// When the store has none that may be served.
    pub(crate) fn answer_as_stored(&self, resolved: &ResolvedQuery, why: String) -> Result<Answer, Unknown> {
        let (route, now) = (&*resolved.route, self.clock.now());
        for key in [resolved.key, resolved.lineage()] {
            let Some(entry) = self.known.answers.get(&key) else { continue };
            // Another revision's answer counts. One that this replica's keys do not verify never does.
            let MadeUnder { trust, .. } = entry.made_under;
            let is_usable = self.known.peers.may_serve(&key) && route.trust().accepts(trust);
            let freshness = route.policy.state(entry.stored_at, entry.life, now);
            let Some(stale) = freshness.stale().filter(|_| is_usable) else { continue };
            if let Freshness::Fresh { age, left } = freshness
                && key == resolved.key
            {
                route.metrics.hits.inc();
                return Ok(Answer { entry, source: AnswerSource::Hit { age, left } });
            }
            if key == resolved.key && self.known.is_outshone(resolved, &entry, now) {
                continue;
            }
            return Ok(fallback(route, entry, stale, Unknown::new(Failure::Store(why), None)));
        }
        let unknown = Unknown::new(Failure::Store(why), None);
        Err(Unknown { unusable: self.unusable(resolved), ..unknown })
    }
}
