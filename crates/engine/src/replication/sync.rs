//! A sync: reports that this replica lives, and makes the store's changes here.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    answer::Engine,
    cache::{Entry, Key, Life, Revision},
    failure::Failed,
    guard::{Baseline, Held},
    replica::{
        Replica,
        contact::Pauses,
        copy::WhenComplete,
        record::{self, SharedFailure, read_answer, read_other, read_selector},
    },
    route::RouteTable,
};
use domain::generator::Selector;
use store::{CopyState, Field, MAX_INVALIDATIONS, Record, StoreError, SyncReply, SyncRequest};

/// The longest pause between two requests that brought nothing.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How many requests of a sync only acknowledge the changes of the one before.
const MAX_ACKNOWLEDGEMENTS: usize = 2;
/// If no live replica has the revisions that the store names, another one names its own after this time.
const ORPHANED_FOR: Duration = Duration::from_secs(10);

impl Engine {
    /// Brings everything that changed in the shared store here. Returns when this replica has all of it.
    ///
    /// # Errors
    /// When there is no contact with the store, or the store recovers.
    pub async fn sync(&self, routes: &RouteTable) -> Result<(), StoreError> {
        let Some(shared) = self.known.peers.replica().cloned() else { return Ok(()) };
        let _syncing = shared.syncing.lock().await;
        let result = shared.noted(self.sync_all(&shared, routes).await);
        if result.is_ok() {
            shared.synced.send_modify(|syncs| *syncs += 1);
        }
        result
    }

    async fn sync_all(&self, shared: &Arc<Replica>, routes: &RouteTable) -> Result<(), StoreError> {
        let (mut acknowledgements, mut last, mut pauses) = (0, None, Pauses::default());
        loop {
            let (request, epoch) = shared.request();
            let state = (request.epoch.clone(), request.version, request.has_offered, shared.copy().registered.clone());
            if last.as_ref() == Some(&state) {
                // It starts over with what it had before.
                shared.is_fruitless(&mut pauses);
                pauses.next(Instant::now() + MAX_PAUSE).await;
            }
            last = Some(state);
            let (began, sent) = (Instant::now(), shared.clock.own());
            let reply = shared.store.sync(&request).await?;
            shared.clock.correct(sent, shared.clock.own(), reply.now);
            if epoch.as_ref() != Some(&reply.epoch) {
                shared.enter(&reply);
                if epoch.is_some() {
                    // Runs under way, and records in memory, are from before.
                    self.expire_in_memory(routes, &Selector::default());
                }
            }
            shared.copy().is_recovering = reply.is_recovering;
            if !shared.copy().has_offered {
                self.offer(shared, &reply.epoch).await?;
                continue;
            }
            if reply.is_recovering {
                return Err(StoreError::OtherEpoch);
            }
            let epoch = reply.epoch.clone();
            if self.register(shared, &epoch, routes, &reply).await? {
                last = None;
                continue;
            }
            if !self.apply_all(shared, routes, &reply) {
                continue;
            }
            let version = shared.copy().version;
            self.completed(shared, Some(WhenComplete { replicas: reply.replicas, version }));
            {
                let mut copy = shared.copy();
                copy.before.clear();
                copy.forget_dropped();
            }
            let contact = began.duration_since(shared.started).as_millis();
            shared.contact.store(u64::try_from(contact).unwrap_or_default() + 1, Ordering::Relaxed);
            // What came just now is acknowledged by one more request. If still more comes with its reply, the next sync does that.
            if reply.changed.is_empty() || acknowledgements == MAX_ACKNOWLEDGEMENTS {
                return Ok(());
            }
            acknowledgements += 1;
        }
    }

    /// Records, in the file too, whether this replica's copy is complete now.
    pub(crate) fn completed(&self, shared: &Replica, complete: Option<WhenComplete>) {
        let now = (if complete.is_some() { CopyState::Complete } else { CopyState::Partial }, complete);
        let before = {
            let mut copy = shared.copy();
            let before = (copy.state, copy.complete);
            (copy.state, copy.complete) = now;
            before
        };
        if before != now
            && let Some(disk) = self.known.answers.disk()
        {
            disk.put_copy(&complete);
        }
    }

