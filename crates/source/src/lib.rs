//! What the engine needs of a backend ([`Backend`]), and of a program beside a route ([`Probe`]). Kinds of backends are in `backend`, which implements
//! these traits; the engine uses nothing else of them.

mod large;

use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

pub use self::large::{Load, in_turns_of, work_on};
use domain::{
    error::BackendError,
    generator::{Outcome, Query, Trust},
    secret::Secrets,
};
use lang::scope::ValueType;

/// A source of parameter sets.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Asks the source. Has no side effects (invariant I7), and ends by the query's deadline.
    ///
    /// # Errors
    /// Whenever the backend does not know the whole answer: unknown is never an empty list (invariants I2, I3).
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError>;

    /// Whether an answer may depend on the ApplicationSet's name, which is then part of its cache key.
    fn reads_application_set(&self) -> bool {
        true
    }

    /// Whether the backend wants to see the notes that it made with the lineage's last answer.
    fn takes_notes(&self) -> bool {
        false
    }

    /// The keys and roots by which answers are verified. An answer that was made under others is never served. Cheap: it is asked for each
    /// call.
    fn trust(&self) -> Trust {
        Trust::NONE
    }

    /// What is known of an item before the source is asked.
    fn item(&self) -> ValueType {
        ValueType::Anything
    }

    /// Tries whether its sources can be reached, for `check --connect`. Only reads, and asks none of the call's questions.
    async fn reach(&self, _deadline: tokio::time::Instant) -> Vec<Reached> {
        Vec::new()
    }

    /// Forgets what earlier questions taught the backend, so that the next question asks the source.
    fn forget(&self) {}

    /// Starts what should be ready before the first question, such as workers.
    fn start_ahead(&self) {}

    /// The secrets that the backend sends to its source. They may come back in answers and messages, and are redacted there.
    fn secrets(&self) -> Secrets {
        Secrets::default()
    }
}

/// Asks `backend`, and shows it as the step `name` to whoever watches `query`.
///
/// # Errors
/// As [`Backend::resolve`].
pub async fn ask(
    backend: &dyn Backend,
    name: &str,
    kind: &'static str,
    query: &Query,
) -> Result<Outcome, BackendError> {
    let Some(watch) = &query.watch else { return backend.resolve(query).await };
    let watch = watch.begin(name, kind, query.items.clone());
    let started = Instant::now();
    let result = backend.resolve(&Query { watch: Some(watch.clone()), ..query.clone() }).await;
    let found = result.as_ref().map(|outcome| &*outcome.sets).map_err(|error| &*error.message);
    watch.end(started.elapsed(), found);
    result
}

/// A source that was tried.
#[derive(Debug)]
pub struct Reached {
    /// The source, such as `https://inventory.example.com`.
    pub source: String,
    /// What it said, or why it cannot be reached.
    pub result: Result<String, BackendError>,
}

/// A program beside a route, which looks at its calls: it says whether the route takes a call, or announces parameters.
#[async_trait]
pub trait Probe: std::fmt::Debug + Send + Sync + 'static {
    /// Whether the program wants the call.
    ///
    /// # Errors
    /// When the program fails. That is *unknown*, and never a "no".
    async fn wants(&self, query: &Query) -> Result<bool, BackendError>;

    /// What the program prints.
    ///
    /// # Errors
    /// When the program fails.
    async fn output(&self, query: &Query) -> Result<Bytes, BackendError>;

    /// `text` without the secrets of the program.
    fn redact(&self, text: &str) -> String;
}
