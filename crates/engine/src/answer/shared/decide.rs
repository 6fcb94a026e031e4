//! Decisions of operators and invalidations, for all replicas.

use std::time::Duration;

use tokio::time::Instant;

use super::{Shared, contact::Pauses, record};
use crate::{
    answer::{Engine, state::EngineState},
    cache::Key,
    guard::{Decision, Held},
};
use domain::generator::Selector;
use store::{Commit, Committed, Field, StoreError, Write};

/// How long a decision may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a decision is made again because a run changed the held answer meanwhile.
const MAX_ATTEMPTS: usize = 8;

impl Shared {
    /// Changes the held answer that `decide` returns, once this replica knows all changes so far.
    ///
    /// # Errors
    /// When the store does not answer, or `decide` fails.
    pub(in crate::answer) async fn decide<E: From<StoreError>>(
        &self,
        known: &EngineState,
        decide: impl Fn() -> Result<(Key, Held), E>,
    ) -> Result<(Key, Held), E> {
        let (until, mut pauses) = (Instant::now() + TIMEOUT, Pauses::default());
        for attempt in 0..MAX_ATTEMPTS {
            if attempt > 0 && !pauses.next(until).await {
                break;
            }
            self.next_sync(until).await?;
            let (lineage, held) = decide()?;
            let basis = self.basis(&[lineage]);
            let content = record::other(&held);
            let mut writes = vec![Write { key: *lineage.as_bytes(), field: Field::Held, content }];
            if held.decision == Some(Decision::Released) {
                // The source is asked again at once.
                writes.push(Write { key: *held.key.as_bytes(), field: Field::Failure, content: None });
            }
            let keys: Vec<Key> = writes.iter().map(|write| Key::of_bytes(write.key)).collect();
            let commit = Commit {
                lease: None,
                expected: basis.expected.iter().map(|(key, version)| (*key.as_bytes(), *version)).collect(),
                invalidation: basis.invalidation,
                writes,
            };
            if let Committed::Stored(version) = self.noted(self.store.commit(&basis.epoch, &commit).await)? {
                let _judging = known.judging.lock();
                if self.is_newer(&keys, version) {
                    known.hold(lineage, held.clone());
                    self.has_stored(&keys, version, None, false);
                }
                return Ok((lineage, held));
            }
        }
        Err(StoreError::Unavailable("runs kept changing the held answer".to_owned()).into())
    }
}

impl Engine {
    /// Tells all other replicas about an invalidation. Without a shared store, there are none.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn publish_invalidation(&self, selector: &Selector) -> Result<(), StoreError> {
        let Some(shared) = &self.known.shared else { return Ok(()) };
        let epoch = shared.copy().epoch.clone().ok_or(StoreError::OtherEpoch)?;
        shared.noted(shared.store.invalidate(&epoch, record::selector(selector)).await)
    }
}