    /// Names the revisions of this replica's routes in the store: those that are new here, or that the store lacks. Returns whether there
    /// were any.
    async fn register(
        &self,
        shared: &Replica,
        epoch: &str,
        routes: &RouteTable,
        reply: &SyncReply,
    ) -> Result<bool, StoreError> {
        let current: HashMap<&str, &[u8]> = reply.revisions.iter().map(|(name, of)| (&**name, &of[..])).collect();
        let is_orphaned = shared.is_orphaned(reply.current);
        let own: HashMap<Arc<str>, Revision> =
            routes.iter().map(|route| (Arc::clone(route.memory_name()), route.revision())).collect();
        let mut wanted = Vec::new();
        let mut outdated = HashSet::new();
        for (name, revision) in &own {
            let is_known = !is_orphaned && shared.copy().registered.get(name) == Some(revision);
            match current.get(&**name) {
                Some(other) if *other == revision.to_bytes() => {}
                Some(_) if is_known => drop(outdated.insert(Arc::clone(name))),
                _ => wanted.push((name.to_string(), revision.to_bytes().to_vec().into())),
            }
        }
        if !wanted.is_empty() {
            shared.store.register(epoch, &wanted).await?;
        }
        let mut copy = shared.copy();
        copy.registered = own;
        shared.has_outdated.store(!outdated.is_empty(), Ordering::Relaxed);
        if outdated.is_empty() {
            copy.orphaned = None;
        }
        copy.outdated = outdated;
        Ok(!wanted.is_empty())
    }

    /// Makes the changes of `reply` here. Returns whether these are all.
    fn apply_all(&self, shared: &Replica, routes: &RouteTable, reply: &SyncReply) -> bool {
        let known = shared.copy().invalidation;
        if reply.invalidation > known {
            let read = |(number, content): &(u64, Bytes)| (*number, read_selector(content));
            let all: Vec<(u64, Selector)> = reply.invalidations.iter().map(read).collect();
            if reply.invalidation - known > all.len() as u64 {
                // The store keeps the latest invalidations only. Those before may have selected anything.
                let oldest = all.iter().map(|(number, _)| *number).min().unwrap_or(reply.invalidation + 1);
                shared.copy().floor = oldest - 1;
                self.expire_in_memory(routes, &Selector::default());
            }
            for (_, selector) in &all {
                // The file is a copy of the store: after a start, nothing in it is fresh until the store says so.
                self.expire_in_memory(routes, selector);
            }
            let mut copy = shared.copy();
            copy.invalidation = reply.invalidation;
            copy.invalidations.extend(all);
            let excess = copy.invalidations.len().saturating_sub(MAX_INVALIDATIONS);
            copy.invalidations.drain(..excess);
        }
        for (key, record) in &reply.changed {
            let _deciding = self.known.deciding.lock();
            self.apply_record(shared, routes, Key::of_bytes(*key), record);
        }
        let mut copy = shared.copy();
        if let Some((_, last)) = reply.changed.last() {
            copy.version = last.version;
        }
        copy.highest = copy.highest.max(reply.highest);
        copy.lost_at = reply.lost_at;
        copy.replicas = reply.replicas;
        drop(copy);
        shared.acknowledge(reply.acknowledged);
        reply.is_all
    }

