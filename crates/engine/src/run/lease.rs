//! The lease of a question: one replica at a time runs it.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};

use crate::{
    cache::{Freshness, Key, MadeUnder},
    failure::Failure,
    replica::{Basis, Replica, contact::Pauses},
    run::{Finished, Run},
    state::EngineState,
};
use domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
};
use store::Lease as StoreLease;

/// How often a run renews its lease.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// For how long an answer is not replaced that another replica made under other keys.
const CONTESTED_FOR: Duration = Duration::from_secs(10);

/// The replica that runs a question.
pub(super) enum Leased {
    /// This process.
    Ours(Lease),
    /// Another replica has run it.
    Finished(Finished),
}

/// The right to run a question. It ends when this is dropped.
pub(super) struct Lease {
    /// The number of the run.
    pub(super) number: u64,
    /// The store's lease, if replicas share a store.
    pub(super) shared: Option<SharedLease>,
}

/// A lease that other replicas respect.
pub(super) struct SharedLease {
    pub(super) replica: Arc<Replica>,
    /// The epoch of the store in which the lease was taken.
    pub(super) epoch: String,
    _renewal: Renewal,
}

/// Another replica has keys that this one does not have, or the other way round.
pub(super) fn other_keys() -> Failure {
    Failure::Backend(BackendError::unavailable(
        "another replica has just answered under other keys or roots of the signers than this one has; they must have the same files; this \
         one asks again after 10 s",
    ))
}

impl Run {
    /// Takes the lease of the question, as soon as this replica is in contact. Gives up at `until`. A single gateway needs none.
    pub(super) async fn lease(
        &self,
        known: &EngineState,
        clock: &dyn Clock,
        until: Instant,
    ) -> Result<Leased, Failure> {
        let Some(shared) = known.peers.replica() else {
            return Ok(Leased::Ours(Lease { number: self.guard.number(), shared: None }));
        };
        if !self.trust.is_complete {
            // Nobody else would trust what is verified without it.
            let why = "a file with a key or a trusted root of the signers cannot be read here, and the log of this replica says why";
            return Err(Failure::Backend(BackendError::unavailable(why)));
        }
        let (mut pauses, keys) = (Pauses::default(), [self.resolved.key, self.resolved.lineage()]);
        loop {
            shared.regain(until).await?;
            if let Some(why) = shared.why_outdated(&self.resolved.route) {
                return Err(Failure::Store(why));
            }
            if self.is_contested(known, clock.now()) {
                return Err(other_keys());
            }
            let known_before = shared.basis(&keys);
            let epoch = known_before.epoch.clone();
            match shared.begin(&epoch, &self.resolved.key).await {
                Ok(StoreLease::Ours(number)) => {
                    let renewal = Renewal::start(shared, self.resolved.key);
                    let shared = SharedLease { replica: Arc::clone(shared), epoch, _renewal: renewal };
                    return Ok(Leased::Ours(Lease { number, shared: Some(shared) }));
                }
                Ok(StoreLease::Theirs(left)) => shared.other_run(&keys, &known_before, left, until).await,
                Ok(StoreLease::Behind) => {
                    if !shared.catch_up(&[self.resolved.key], &mut pauses, until).await {
                        return Err(Failure::Deadline);
                    }
                }
                Err(error) => {
                    if !pauses.next(until).await {
                        return Err(error.into());
                    }
                }
            }
            if let Some(finished) = self.finished_elsewhere(known, clock) {
                return Ok(Leased::Finished(finished));
            }
            if Instant::now() >= until {
                return Err(Failure::Deadline);
            }
        }
    }

    /// Whether another replica answered the question a moment ago, under keys that this one does not have. While a file with a key reaches
    /// one replica after the other, these would otherwise call the source for each call, one after the other. An answer from before this
    /// replica's present keys is replaced at once.
    fn is_contested(&self, known: &EngineState, now: Timestamp) -> bool {
        let (Some(since), Some(entry)) = (self.trust.since, known.answers.get(&self.resolved.key)) else {
            return false;
        };
        let MadeUnder { revision, trust } = entry.made_under;
        if revision != self.resolved.route.revision() || trust == self.trust.fingerprint {
            return false;
        }
        let age = now.since(entry.stored_at).unwrap_or_default();
        age < CONTESTED_FOR && age < since.elapsed()
    }

    /// The result of another replica's run that ended meanwhile.
    fn finished_elsewhere(&self, known: &EngineState, clock: &dyn Clock) -> Option<Finished> {
        let now = clock.now();
        if let Some((entry, Freshness::Fresh { .. })) = known.usable(&self.resolved.route, &self.resolved.key, now)
            && !known.is_outshone(&self.resolved, &entry, now)
        {
            return Some(Ok(entry));
        }
        known.failing.backoff(&self.resolved.key, now).map(|(backoff, _)| Err(backoff.failure.failure))
    }
}

impl Replica {
    /// Waits while another replica runs the question with `keys`, until their records are others than `before`, or its lease ends after
    /// `left`. Other changes do not matter: with each of them, all who wait would ask the store.
    async fn other_run(&self, keys: &[Key], before: &Basis, left: Duration, until: Instant) {
        let until = until.min(Instant::now() + left + Duration::from_millis(10));
        let mut synced = self.synced.subscribe();
        while self.basis(keys) == *before && timeout_at(until, synced.changed()).await.is_ok() {}
    }

    /// Reads the changes, since a request about the records under `keys` was refused for that. If nothing has, waits before the next
    /// attempt. Returns whether there is time for one.
    pub(super) async fn catch_up(&self, keys: &[Key], pauses: &mut Pauses, until: Instant) -> bool {
        let known = |shared: &Self| {
            let copy = shared.copy();
            let versions: Vec<u64> = keys.iter().map(|key| copy.version_of(key)).collect();
            (copy.epoch.clone(), copy.invalidation, versions)
        };
        let before = known(self);
        let is_synced = self.next_sync(until).await.is_ok();
        if is_synced && known(self) == before {
            self.is_fruitless(pauses);
        }
        let is_good = is_synced && known(self) != before;
        (is_good || pauses.next(until).await) && Instant::now() < until
    }
}

/// Renews a lease until it is dropped.
struct Renewal(JoinHandle<()>);

impl Renewal {
    fn start(shared: &Arc<Replica>, key: Key) -> Self {
        let shared = Arc::clone(shared);
        Self(tokio::spawn(async move {
            let mut ticks = interval(RENEW_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let epoch = shared.copy().epoch.clone().unwrap_or_default();
                // A lost lease may cost a second run. Versions and numbers keep the answers right.
                let _ = shared.store.renew(&epoch, &shared.id, *key.as_bytes()).await;
            }
        }))
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}
