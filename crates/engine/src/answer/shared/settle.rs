//! Answers never go back to an earlier one. A change is *settled* when every replica that answers knows it. Until then some replica may
//! still serve the answer before, so nobody serves the new one.
//!
//! A replica answers for [`CONTACT`](store::CONTACT) after its last sync began, and a sync brings all earlier changes. So a
//! change is also settled [`ANSWERING`] after it was seen: this is longer, as clocks differ a little.
//!
//! An answer is chosen first. Then it must be settled, and this replica in contact. So it makes no difference how long the process was
//! stopped in between: an answer that was the last one when it was chosen may have been overtaken since, but nobody else has served
//! another one while this replica was in contact.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use super::{Shared, contact::Pauses};
use crate::{
    answer::{Answer, AnswerSource, Engine, Failure, Unknown},
    cache::{Freshness, Key},
    route::ResolvedQuery,
};
use store::ANSWERING;

/// A call ends this long before its deadline, so that the reason still arrives.
const MARGIN: Duration = Duration::from_millis(100);

/// Whether a change is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    /// It was.
    Already,
    /// It is now. Something may have changed meanwhile.
    AfterWaiting,
    /// Not in time.
    TooLate,
}

impl Shared {
    /// Notes, before they are made here, that the records under `keys` change to `version`.
    pub(super) fn unsettle(&self, keys: &[Key], version: u64) {
        let mut copy = self.copy();
        if version > copy.settled {
            copy.unsettled.extend(keys.iter().map(|key| (*key, (version, Instant::now()))));
            self.has_unsettled.store(!copy.unsettled.is_empty(), Ordering::SeqCst);
        }
    }

    /// Learns that the changes up to `version` are settled.
    pub(super) fn settle(&self, version: u64) {
        let mut copy = self.copy();
        copy.settled = copy.settled.max(version);
        let settled = copy.settled;
        copy.unsettled.retain(|_, (version, since)| *version > settled && since.elapsed() < ANSWERING);
        self.has_unsettled.store(!copy.unsettled.is_empty(), Ordering::SeqCst);
    }

    /// Whether some change is not settled.
    fn has_unsettled(&self) -> bool {
        self.has_unsettled.load(Ordering::SeqCst)
    }

    /// Until when the records under `keys` may not be settled.
    fn unsettled_until(&self, keys: &[Key]) -> Option<Instant> {
        if !self.has_unsettled() {
            return None;
        }
        let copy = self.copy();
        let ends = keys.iter().filter_map(|key| copy.unsettled.get(key)).map(|(_, since)| *since + ANSWERING);
        ends.max().filter(|end| *end > Instant::now())
    }

    /// Waits until the records under `keys` are settled, at most until `until`, also if this replica loses contact: others may still have it.
    async fn settled(&self, keys: &[Key], until: Instant) -> Settled {
        let mut synced = self.synced.subscribe();
        let mut settled = Settled::Already;
        while let Some(end) = self.unsettled_until(keys) {
            if Instant::now() >= until {
                return Settled::TooLate;
            }
            settled = Settled::AfterWaiting;
            let _ = timeout_at(end.min(until), synced.changed()).await;
        }
        settled
    }
}

/// Whether `answer` was stored before it was asked for, so that it costs nothing to choose one again.
fn is_stored(answer: &Result<Answer, Unknown>) -> bool {
    matches!(answer, Ok(Answer { source: AnswerSource::Hit { .. } | AnswerSource::StaleWhileRevalidate(..), .. }))
}

impl Engine {
    /// Whether `answer`, which was chosen in contact a moment ago, may be given as it is.
    pub(in crate::answer) fn is_final(shared: &Shared, answer: &Result<Answer, Unknown>) -> bool {
        is_stored(answer) && !shared.has_unsettled()
    }

    /// The answer to `asked`, of which `answer` is the first that was chosen: one that is settled while this replica is in contact.
    ///
    /// # Errors
    /// When there is none by the deadline.
    pub(in crate::answer) async fn settle_answer(
        &self,
        shared: &Shared,
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
    fn may_be_repeated(shared: &Shared, asked: &ResolvedQuery, answer: &Result<Answer, Unknown>) -> bool {
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
