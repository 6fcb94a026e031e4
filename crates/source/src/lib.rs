//! The interface between the engine and the backends ([`Backend`]), and to a program beside a route ([`Probe`]). `backend` has the kinds of backends,
//! which implement these traits; the engine uses nothing else of them.
//!
//! Start at [`Backend::fetch`]. [`Nature`] has the constants of a built backend. `large` moves work on large documents to threads that may
//! block ([`work_on`]); it is here because engine and backends share its permits.

mod each;
mod large;
mod nature;

use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;

pub use self::{
    each::{ELEMENTS_AT_ONCE, Each, MaxUnknown, first_named},
    large::{Load, with_permits_of, work_on},
    nature::Nature,
};
use domain::{
    error::BackendError,
    generator::{Outcome, Query, Trust},
    secret::Secrets,
};

/// A source of parameter sets. A backend that is made of others names them as its [`parts`](Self::parts), and leaves to the parts all that they
/// do by themselves.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Gets the answer to `query` from the source. Has no side effects (invariant I7), and ends by the query's deadline.
    ///
    /// # Errors
    /// Whenever the backend does not know the whole answer: unknown is never an empty list (invariants I2, I3).
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError>;

    /// Its constants.
    fn nature(&self) -> &Nature;

    /// Its list and its elements, if it queries a backend for each item of a list. The engine then queries these, and not `fetch`, so that it
    /// remembers each element.
    fn each(&self) -> Option<&Each> {
        None
    }

    /// The backends that it is made of.
    fn parts(&self) -> Vec<&dyn Backend> {
        Vec::new()
    }

    /// The present keys and roots by which answers are verified. An answer that was made under others is never served. Cheap: it is
    /// called for each request.
    fn trust(&self) -> Trust {
        self.parts().into_iter().fold(Trust::NONE, |all, part| all.with(part.trust()))
    }

    /// Tries whether its sources can be reached, for `check --connect`. Only reads, and sends no query of a call.
    async fn reach(&self, deadline: tokio::time::Instant) -> Vec<Reached> {
        let mut reached = Vec::new();
        for part in self.parts() {
            reached.extend(part.reach(deadline).await);
        }
        reached
    }

    /// Forgets the results of earlier queries, so that the next query is sent to the source.
    fn forget(&self) {
        for part in self.parts() {
            part.forget();
        }
    }

    /// Starts parts that should be ready before the first query, such as workers.
    fn start(&self) {
        for part in self.parts() {
            part.start();
        }
    }

    /// The secrets that the backend sends to its source, as they are now. They may come back in answers and messages, and are redacted there.
    fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        self.parts().into_iter().for_each(|part| secrets.extend(part.secrets()));
        secrets
    }
}

/// Gets the answer of `backend` to `query`. A query that is watched shows it as the step `name`.
///
/// # Errors
/// As [`Backend::fetch`].
pub async fn fetch_watched(
    backend: &dyn Backend,
    name: &str,
    kind: &'static str,
    query: &Query,
) -> Result<Outcome, BackendError> {
    let Some(watch) = &query.watch else { return backend.fetch(query).await };
    let watch = watch.begin(name, kind, query.items.clone());
    let started = Instant::now();
    let result = backend.fetch(&Query { watch: Some(watch.clone()), ..query.clone() }).await;
    let found = result.as_ref().map(|outcome| &*outcome.sets).map_err(|error| &*error.message);
    watch.end(started.elapsed(), found);
    result
}

/// A source that was tried.
#[derive(Debug)]
pub struct Reached {
    /// The source, such as `https://inventory.example.com`.
    pub source: String,
    /// Its reply, or why it cannot be reached.
    pub result: Result<String, BackendError>,
    /// The permission that the identity which logs in there needs, if one does.
    pub needs: Option<&'static str>,
}

/// A program beside a route, which gets its calls: it decides whether the route takes a call, or announces parameters.
#[async_trait]
pub trait Probe: std::fmt::Debug + Send + Sync + 'static {
    /// Whether the program wants the call.
    ///
    /// # Errors
    /// When the program fails. That is *unknown*, and never a "no".
    async fn wants(&self, query: &Query) -> Result<bool, BackendError>;

    /// The program's output.
    ///
    /// # Errors
    /// When the program fails.
    async fn output(&self, query: &Query) -> Result<Bytes, BackendError>;

    /// `text` without the secrets of the program.
    fn redact(&self, text: &str) -> String;
}
