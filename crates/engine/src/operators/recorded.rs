//! Records an operator's decision: in the store that replicas share, if there is one, and then here.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    cache::Key,
    guard::{Decision, Held},
    replica::{Replica, contact::Pauses, record},
    state::EngineState,
};
use store::{Commit, Committed, Field, StoreError, Write};

/// How long a decision may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often a decision is made again because a run changed the held answer meanwhile.
const MAX_ATTEMPTS: usize = 8;

impl EngineState {
    /// Changes the held answer that `decide` returns, once this process has all changes so far.
    ///
    /// # Errors
    /// When the store does not answer, or `decide` fails.
    pub(crate) async fn decide<E: From<StoreError>>(
        &self,
        decide: impl Fn() -> Result<(Key, Held), E>,
    ) -> Result<(Key, Held), E> {
        if let Some(replica) = self.peers.replica() {
            return replica.decide(self, decide).await;
        }
        // A run whose answer is checked meanwhile sees the decision before or after its own change.
        let _deciding = self.deciding.lock();
        self.erase_forgotten();
        let (lineage, held) = decide()?;
        self.hold(lineage, held.clone());
        Ok((lineage, held))
    }
}

impl Replica {
    /// Changes the held answer that `decide` returns, once this replica has all changes so far.
    ///
    /// # Errors
    /// When the store does not answer, or `decide` fails.
    async fn decide<E: From<StoreError>>(
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
                // The source is called again at once.
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
                let _deciding = known.deciding.lock();
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
