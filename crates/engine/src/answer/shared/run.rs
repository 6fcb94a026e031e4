//! A run in a replica: it takes the lease of its question, asks the backend, and commits its changes to the store.

use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{Basis, Shared, contact::Pauses, record};
use crate::{
    answer::{
        Failure, Landed,
        changes::{Changes, HeldChange},
        run::{Ended, Run},
        state::EngineState,
    },
    cache::{Freshness, Key, MadeUnder},
};
use domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
};
use store::{Commit, Committed, Field, Lease, StoreError, Write};

/// How often a run renews its lease.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// How often changes are decided again because another commit came first.
const MAX_ATTEMPTS: usize = 8;
/// For how long an answer is not replaced that another replica made under other keys.
const CONTESTED_FOR: Duration = Duration::from_secs(10);
/// A wait for another replica's run ends this long before the caller's deadline.
const MARGIN: Duration = Duration::from_millis(100);

/// Who runs a question.
enum Leased {
    /// This replica, with this number in this epoch.
    Ours(u64, String),
    /// Another replica has run it.
    Landed(Landed),
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error.to_string())
    }
}

/// Another replica has keys that this one does not have, or the other way round.
fn other_keys() -> Failure {
    Failure::Backend(BackendError::unavailable(
        "another replica has just answered under other keys or roots of the signers than this one has; they must have the same files; this \
         one asks again after 10 s",
    ))
}

impl Run {
    pub(in crate::answer) async fn fly_shared(
        &self,
        known: &EngineState,
        shared: &Arc<Shared>,
        clock: &dyn Clock,
    ) -> Landed {
        if !self.trust.is_complete {
            // Nobody else would trust what is verified without it.
            let why = "a file with a key or a trusted root of the signers cannot be read here, and the log of this replica says why";
            return Err(Failure::Backend(BackendError::unavailable(why)));
        }
        let until = self.asked.query.deadline.checked_sub(MARGIN).unwrap_or(self.asked.query.deadline);
        let (number, epoch) = match self.lease(known, shared, clock, until).await? {
            Leased::Ours(number, epoch) => (number, epoch),
            Leased::Landed(landed) => return landed,
        };
        let landed = {
            let _lease = Renewal::start(shared, self.asked.key);
            let ended = self.run(known, number, clock).await;
            self.commit(known, shared, clock, (&ended, &epoch), until).await
        };
        self.let_follow(known, &landed);
        landed
    }

    /// Takes the lease of the question, as soon as this replica is in contact. Gives up at `until`.
    async fn lease(
        &self,
        known: &EngineState,
        shared: &Arc<Shared>,
        clock: &dyn Clock,
        until: Instant,
    ) -> Result<Leased, Failure> {
        let mut pauses = Pauses::default();
        loop {
            shared.regain(until).await?;
            if let Some(why) = shared.why_outdated(&self.asked.route) {
                return Err(Failure::Store(why));
            }
            if self.is_contested(known, clock.now()) {
                return Err(other_keys());
            }
            let epoch = shared.copy().epoch.clone().unwrap_or_default();
            match shared.begin(&epoch, &self.asked.key).await {
                Ok(Lease::Ours(number)) => return Ok(Leased::Ours(number, epoch)),
                Ok(Lease::Theirs(left)) => shared.other_run(left, until).await,
                Ok(Lease::Behind) => {
                    if !shared.catch_up(&[self.asked.key], &mut pauses, until).await {
                        return Err(Failure::Deadline);
                    }
                }
                Err(error) => {
                    if !pauses.next(until).await {
                        return Err(error.into());
                    }
                }
            }
            if let Some(landed) = self.landed_elsewhere(known, clock) {
                return Ok(Leased::Landed(landed));
            }
            if Instant::now() >= until {
                return Err(Failure::Deadline);
            }
        }
    }

