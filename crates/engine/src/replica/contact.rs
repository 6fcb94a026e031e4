//! Contact with the store: whether there is, how callers wait for it, and how requests that failed or brought nothing are repeated.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use crate::{replica::Replica, route::Route};
use store::{CONTACT, StoreError};

/// The time between two syncs if nothing changes, and after one that failed.
const SYNC_EVERY: Duration = Duration::from_millis(250);
/// The first pause before a request is repeated. Each later one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// After so many requests in a row that got nowhere, the store must be in pieces.
const FRUITLESS: u32 = 3;

/// The pauses between repeated requests.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    taken: u32,
    fruitless: u32,
}

impl Pauses {
    /// Waits before the next attempt. Returns whether there is time for it before `until`.
    pub(crate) async fn next(&mut self, until: Instant) -> bool {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.taken.min(8)).min(LONGEST_PAUSE);
        self.taken += 1;
        sleep_until(until.min(Instant::now() + pause)).await;
        Instant::now() < until
    }
}

impl Replica {
    /// Whether this replica synced within the last second, by a monotonic clock that also runs while the process is suspended.
    pub fn is_in_contact(&self) -> bool {
        let contact = self.contact.load(Ordering::Relaxed);
        contact > 0 && self.started.elapsed() < Duration::from_millis(contact - 1) + CONTACT
    }

    /// Why this replica is not in contact with the store; `None` if it is.
    pub fn why_out_of_contact(&self) -> Option<String> {
        (!self.is_in_contact()).then(|| self.copy().why.clone())
    }

    /// Why this replica starts no run of `route`, although it is in contact; `None` if it may.
    pub(crate) fn why_outdated(&self, route: &Route) -> Option<String> {
        let is_outdated =
            self.has_outdated.load(Ordering::Relaxed) && self.copy().outdated.contains(route.memory_name());
        is_outdated.then(|| "another replica has a newer configuration of this route".to_owned())
    }

    /// Waits until this replica is in contact, at most until `until`.
    ///
    /// # Errors
    /// Why it is not in contact by then.
    pub(crate) async fn regain(&self, until: Instant) -> Result<(), StoreError> {
        let mut synced = self.synced.subscribe();
        while !self.is_in_contact() {
            if timeout_at(until, synced.changed()).await.is_err() {
                return Err(StoreError::Unavailable(self.copy().why.clone()));
            }
        }
        Ok(())
    }

    /// Notes that a request got nowhere: it is to be repeated, and nothing has changed since.
    pub(crate) fn is_fruitless(&self, pauses: &mut Pauses) {
        pauses.fruitless += 1;
        if let Some(metrics) = &self.metrics {
            metrics.fruitless.inc();
        }
        if pauses.fruitless >= FRUITLESS && !self.suspects.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "requests to the shared store get nowhere: it is in pieces, and the replicas restore what they know"
            );
        }
    }

    /// Waits until this replica has been in contact once.
    pub async fn first_contact(&self) {
        let mut synced = self.synced.subscribe();
        let _ = synced.wait_for(|syncs| *syncs > 0).await;
    }

    /// Whether this replica has been in contact.
    pub fn is_informed(&self) -> bool {
        *self.synced.borrow() > 0
    }

    /// Asks for a sync, because the configuration has changed.
    pub fn want_sync(&self) {
        self.wanted.notify_one();
    }

    /// Waits until the next sync is due, after one with this result. Nothing hastens the one after a failure.
    pub async fn due(&self, result: &Result<(), StoreError>) {
        if result.is_err() {
            sleep(SYNC_EVERY).await;
        } else {
            let _ = tokio::time::timeout(SYNC_EVERY, self.wanted.notified()).await;
        }
    }

    /// Waits until a sync is wanted.
    #[cfg(test)]
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Logs when the contact is lost, and when it is back.
    pub fn note_result(&self, result: &Result<(), StoreError>) {
        let mut copy = self.copy();
        match result {
            Ok(()) if !copy.is_logged_in_contact => {
                tracing::info!(replicas = copy.replicas, "in contact with the shared store");
            }
            Err(error) if copy.is_logged_in_contact || copy.logged.as_ref() != Some(error) => {
                tracing::warn!(%error, "no contact with the shared store; calls wait for it, and fail at their deadlines");
                copy.logged = Some(error.clone());
            }
            _ => {}
        }
        copy.is_logged_in_contact = result.is_ok();
    }

    /// Asks for a sync whenever the store changes. Never returns.
    pub async fn watch(&self) {
        loop {
            match self.store.wait().await {
                Ok(()) => self.wanted.notify_one(),
                Err(_) => sleep(SYNC_EVERY).await,
            }
        }
    }

    /// Waits for the end of a sync that begins from now on, at most until `until`.
    pub(crate) async fn next_sync(&self, until: Instant) -> Result<(), StoreError> {
        let mut synced = self.synced.subscribe();
        // A sync that is under way may have read too early.
        let syncs = if self.syncing.try_lock().is_ok() { 1 } else { 2 };
        for _ in 0..syncs {
            self.wanted.notify_one();
            self.change(&mut synced, until).await?;
        }
        Ok(())
    }

    async fn change(&self, synced: &mut watch::Receiver<u64>, until: Instant) -> Result<(), StoreError> {
        let until = until.min(Instant::now() + CONTACT);
        match timeout_at(until, synced.changed()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(StoreError::Unavailable("no sync in time".to_owned())),
        }
    }

    /// Ends the contact if the store holds another epoch.
    pub(crate) fn noted<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            if *error == StoreError::OtherEpoch {
                self.contact.store(0, Ordering::Relaxed);
            }
            self.copy().why = error.to_string();
        }
        result
    }
}
