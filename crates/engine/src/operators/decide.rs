//! Decides on a held answer.

use std::sync::Arc;

use crate::{
    answer::{Engine, Unknown, live::live},
    cache::{Key, KeyStart, NotOne},
    guard::{Decision, Held},
    operators::Operator,
    route::RouteTable,
    state::notices::What,
};
use store::StoreError;

/// Why a decision was not recorded.
#[derive(Debug)]
pub enum NotDecided {
    /// No answer, or more than one, matches this id.
    NotOne(NotOne),
    /// A different answer is held now.
    Changed,
    /// The shared store does not answer.
    Store(StoreError),
}

impl From<NotOne> for NotDecided {
    fn from(why: NotOne) -> Self {
        Self::NotOne(why)
    }
}

impl From<StoreError> for NotDecided {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The effect of a decision.
#[derive(Debug)]
pub struct Decided {
    /// The answer that was held.
    pub was: Held,
    /// The answer that is held now.
    pub is: Option<Held>,
    /// Why there is no new answer.
    pub unknown: Option<Unknown>,
}

impl Engine {
    /// The held answers, by lineage.
    #[must_use]
    pub fn held(&self) -> Vec<(Key, Held)> {
        self.known.held.list(self.clock.now())
    }

    /// How many answers are held.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.known.held.routes(self.clock.now()).len()
    }

    /// Records `decision` on the answer held under `id`. After a release, calls the backend once more. If `fingerprint` is set, the
    /// held answer must still have it.
    ///
    /// # Errors
    /// When nothing or several answers are held under `id`, another answer is held there, or the shared store does not answer.
    pub async fn decide(
        &self,
        routes: &RouteTable,
        id: &KeyStart,
        fingerprint: Option<&str>,
        decision: Decision,
        by: &Operator,
    ) -> Result<Decided, NotDecided> {
        let decide = || {
            let now = self.clock.now();
            let held = self.known.held.find(id, now)?;
            if fingerprint.is_some_and(|fingerprint| fingerprint != held.fingerprint()) {
                return Err(NotDecided::Changed);
            }
            Ok((held.lineage, held.decided(decision, now)))
        };
        let (lineage, held) = self.known.decide(decide).await?;
        tracing::info!(
            request_id = by.request_id,
            caller = by.caller,
            id = %lineage,
            route = &*held.question.route,
            application_set = held.question.application_set.as_deref(),
            ?decision,
            reason = by.reason,
            "an operator decided"
        );
        let mut unknown = None;
        if decision == Decision::Released
            && let Some(resolved) = live(routes, &held.question)
        {
            self.known.failing.recovered(&resolved.key);
            unknown = self.wait_for_run(&Arc::new(resolved), self.clock.now()).await.err();
            self.known.notices.send(held.key, &held.question, || What::Released);
        }
        Ok(Decided { was: held, is: self.known.held.get(&lineage, self.clock.now()), unknown })
    }
}
