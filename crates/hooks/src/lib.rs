//! Webhooks: verifies the sender of an event, and reads its subjects. An event carries no data into an answer (invariant I9): it only makes the gateway query its
//! source again. This crate does no I/O, except that it reads secrets.
//!
//! Start at [`Hooks`]: a hook verifies the `proof` of a request and returns a [`Delivery`] with its [`Subject`]s.
//!
//! - `kind` is the kind of sender: `kind/forge` reads events of all code forges and their CI, `kind/registry` those of image registries.
//! - [`Subjects`] finds the known questions that subjects concern; `selectors` does so for mappings.
//! - [`Pushes`] compares the digests that were pushed with an answer.
//! - `unmapped` is the error text for an event that a mapping cannot read. `error` has all other reasons why
//!   it cannot be read. `config` has the keys of the configuration.

mod config;
mod error;
mod kind;
mod proof;
mod pushes;
mod selectors;
mod subject;
mod subjects;
mod unmapped;

use std::{collections::BTreeMap, sync::Arc};

use http::HeaderMap;
use serde_json::Value;

pub use self::{
    config::HookConfig,
    error::{EventError, SigningError},
    proof::{SentProof, Unproven},
    pushes::{Pushed, Pushes},
    subject::Subject,
    subjects::{Others, Search, Subjects},
};
use self::{
    kind::{Kind, Naming, OneOrMore},
    proof::Proof,
};
use domain::{clock::Timestamp, document, glob::NameGlob};
use lang::{evaluator::Evaluator, expression::Expression};

/// The hooks of a configuration.
#[derive(Debug, Default)]
pub struct Hooks(Vec<Hook>);

/// A hook: a path to which one sender posts its events.
#[derive(Debug)]
pub struct Hook {
    /// Its name, the last part of its path.
    pub name: Arc<str>,
    kind: Kind,
    proof: Proof,
    /// The registry's host, if it is not that of the events.
    registry: Option<String>,
    repositories: BTreeMap<String, OneOrMore>,
    mapping: Option<Mapping>,
}

/// The expression that makes subjects of an event.
#[derive(Debug)]
struct Mapping {
    expression: Expression,
    evaluator: Evaluator,
}

/// A delivery that was proven and read.
#[derive(Debug)]
pub struct Delivery {
    /// The sender's id of the delivery. A repeated delivery has the same.
    pub id: Option<String>,
    /// Its subjects. Empty if the event changes nothing that the gateway may have read.
    pub subjects: Vec<Subject>,
}

impl Hooks {
    /// The hook with this name.
    pub fn by_name(&self, name: &str) -> Option<&Hook> {
        self.0.iter().find(|hook| *hook.name == *name)
    }

    /// All hooks.
    pub fn iter(&self) -> impl Iterator<Item = &Hook> {
        self.0.iter()
    }
}

impl Hook {
    /// The names of callers who may send, if a caller proves a delivery. The caller of this function authenticates the sender.
    pub const fn callers(&self) -> Option<&NameGlob> {
        if let Proof::Caller(names) = &self.proof { Some(names) } else { None }
    }

    /// The proof that a sender would add to a delivery of `body` at `now`.
    ///
    /// # Errors
    /// When the hook's secret cannot be read, or it has none.
    pub fn sign(&self, body: &[u8], now: Timestamp) -> Result<SentProof, SigningError> {
        match &self.proof {
            Proof::Secret(secret) => secret.sign(body, now),
            Proof::Caller(_) => Err(SigningError::ByToken),
        }
    }

    /// Checks all that can be checked before the body is read: a delivery without a signature is refused here. Returns whether nothing is
    /// left to be proven by the body.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn verify_head(&self, headers: &HeaderMap, path_token: Option<&str>, now: Timestamp) -> Result<bool, Unproven> {
        match &self.proof {
            Proof::Secret(secret) if self.proof.needs_body() => {
                secret.verify_head(&self.name, headers, path_token, now).map(|()| false)
            }
            _ => self.verify(headers, path_token, b"", now).map(|()| true),
        }
    }

    /// Checks that the sender has the hook's secret, if there is one. `path_token` is the last part of the path, if there is one. `body` is
    /// as it was received.
    ///
    /// # Errors
    /// When the proof is missing or wrong, or the secret cannot be read.
    pub fn verify(
        &self,
        headers: &HeaderMap,
        path_token: Option<&str>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<(), Unproven> {
        match &self.proof {
            Proof::Secret(secret) => secret.verify(&self.name, headers, path_token, body, now),
            Proof::Caller(_) if path_token.is_some() => {
                Err(Unproven::Wrong("this hook has no token in its path".to_owned()))
            }
            Proof::Caller(_) => Ok(()),
        }
    }

    /// Reads the subjects of an event.
    ///
    /// # Errors
    /// When the body is not what this kind of sender sends. The text has the reason, and repeats nothing of the body.
    pub async fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivery, EventError> {
        let read: Value = serde_json::from_slice(body).map_err(EventError::Json)?;
        // Numbers keep their text, which a mapping may compare with that of a question. A sender may repeat a key.
        let body = document::read_back(body).unwrap_or(read);
        let subjects = if let Some(mapping) = &self.mapping {
            mapping.subjects(headers, &body).await?
        } else {
            let naming = Naming { registry: self.registry.as_deref(), repositories: &self.repositories };
            self.kind.subjects(headers, &body, naming)?
        };
        Ok(Delivery { id: self.kind.delivery(headers, &body), subjects })
    }
}