    /// Makes this replica's copy of the record under `key` the same as `record`.
    fn apply_record(&self, shared: &Replica, routes: &RouteTable, key: Key, record: &Record) {
        if !shared.is_newer(&[key], record.version) {
            return;
        }
        let known = &self.known;
        shared.note_unacknowledged(&[key], record.version);
        let (mut is_readable, mut is_served) = (true, false);
        let mut entry = None;
        if let Some(content) = record.get(Field::Answer) {
            if let Some(answer) = read_answer(content) {
                is_served = shared.copy().epoch.as_ref() == Some(&answer.epoch);
                let answer = Arc::new(shared.still_fresh(answer));
                known.answers.put(key, &answer);
                entry = Some(answer);
            } else {
                is_readable = false;
            }
        }
        if entry.is_none() {
            // What is here may not be the last one.
            known.answers.end_life(&key);
        }
        match record.get(Field::Baseline).map(|content| read_other::<Baseline>(content)) {
            Some(Some(baseline)) => {
                known.baselines.put(key, Arc::new(baseline), &known.answers);
                match &entry {
                    Some(entry) if is_served && entry.question.part().is_none() => {
                        known.served.note(key, entry.question.route(), entry);
                    }
                    _ => known.served.forget(&key),
                }
            }
            Some(None) => is_readable = false,
            None => {}
        }
        match record.get(Field::Held).map(|content| read_other::<Held>(content)) {
            Some(Some(held)) => known.hold(key, held),
            Some(None) => is_readable = false,
            None if known.held.remove(&key) => known.erase(key),
            None => {}
        }
        match record.get(Field::Failure).and_then(|content| read_other::<SharedFailure>(content)) {
            Some(of) if shared.copy().is_invalidated(of.invalidation, &of.backoff.failure.question) => {
                known.failing.recovered(&key);
            }
            // A replica with other keys failed. That says nothing about this one, nor ends a backoff of this one.
            Some(of) if !of.counts(routes) => {}
            Some(of) => known.failing.put(key, of.backoff),
            None => {
                known.failing.recovered(&key);
                // The answer to an item of an element ends the failures of another item before.
                if let Some(entry) = &entry
                    && let Some(subject) = Failed::subject_of(&entry.question.open())
                {
                    known.failing.recovered_at(subject, entry.stored_at);
                }
            }
        }
        if !is_readable {
            tracing::error!(%key, "a record in the shared store cannot be read; what it held is unknown");
            self.metrics.store.unreadable.inc();
        }
        let run = entry.map_or(0, |entry| entry.run_number);
        shared.copy().store(key, record.version, (run, is_served), is_readable);
    }
}

impl Replica {
    /// The request of the next sync, and the epoch that it names.
    fn request(&self) -> (SyncRequest, Option<String>) {
        let copy = self.copy();
        let request = SyncRequest {
            replica: self.id.clone(),
            epoch: copy.epoch.clone(),
            version: copy.version,
            invalidation: copy.invalidation,
            highest: copy.highest,
            copy: copy.state,
            live_then: copy.complete.map_or(0, |complete| complete.replicas),
            has_offered: copy.has_offered,
            is_serving: self.is_in_contact(),
            is_current: !copy.registered.is_empty() && copy.outdated.is_empty(),
            suspects: self.suspects.load(Ordering::Relaxed),
        };
        (request, copy.epoch.clone())
    }

    /// Whether no live replica has had the revisions that the store names for some time, of which `current` replicas have all: those that
    /// named them have ended.
    fn is_orphaned(&self, current: usize) -> bool {
        let mut copy = self.copy();
        if current > 0 || copy.outdated.is_empty() {
            copy.orphaned = None;
            return false;
        }
        copy.orphaned.get_or_insert_with(Instant::now).elapsed() >= ORPHANED_FOR
    }

    /// Begins to follow the epoch of `reply`. Contact is established once this replica has all of it.
    fn enter(&self, reply: &SyncReply) {
        self.contact.store(0, Ordering::Relaxed);
        self.suspects.store(false, Ordering::Relaxed);
        let mut copy = self.copy();
        if let Some(before) = &copy.epoch {
            tracing::warn!(
                before,
                now = reply.epoch,
                "the shared store has lost writes; replicas restore what they know"
            );
        }
        copy.epoch = Some(reply.epoch.clone());
        (copy.has_offered, copy.version, copy.invalidation, copy.floor) = (false, 0, 0, 0);
        copy.invalidations.clear();
    }

    /// The answer with the life that it has left in this epoch.
    fn still_fresh(&self, answer: record::SharedAnswer) -> Entry {
        let copy = self.copy();
        let is_of_epoch = copy.epoch.as_ref() == Some(&answer.epoch);
        let is_valid = is_of_epoch && !copy.is_invalidated(answer.invalidation, &answer.entry.question.open());
        let life = if is_valid { answer.entry.life } else { Life::For(Duration::ZERO) };
        Entry { life, ..answer.entry }
    }
}
