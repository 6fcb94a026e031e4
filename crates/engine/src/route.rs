//! Routes. The route that the path names answers a call; without a name, the first route whose `match` fits, in the
//! order of the configuration.

pub mod announced;
pub mod announcement;
pub mod input;
pub mod matching;
pub(crate) mod parts;
mod resolved;
mod table;

use std::{path::PathBuf, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

pub use crate::route::{
    resolved::{OtherKeys, RepeatedQuery, ResolvedQuery},
    table::RouteTable,
};
use crate::{
    cache::{CacheConfig, Freshness, Key, KeyPrefix, Life, MadeUnder, Policy, Revision, RouteId},
    guard::Guard,
    route::{announced::Announced, input::Input, matching::Matcher, parts::Parts},
    shadow::Shadow,
    shape::Shape,
};
use domain::{
    clock::Timestamp,
    error::BackendError,
    file::base_dir::BaseDir,
    generator::{Parameters, Query, Trust},
    units::HumanDuration,
};
use source::Backend;
use telemetry::metrics::RouteMetrics;

/// A route, ready to answer.
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// Its backend's kind.
    pub kind: &'static str,
    /// Its backend.
    pub backend: Arc<dyn Backend>,
    /// The shape of answers. `None` for the list of a route with elements, which no caller gets.
    pub(crate) shape: Option<Arc<Shape>>,
    /// How long they live.
    pub policy: Policy,
    /// The rules of the guard.
    pub guard: Guard,
    /// The deadline of a call.
    pub deadline: Duration,
    /// The counters.
    pub metrics: RouteMetrics,
    /// The candidate for its backend's place.
    pub shadow: Option<Arc<Shadow>>,
    /// Its list and its elements, if its answer has elements.
    pub(crate) parts: Option<Parts>,
    input: Accepts,
    lineage: Option<Vec<String>>,
    matcher: Option<Matcher>,
    /// Its former names, the last one first.
    formerly: Vec<Arc<str>>,
    prefix: KeyPrefix,
    /// The beginnings of keys under which more may be remembered of it: its other names, and with or without the ApplicationSet's name.
    other_prefixes: Vec<KeyPrefix>,
    revision: Revision,
    origin: Arc<Origin>,
}

/// What a route is made of.
pub struct RouteParts {
    /// Its name.
    pub name: String,
    /// Its former names, the last one first.
    pub formerly: Vec<Arc<str>>,
    /// Its backend's kind.
    pub kind: &'static str,
    /// Its backend.
    pub backend: Arc<dyn Backend>,
    /// Which calls it takes if the path names no route; `None` if none.
    pub matcher: Option<Matcher>,
    /// Which parameters it accepts.
    pub input: Accepts,
    /// The shape of answers.
    pub shape: Shape,
    /// How long they live.
    pub cache: CacheConfig,
    /// The parameters that stay when a commit moves on.
    pub lineage: Option<Vec<String>>,
    /// The rules of the guard.
    pub guard: Guard,
    /// The deadline of a call.
    pub deadline: Duration,
    /// The candidate for its backend's place.
    pub shadow: Option<Arc<Shadow>>,
    /// The counters.
    pub metrics: RouteMetrics,
    /// Its origin.
    pub origin: Origin,
}

/// The origin of a route: the configuration that it was built from. A reload takes over a route of the same origin, with its state.
#[derive(Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its configuration as a document.
    pub raw: Value,
    /// The folder of relative paths.
    pub base: BaseDir,
    /// The server's deadline.
    pub deadline: HumanDuration,
    /// The folders of its package: its own, the copied one, and the largest size of that in bytes.
    pub package: Option<(PathBuf, Option<(PathBuf, u64)>)>,
}

/// Which parameters a route accepts.
pub enum Accepts {
    /// Any parameters.
    All,
    /// The declared parameters.
    Declared(Input),
    /// The parameters that a program announces.
    Announced(Box<Announced>),
}

/// The beginning of the keys of the route `name`, and others under which it may be remembered. A template that begins to read the
/// ApplicationSet's name, or ceases to, must not make the guard forget the route.
fn prefixes(name: &str, formerly: &[Arc<str>], reads_application_set: bool) -> (KeyPrefix, Vec<KeyPrefix>) {
    let (oldest, later) = match formerly {
        [later @ .., oldest] => (&**oldest, later),
        [] => (name, formerly),
    };
    let own = Some(name).filter(|name| *name != oldest);
    let others = later.iter().map(|name| &**name).chain(own).map(|name| KeyPrefix::new(name, reads_application_set));
    let others = others.chain([KeyPrefix::new(oldest, !reads_application_set)]).collect();
    (KeyPrefix::new(oldest, reads_application_set), others)
}

impl Route {
    /// The route that is made of these.
    #[must_use]
    pub fn new(parts: RouteParts) -> Self {
        let RouteParts { name, formerly, kind, backend, matcher, input, shape, cache, .. } = parts;
        let reads_application_set = backend.nature().reads_application_set || shape.reads_application_set();
        let (prefix, other_prefixes) = prefixes(&name, &formerly, reads_application_set);
        let mut route = Self {
            name: name.into(),
            kind,
            backend,
            shape: Some(Arc::new(shape)),
            policy: Policy::new(cache),
            guard: parts.guard,
            deadline: parts.deadline,
            metrics: parts.metrics,
            shadow: parts.shadow,
            parts: None,
            input,
            lineage: parts.lineage,
            matcher,
            formerly,
            prefix,
            other_prefixes,
            revision: Revision::of(&parts.origin.raw),
            origin: Arc::new(parts.origin),
        };
        route.parts = Parts::of(&route);
        route
    }

