//! Commits the changes of a run: to the store that replicas share, if there is one, and then here.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    Ended, Finished, Run,
    changes::{Changes, HeldChange},
    lease::{Lease, SharedLease, other_keys},
};
use crate::{
    cache::Key,
    failure::Failure,
    replica::{Basis, Replica, contact::Pauses, record},
    state::EngineState,
};
use domain::clock::{Clock, Timestamp};
use store::{Commit, Committed, Field, StoreError, Write};

/// How often changes are decided again because another commit came first.
const MAX_ATTEMPTS: usize = 8;
/// After a conflict there is at least this time to read the changes.
const MARGIN: Duration = Duration::from_millis(100);

/// The end of a run that a commit contained.
#[derive(Debug, Clone, Copy)]
enum Sent {
    Answer { run: u64 },
    Failure { times: u32, since: Timestamp },
}

impl Sent {
    const fn of(changes: &Changes, ended: &Ended) -> Self {
        match &changes.outcome {
            Ok(_) => Self::Answer { run: ended.number },
            Err(backoff) => Self::Failure { times: backoff.times, since: backoff.since },
        }
    }
}

impl Run {
    /// Commits the changes of `ended`. If another commit comes first, decides again with the records of that time. If the store does not answer,
    /// tries again until `until`: no caller gets the answer before it is stored.
    pub(super) async fn commit(
        &self,
        known: &EngineState,
        clock: &dyn Clock,
        ended: &Ended,
        lease: &Lease,
        until: Instant,
    ) -> Finished {
        let Some(SharedLease { replica: shared, epoch, .. }) = &lease.shared else {
            let _deciding = known.deciding.lock();
            let changes = self.changes(known, ended, clock.now());
            return self.apply(known, changes);
        };
        let (key, lineage) = (self.resolved.key, self.resolved.lineage());
        let keys = if key == lineage { vec![key] } else { vec![key, lineage] };
        let (mut conflicts, mut pauses, mut sent) = (0, Pauses::default(), None);
        while conflicts < MAX_ATTEMPTS {
            shared.regain(until).await?;
            if let Some(stored) = sent.and_then(|sent| self.stored_before(known, sent)) {
                return stored;
            }
            let basis = shared.basis(&keys);
            if basis.epoch != *epoch {
                // A later run may have stored its answer, and that is lost.
                return Err(Failure::Store("it lost writes during the run".to_owned()));
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
            sent = Some(Sent::of(&changes, ended));
            let is_unreadable = shared.copy().unreadable.contains(&key);
            let writes = self.writes(&changes, &basis, is_unreadable).ok_or(Failure::Crashed)?;
            let written = |field: Option<Field>| -> Vec<Key> {
                let of_field = |write: &&Write| field.is_none_or(|field| write.field == field);
                writes.iter().filter(of_field).map(|write| Key::of_bytes(write.key)).collect()
            };
            let (written, answered) = (written(None), written(Some(Field::Answer)));
            match shared.commit(&basis, key, writes).await {
                Ok(Committed::Stored(version)) => {
                    let _deciding = known.deciding.lock();
                    if !shared.is_newer(&written, version) {
                        // A sync has already brought this commit, or a later one.
                        return changes.outcome.map(|answer| answer.entry).map_err(|backoff| backoff.failure.failure);
                    }
                    shared.note_unacknowledged(&written, version);
                    let is_accepted = changes.outcome.is_ok();
                    let finished = self.apply(known, changes);
                    shared.has_stored(&written, version, Some((&answered, ended.number)), is_accepted);
                    return finished;
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

    /// The end of this run, if its commit was stored before: it arrived and its reply did not, or it arrived twice. To decide once more would
    /// conflict again, and count a failure twice.
    fn stored_before(&self, known: &EngineState, sent: Sent) -> Option<Finished> {
        let key = &self.resolved.key;
        match sent {
            Sent::Answer { run } => known.answers.get(key).filter(|answer| answer.run_number == run).map(Ok),
            Sent::Failure { times, since } => {
                let stored = known.failing.get(key).filter(|stored| (stored.times, stored.since) == (times, since));
                stored.map(|stored| Err(stored.failure.failure))
            }
        }
    }

    /// The fields that `changes` write. `None` if one cannot be written. An accepted answer replaces all of a record that cannot be read.
    fn writes(&self, changes: &Changes, basis: &Basis, is_unreadable: bool) -> Option<Vec<Write>> {
        let (key, lineage) = (self.resolved.key, self.resolved.lineage());
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
            Err(backoff) if changes.is_current => {
                write(key, Field::Failure, Some(record::failure(backoff, basis.invalidation, self.trust.fingerprint)?));
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

impl Replica {
    async fn commit(&self, basis: &Basis, question: Key, writes: Vec<Write>) -> Result<Committed, StoreError> {
        let expected = basis.expected.iter().map(|(key, version)| (*key.as_bytes(), *version)).collect();
        let lease = Some((self.id.clone(), *question.as_bytes()));
        let commit = Commit { lease, expected, invalidation: basis.invalidation, writes };
        self.noted(self.store.commit(&basis.epoch, &commit).await)
    }

    /// Whether `version` is later than what is here of the records under `keys`.
    pub(crate) fn is_newer(&self, keys: &[Key], version: u64) -> bool {
        let copy = self.copy();
        keys.iter().all(|key| copy.version_of(key) < version)
    }

    /// Records that the records under `keys` are here in `version`. `run` brought the answer to `answered`. A record that could not be read
    /// can be read again once an answer is accepted, and not before.
    pub(crate) fn has_stored(&self, keys: &[Key], version: u64, answered: Option<(&[Key], u64)>, is_accepted: bool) {
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
