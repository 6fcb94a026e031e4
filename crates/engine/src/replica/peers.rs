//! The replicas that share a store with this process. A single gateway has none, so no other process changes its records: each question here
//! has an answer for it, and the engine works the same way in both cases.

use std::{sync::Arc, time::Duration};

use super::{Replica, StoreState};
use crate::{cache::Key, route::Route};
use domain::generator::Selector;
use store::StoreError;

/// Why a replica serves no answer of its own.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It is out of contact with the store, for this reason. It serves nothing.
    OutOfContact(String),
    /// The store names another configuration of the route. This replica serves the store's answers, and starts no run.
    Outdated(String),
}

impl Refusal {
    /// The reason, for operators.
    pub(crate) fn into_reason(self) -> String {
        match self {
            Self::OutOfContact(why) | Self::Outdated(why) => why,
        }
    }
}

/// The replicas that share a store with this process, if it has one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers(Option<Arc<Replica>>);

impl From<Option<Arc<Replica>>> for Peers {
    fn from(replica: Option<Arc<Replica>>) -> Self {
        Self(replica)
    }
}

impl Peers {
    /// This process as a replica, if it is one.
    pub(crate) const fn replica(&self) -> Option<&Arc<Replica>> {
        self.0.as_ref()
    }

    /// Why this process serves no answer of its own from `route` now.
    pub(crate) fn refusal(&self, route: &Route) -> Option<Refusal> {
        let replica = self.0.as_ref()?;
        let out_of_contact = replica.why_out_of_contact().map(Refusal::OutOfContact);
        out_of_contact.or_else(|| replica.why_outdated(route).map(Refusal::Outdated))
    }

    /// Whether a run may be started in the background: not without contact.
    pub(crate) fn may_run(&self) -> bool {
        self.0.as_ref().is_none_or(|replica| replica.is_in_contact())
    }

    /// Whether an answer under `key` that is not fresh may be served.
    pub(crate) fn may_serve(&self, key: &Key) -> bool {
        self.0.as_ref().is_none_or(|replica| replica.may_serve(key))
    }

    /// Whether other replicas may serve an answer under `key`.
    pub(crate) fn others_may_serve(&self, key: &Key) -> bool {
        self.0.as_ref().is_some_and(|replica| replica.may_serve(key))
    }

    /// Whether there is a shared store that never had a record of `lineage` or of `key`.
    pub(crate) fn never_had(&self, lineage: &Key, key: &Key) -> bool {
        self.0.as_ref().is_some_and(|replica| replica.never_had(lineage, key))
    }

    /// Whether the shared record of `lineage` or of `key` is lost: see [`Replica::is_lost`].
    pub(crate) fn is_lost(&self, lineage: &Key, key: &Key, has_baseline: impl FnOnce() -> bool) -> bool {
        self.0.as_ref().is_some_and(|replica| replica.is_lost(lineage, key, has_baseline))
    }

    /// Whether no later run than `number`, of any replica, has stored its answer to `key`. `own` answers this for the runs of this process.
    pub(crate) fn is_latest_run(&self, key: &Key, number: u64, own: impl FnOnce() -> bool) -> bool {
        self.0.as_ref().map_or_else(own, |replica| replica.is_latest_run(key, number))
    }

    /// The state of the contact, for metrics.
    pub(crate) fn contact(&self) -> Option<StoreState> {
        self.0.as_ref().map(|replica| replica.contact())
    }

    /// Notifies the other replicas of an invalidation.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn publish_invalidation(&self, selector: &Selector) -> Result<(), StoreError> {
        match &self.0 {
            Some(replica) => replica.publish_invalidation(selector).await,
            None => Ok(()),
        }
    }

    /// Adds `notes` to the list `name` for the time `lasts`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn note(&self, name: &str, notes: &[(String, String)], lasts: Duration) -> Result<(), StoreError> {
        match &self.0 {
            Some(replica) => replica.store().note(name, notes, lasts).await,
            None => Ok(()),
        }
    }

    /// The notes of all replicas in the list `name`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn notes(&self, name: &str) -> Result<Vec<(String, String)>, StoreError> {
        match &self.0 {
            Some(replica) => replica.store().notes(name).await,
            None => Ok(Vec::new()),
        }
    }

    /// Whether this is the first claim of `name` within the time `lasts`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn claim(&self, name: &str, lasts: Duration) -> Result<bool, StoreError> {
        match &self.0 {
            Some(replica) => replica.store().claim(name, lasts).await,
            None => Ok(true),
        }
    }
}