    /// Whether another replica answered the question a moment ago, under keys that this one does not have. While a file with a key reaches
    /// one replica after the other, these would otherwise ask in turn, for each call. An answer of before this replica's present keys is
    /// replaced at once.
    fn is_contested(&self, known: &EngineState, now: Timestamp) -> bool {
        let (Some(since), Some(entry)) = (self.trust.since, known.answers.get(&self.asked.key)) else { return false };
        let MadeUnder { revision, trust } = entry.made_under;
        if revision != self.asked.route.revision() || trust == self.trust.fingerprint {
            return false;
        }
        let age = now.since(entry.stored_at).unwrap_or_default();
        age < CONTESTED_FOR && age < since.elapsed()
    }

    /// The result of another replica's run that ended meanwhile.
    fn landed_elsewhere(&self, known: &EngineState, clock: &dyn Clock) -> Option<Landed> {
        let now = clock.now();
        if let Some((entry, Freshness::Fresh { .. })) = known.usable(&self.asked.route, &self.asked.key, now)
            && !known.is_outshone(&self.asked, &entry, now)
        {
            return Some(Ok(entry));
        }
        known.failing.resting(&self.asked.key, now).map(|(rest, _)| Err(rest.failure.failure))
    }

    /// Commits what `ended` changes. If another commit comes first, decides again with what is known then. If the store does not answer,
    /// tries again until `until`: nobody gets the answer before it is stored.
    async fn commit(
        &self,
        known: &EngineState,
        shared: &Shared,
        clock: &dyn Clock,
        (ended, epoch): (&Ended, &str),
        until: Instant,
    ) -> Landed {
        let (key, lineage) = (self.asked.key, self.asked.lineage());
        let keys = if key == lineage { vec![key] } else { vec![key, lineage] };
        let (mut conflicts, mut pauses) = (0, Pauses::default());
        while conflicts < MAX_ATTEMPTS {
            shared.regain(until).await?;
            let basis = shared.basis(&keys);
            if basis.epoch != epoch {
                // A later run may have stored its answer, and that is lost.
                return Err(Failure::Store("it lost writes while the source was asked".to_owned()));
            }
            let changes = self.changes(known, ended, clock.now());
            if let Ok(answer) = &changes.outcome
                && !answer.is_latest
                && let Some(later) = known.answers.get(&key)
            {
                // A later run has stored its answer. Its callers and these get the same one, unless they trust other keys.
                let is_trusted = later.made_under.trust == self.trust.fingerprint;
                return if is_trusted { Ok(later) } else { Err(other_keys()) };
            }
            let is_unreadable = shared.copy().unreadable.contains(&key);
            let writes = self.writes(&changes, &basis, is_unreadable).ok_or(Failure::Crashed)?;
            let written = |field: Option<Field>| -> Vec<Key> {
                let of_field = |write: &&Write| field.is_none_or(|field| write.field == field);
                writes.iter().filter(of_field).map(|write| Key::of_bytes(write.key)).collect()
            };
            let (written, answered) = (written(None), written(Some(Field::Answer)));
            match shared.commit(&basis, key, writes).await {
                Ok(Committed::Stored(version)) => {
                    let _judging = known.judging.lock();
                    if !shared.is_newer(&written, version) {
                        // A sync has already brought this commit, or a later one.
                        return changes.outcome.map(|answer| answer.entry).map_err(|rest| rest.failure.failure);
                    }
                    shared.unsettle(&written, version);
                    let is_accepted = changes.outcome.is_ok();
                    let landed = self.apply(known, changes);
                    shared.has_stored(&written, version, Some((&answered, ended.number)), is_accepted);
                    return landed;
                }
                Ok(Committed::Conflict) => {
                    conflicts += 1;
                    if !shared.catch_up(&keys, &mut pauses, until.max(Instant::now() + MARGIN)).await {
                        break;
                    }
                }
                Err(error) => {
                    if !pauses.next(until).await {
                        return Err(error.into());
                    }
                }
            }
        }
        Err(Failure::Store("other replicas kept changing the record".to_owned()))
    }

