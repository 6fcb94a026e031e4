//! An answer is chosen first. Then its change must be acknowledged by all replicas that answer, and this one in contact: see
//! [`crate::replica::acknowledge`].

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    answer::{Answer, AnswerSource, Engine, Unknown},
    cache::Freshness,
    failure::Failure,
    replica::{Replica, acknowledge::Acknowledged, contact::Pauses},
    route::ResolvedQuery,
};

/// A call ends this long before its deadline, so that the reason still arrives.
const MARGIN: Duration = Duration::from_millis(100);

/// Whether `answer` was stored before the call, so that it costs nothing to choose one again.
fn is_stored(answer: &Result<Answer, Unknown>) -> bool {
    matches!(answer, Ok(Answer { source: AnswerSource::Hit { .. } | AnswerSource::StaleWhileRevalidate(..), .. }))
}

impl Engine {
    /// Whether `answer`, which was chosen in contact a moment ago, may be served as it is.
    pub(crate) fn is_final(shared: &Replica, answer: &Result<Answer, Unknown>) -> bool {
        is_stored(answer) && !shared.has_unacknowledged()
    }

    /// The answer to `resolved`, of which `answer` is the first that was chosen: one that is acknowledged while this replica is in contact.
    ///
    /// # Errors
    /// When there is none by the deadline.
    pub(crate) async fn acknowledged_answer(
        &self,
        shared: &Replica,
        resolved: &Arc<ResolvedQuery>,
        mut answer: Result<Answer, Unknown>,
    ) -> Result<Answer, Unknown> {
        let deadline = resolved.query.deadline;
        let margin = MARGIN.min(resolved.route.deadline / 10);
        let until = deadline.checked_sub(margin).unwrap_or(deadline);
        let keys = [resolved.key, resolved.lineage()];
        let mut pauses = Pauses::default();
        loop {
            let acknowledged = shared.acknowledged(&keys, until).await;
            if acknowledged == Acknowledged::TooLate {
                let why = "other replicas have not read the new answer yet";
                return Err(Unknown::new(Failure::Store(why.to_owned()), None));
            }
            if let Some(later) = self.later_than(resolved, &answer) {
                answer = Ok(later);
                continue;
            }
            if !shared.is_in_contact() {
                if let Err(error) = shared.regain(until).await {
                    return Err(Unknown::new(error.into(), None));
                }
            } else if Self::may_be_repeated(shared, resolved, &answer) {
                if !pauses.next(until).await {
                    return answer;
                }
            } else if acknowledged == Acknowledged::Already
                || Instant::now() >= until
                || !self.may_choose_again(resolved, &answer)
            {
                return answer;
            }
            answer = self.answer_now(resolved).await;
        }
    }

    /// Whether another answer may be there by now: `answer` was stored before, or there was none.
    fn may_choose_again(&self, resolved: &ResolvedQuery, answer: &Result<Answer, Unknown>) -> bool {
        let has_one = || self.known.usable(&resolved.route, &resolved.key, self.clock.now()).is_some();
        is_stored(answer) || (answer.is_err() && has_one())
    }

    /// Whether the store was the reason for there being no answer, and may do better the next time.
    fn may_be_repeated(shared: &Replica, resolved: &ResolvedQuery, answer: &Result<Answer, Unknown>) -> bool {
        let is_of_store = matches!(answer, Err(Unknown { failure: Failure::Store(_), .. }));
        is_of_store && shared.why_outdated(&resolved.route).is_none()
    }

    /// The answer that another run stored while `answer` was waited for.
    fn later_than(&self, resolved: &ResolvedQuery, answer: &Result<Answer, Unknown>) -> Option<Answer> {
        let Ok(Answer { entry, source }) = answer else { return None };
        let latest = self.known.answers.memory().get(&resolved.key)?;
        if latest.run_number <= entry.run_number {
            return None;
        }
        let (entry, freshness) = self.known.usable(&resolved.route, &resolved.key, self.clock.now())?;
        let source = match (freshness, source) {
            (Freshness::Fresh { age, left }, _) => AnswerSource::Hit { age, left },
            (_, AnswerSource::Miss { .. }) => AnswerSource::Miss { shared: true },
            (_, AnswerSource::StaleIfError(_, unknown)) => {
                AnswerSource::StaleIfError(freshness.stale()?, unknown.clone())
            }
            // It is chosen again.
            _ => return None,
        };
        Some(Answer { entry, source })
    }
}
