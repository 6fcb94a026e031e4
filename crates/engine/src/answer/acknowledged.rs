//! An answer is chosen first. Then its change must be acknowledged by all replicas that answer, and this one in contact: see
//! [`crate::replica::acknowledge`].

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    answer::{Answer, AnswerSource, Engine, Unknown},
    cache::Freshness,
    failure::Failure,
    replica::{Replica, acknowledge::Settled, contact::Pauses},
    route::ResolvedQuery,
};

/// A call ends this long before its deadline, so that the reason still arrives.
const MARGIN: Duration = Duration::from_millis(100);

/// Whether `answer` was stored before it was asked for, so that it costs nothing to choose one again.
fn is_stored(answer: &Result<Answer, Unknown>) -> bool {
    matches!(answer, Ok(Answer { source: AnswerSource::Hit { .. } | AnswerSource::StaleWhileRevalidate(..), .. }))
}

impl Engine {
    /// Whether `answer`, which was chosen in contact a moment ago, may be given as it is.
    pub(crate) fn is_final(shared: &Replica, answer: &Result<Answer, Unknown>) -> bool {
        is_stored(answer) && !shared.has_unsettled()
    }

    /// The answer to `asked`, of which `answer` is the first that was chosen: one that is settled while this replica is in contact.
    ///
    /// # Errors
    /// When there is none by the deadline.
    pub(crate) async fn settle_answer(
        &self,
        shared: &Replica,
        asked: &Arc<ResolvedQuery>,
        mut answer: Result<Answer, Unknown>,
    ) -> Result<Answer, Unknown> {
        let deadline = asked.query.deadline;
        let margin = MARGIN.min(asked.route.deadline / 10);
        let until = deadline.checked_sub(margin).unwrap_or(deadline);
        let keys = [asked.key, asked.lineage()];
        let mut pauses = Pauses::default();
        loop {
            let settled = shared.settled(&keys, until).await;
            if settled == Settled::TooLate {
                let why = "other replicas have not read the new answer yet";
                return Err(Unknown::new(Failure::Store(why.to_owned()), None));
            }
            if let Some(later) = self.later_than(asked, &answer) {
                answer = Ok(later);
                continue;
            }
            if !shared.is_in_contact() {
                if let Err(error) = shared.regain(until).await {
                    return Err(Unknown::new(error.into(), None));
                }
            } else if Self::may_be_repeated(shared, asked, &answer) {
                if !pauses.next(until).await {
                    return answer;
                }
            } else if settled == Settled::Already || Instant::now() >= until || !self.may_choose_again(asked, &answer) {
                return answer;
            }
            answer = self.answer_now(asked).await;
        }
    }

    /// Whether another answer may be there by now: `answer` was stored before, or there was none.
    fn may_choose_again(&self, asked: &ResolvedQuery, answer: &Result<Answer, Unknown>) -> bool {
        let has_one = || self.known.usable(&asked.route, &asked.key, self.clock.now()).is_some();
        is_stored(answer) || (answer.is_err() && has_one())
    }

    /// Whether the store was the reason for there being no answer, and may do better the next time.
    fn may_be_repeated(shared: &Replica, asked: &ResolvedQuery, answer: &Result<Answer, Unknown>) -> bool {
        let is_of_store = matches!(answer, Err(Unknown { failure: Failure::Store(_), .. }));
        is_of_store && shared.why_outdated(&asked.route).is_none()
    }

    /// The answer that another run stored while `answer` was waited for.
    fn later_than(&self, asked: &ResolvedQuery, answer: &Result<Answer, Unknown>) -> Option<Answer> {
        let Ok(Answer { entry, source }) = answer else { return None };
        let latest = self.known.answers.memory().get_rare(&asked.key)?;
        if latest.run_number <= entry.run_number {
            return None;
        }
        let (entry, freshness) = self.known.usable(&asked.route, &asked.key, self.clock.now())?;
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
