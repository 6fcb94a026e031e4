//! Answers of a replica that may not record any: the store is away or recovers, or another replica has a newer configuration.

use std::sync::Arc;

use crate::engine::{
    answer::{Answer, AnswerSource, Engine, Failure, Unknown, stand_in},
    cache::{Entry, Freshness, MadeUnder},
    route::ResolvedQuery,
};

impl Engine {
    /// Answers `asked` with what is known here: the answer itself, else the last good answer of its lineage. A question that was never
    /// answered is run once, and the answer is not recorded. `why` says why this replica may not record.
    ///
    /// # Errors
    /// When there is no answer that may be served.
    pub(in crate::engine::answer) async fn answer_alone(
        &self,
        asked: &Arc<ResolvedQuery>,
        why: String,
    ) -> Result<Answer, Unknown> {
        let (route, now) = (&*asked.route, self.clock.now());
        let is_in_contact = self.known.shared.as_ref().is_some_and(|shared| shared.is_in_contact());
        for key in [asked.key, asked.lineage()] {
            let Some(entry) = self.known.answers.get(&key) else { continue };
            // Another revision's answer is served if the store names that revision. One that this replica's keys do not vouch for never is.
            let MadeUnder { revision, trust } = entry.made_under;
            let is_usable = (is_in_contact || revision == route.revision()) && route.trust().accepts(trust);
            let freshness = route.policy.state(entry.stored_at, entry.life, now);
            let Some(stale) = freshness.stale().filter(|_| is_usable) else { continue };
            if let Freshness::Fresh { age, left } = freshness
                && is_in_contact
                && key == asked.key
            {
                route.metrics.hits.inc();
                return Ok(Answer { entry, source: AnswerSource::Hit { age, left } });
            }
            if key == asked.key && self.is_older_and_empty(asked, &entry) {
                continue;
            }
            return Ok(stand_in(route, entry, stale, Unknown::new(Failure::Store(why), None)));
        }
        let answer = Box::pin(self.ask(asked, now)).await;
        answer.map_err(|unknown| Unknown { unusable: self.unusable(asked), ..unknown })
    }

    fn is_older_and_empty(&self, asked: &ResolvedQuery, entry: &Entry) -> bool {
        self.known.is_outshone(asked, entry, self.clock.now())
    }

    /// Starts nothing in the background while this replica may not record answers.
    pub(in crate::engine::answer) fn may_record(&self) -> bool {
        self.known.shared.as_ref().is_none_or(|shared| shared.is_in_contact())
    }
}