    /// The fields that `changes` write. `None` if one cannot be written. An accepted answer replaces all of a record that cannot be read.
    fn writes(&self, changes: &Changes, basis: &Basis, is_unreadable: bool) -> Option<Vec<Write>> {
        let (key, lineage) = (self.asked.key, self.asked.lineage());
        let mut writes = Vec::new();
        let mut write = |key: Key, field, content| writes.push(Write { key: *key.as_bytes(), field, content });
        match &changes.outcome {
            Ok(new) => {
                let answer = record::answer(&new.entry, &basis.epoch, basis.invalidation)?;
                if new.is_latest {
                    write(key, Field::Answer, Some(answer.clone()));
                }
                if let Some(baseline) = &new.head {
                    if lineage != key {
                        write(lineage, Field::Answer, Some(answer));
                    }
                    write(lineage, Field::Baseline, Some(record::baseline(baseline)?));
                }
                write(key, Field::Failure, None);
                if is_unreadable && lineage != key {
                    write(key, Field::Baseline, None);
                    write(key, Field::Held, None);
                }
            }
            Err(rest) if changes.is_current => {
                write(key, Field::Failure, Some(record::failure(rest, basis.invalidation, self.trust.fingerprint)?));
            }
            Err(_) => {}
        }
        match &changes.held {
            HeldChange::None => {}
            HeldChange::End(..) | HeldChange::Accept(_) => write(lineage, Field::Held, None),
            HeldChange::Hold(held) | HeldChange::Contradict(held) => {
                write(lineage, Field::Held, Some(record::other(&**held)?));
            }
        }
        Some(writes)
    }
}

impl Shared {
    /// Waits while another replica runs the question, until something changes or its lease ends after `left`.
    async fn other_run(&self, left: Duration, until: Instant) {
        let until = until.min(Instant::now() + left + Duration::from_millis(10));
        let mut synced = self.synced.subscribe();
        let _ = tokio::time::timeout_at(until, synced.changed()).await;
    }

    /// Reads what has changed, since a request about the records under `keys` was refused for that. If nothing has, waits before the next
    /// attempt. Returns whether there is time for one.
    async fn catch_up(&self, keys: &[Key], pauses: &mut Pauses, until: Instant) -> bool {
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

    async fn commit(&self, basis: &Basis, question: Key, writes: Vec<Write>) -> Result<Committed, StoreError> {
        let expected = basis.expected.iter().map(|(key, version)| (*key.as_bytes(), *version)).collect();
        let lease = Some((self.replica.clone(), *question.as_bytes()));
        let commit = Commit { lease, expected, invalidation: basis.invalidation, writes };
        self.noted(self.store.commit(&basis.epoch, &commit).await)
    }

    /// Whether `version` is later than what is here of the records under `keys`.
    pub(super) fn is_newer(&self, keys: &[Key], version: u64) -> bool {
        let copy = self.copy();
        keys.iter().all(|key| copy.version_of(key) < version)
    }

    /// Records that the records under `keys` are here in `version`. `run` brought the answer to `answered`. A record that could not be read
    /// can be read again once an answer is accepted, and not before.
    pub(super) fn has_stored(&self, keys: &[Key], version: u64, answered: Option<(&[Key], u64)>, is_accepted: bool) {
        let mut copy = self.copy();
        copy.highest = copy.highest.max(version);
        for key in keys {
            let before = copy.versions.get(key).map_or((0, false), |known| (known.run, known.is_served));
            let run = match answered {
                Some((answered, run)) if answered.contains(key) => (run, true),
                _ => before,
            };
            let is_readable = is_accepted || !copy.unreadable.contains(key);
            copy.store(*key, version, run, is_readable);
        }
    }
}

/// Renews a lease until it is dropped.
struct Renewal(JoinHandle<()>);

impl Renewal {
    fn start(shared: &Arc<Shared>, key: Key) -> Self {
        let shared = Arc::clone(shared);
        Self(tokio::spawn(async move {
            let mut ticks = interval(RENEW_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let epoch = shared.copy().epoch.clone().unwrap_or_default();
                // A lost lease may cost a second run. Versions and numbers keep the answers right.
                let _ = shared.store.renew(&epoch, &shared.replica, *key.as_bytes()).await;
            }
        }))
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}