    /// Replaces its backend.
    #[cfg(feature = "testing")]
    pub(crate) fn replace_backend(&mut self, backend: &Arc<dyn Backend>) {
        self.backend = Arc::clone(backend);
        self.parts = Parts::of(self);
    }

    /// The parameters of a call as the backend gets them: checked, converted, with defaults.
    ///
    /// # Errors
    /// All problems of the parameters, or that the accepted parameters are not known before `until`.
    pub async fn admit(&self, parameters: Arc<Parameters>, until: Instant) -> Result<Arc<Parameters>, BackendError> {
        let accepted = match &self.input {
            Accepts::All => return Ok(parameters),
            Accepts::Declared(input) => input.accept(Arc::unwrap_or_clone(parameters)),
            Accepts::Announced(announced) => {
                // Boxed: it is rare, and larger than all else of a request.
                let input = Box::pin(announced.input(until)).await;
                let input = input.map_err(|error| error.within("which parameters it has is not known"))?;
                input.accept(Arc::unwrap_or_clone(parameters))
            }
        };
        accepted.map(Arc::new).map_err(|error| BackendError::invalid_input(error.to_string()))
    }

    /// Whether it depends on the bytes of a request alone that the route takes it, and with which parameters: no folder is
    /// read and no command run. `is_named`: whether the path names the route.
    #[must_use]
    pub fn depends_on_bytes_only(&self, is_named: bool) -> bool {
        let is_picked_by_bytes = is_named || self.matcher.as_ref().is_some_and(|matcher| !matcher.needs_file());
        is_picked_by_bytes && !matches!(self.input, Accepts::Announced(_))
    }

    /// Its former names, the last one first.
    #[must_use]
    pub fn formerly(&self) -> &[Arc<str>] {
        &self.formerly
    }

    /// The name under which it is remembered, in all replicas and over restarts: its oldest one.
    #[must_use]
    pub(crate) fn memory_name(&self) -> &Arc<str> {
        self.formerly.last().unwrap_or(&self.name)
    }

    /// Its id, as its keys have it: by its oldest name.
    #[must_use]
    pub const fn id(&self) -> RouteId {
        self.prefix.route()
    }

    /// The identity of `query` on this route.
    #[must_use]
    pub fn key(&self, query: &Query) -> Key {
        self.prefix.key(query)
    }

    /// `parameters`, which a caller sends, as the backend gets them, as far as that is known without running a command. `None` if they are
    /// refused.
    #[must_use]
    pub(crate) fn probably_admitted(&self, parameters: Parameters) -> Option<Parameters> {
        match &self.input {
            Accepts::All | Accepts::Announced(_) => Some(parameters),
            Accepts::Declared(input) => input.accept(parameters).ok(),
        }
    }

    /// Whether the route would accept `parameters`, which an earlier configuration accepted, as far as that is known
    /// without running a command.
    #[must_use]
    pub fn accepts(&self, parameters: &Parameters) -> bool {
        match &self.input {
            Accepts::All | Accepts::Announced(_) => true,
            Accepts::Declared(input) => input.accept(parameters.clone()).is_ok_and(|same| same == *parameters),
        }
    }

    /// `admitted`, the parameters of a call, without those that have their declared default. Most callers do not send these.
    #[must_use]
    pub fn without_defaults(&self, admitted: &Parameters) -> Parameters {
        match &self.input {
            Accepts::Declared(input) => input.without_defaults(admitted),
            Accepts::All | Accepts::Announced(_) => admitted.clone(),
        }
    }

    /// The keys of its parameter sets, if they are fixed by the configuration: those of `output` and `echo`.
    #[must_use]
    pub fn keys(&self) -> Option<Vec<&str>> {
        self.shape.as_ref()?.keys()
    }

    /// The revision of its configuration.
    #[must_use]
    pub const fn revision(&self) -> Revision {
        self.revision
    }

    /// The keys and roots by which its answers are verified. They may change at any time.
    #[must_use]
    pub fn trust(&self) -> Trust {
        self.backend.trust()
    }

    /// The present revision, keys and roots that answers are made under.
    #[must_use]
    pub(crate) fn made_under(&self) -> MadeUnder {
        MadeUnder { revision: self.revision, trust: self.trust().fingerprint }
    }

    /// The state at `now` of an answer that was made under `made_under` at `stored_at`, and that is fresh for `life`. An answer of another
    /// configuration, or under other keys, is never served.
    #[must_use]
    pub fn state(&self, made_under: MadeUnder, stored_at: Timestamp, life: Life, now: Timestamp) -> Freshness {
        if made_under == self.made_under() { self.policy.state(stored_at, life, now) } else { Freshness::Expired }
    }

    /// Whether its answers may depend on the ApplicationSet that asks. If so, its name is part of each question.
    #[must_use]
    pub(crate) const fn depends_on_application_set(&self) -> bool {
        self.prefix.has_application_set()
    }
}

impl Route {
    /// Whether its answers are made of elements.
    #[must_use]
    pub const fn has_elements(&self) -> bool {
        self.parts.is_some()
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}
