//! Routes. The route that the path names answers a call; without a name, the first route whose `match` fits, in the
//! order of the configuration.

mod announced;
pub(crate) mod announcement;
mod build;
pub(crate) mod input;
pub(crate) mod matching;
mod resolved;
mod table;

use std::{sync::Arc, time::Duration};

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

pub(crate) use self::build::check_deadline;
use self::{
    announced::Announced,
    input::{Input, InputParameter},
    matching::{MatchConfig, Matcher},
};
pub(crate) use self::{
    resolved::{RepeatedQuery, ResolvedQuery},
    table::RouteTable,
};
use crate::{
    backend::{
        Backend, BackendConfig,
        script::{CommandConfig, Package},
    },
    domain::{
        clock::Timestamp,
        error::BackendError,
        generator::{Parameters, Query, Trust},
        units::HumanDuration,
    },
    engine::{
        cache::{CacheConfig, Freshness, Key, KeyPrefix, Life, MadeUnder, Policy, Revision},
        guard::{Guard, GuardConfig},
        shadow::{Shadow, ShadowConfig},
        shape::{Nulls, Shape},
    },
    file::base_dir::BaseDir,
    telemetry::metrics::RouteMetrics,
};

/// One route: which calls it takes, who answers them and what the answer looks like.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RouteConfig {
    /// The name, by which `/{name}/api/v1/getparams.execute` goes there directly: lower-case letters,
    /// digits, `-`, `_` and `.`.
    pub(crate) name: String,
    /// Which calls to `/api/v1/getparams.execute` it takes. Without it the route is reached by name
    /// only; `match: {}` takes every call.
    #[serde(rename = "match")]
    pub(crate) matches: Option<MatchConfig>,
    /// The parameters that it understands. Without it, any are accepted; with it, others are refused.
    pub(crate) input: Option<Vec<InputParameter>>,
    /// A program that announces more parameters: it prints a JSON list of them, in the words of a Config Management
    /// Plugin. It is asked once a minute at most, and runs as the route's script does.
    pub(crate) dynamic_input: Option<CommandConfig>,
    /// Where the answers come from.
    pub(crate) backend: BackendConfig,
    /// Each parameter set as templates over the backend's item and over `params` and `applicationSet`.
    /// Without it, the item is passed on as it is.
    pub(crate) output: Option<IndexMap<String, String>>,
    /// Input parameters that are copied into each parameter set.
    #[serde(default)]
    pub(crate) echo: Vec<String>,
    /// Write numbers as text. Argo CD would print 1000000 as `1e+06`.
    #[serde(default = "default_stringify")]
    pub(crate) stringify: bool,
    /// What a `null` means.
    #[serde(default)]
    pub(crate) nulls: Nulls,
    /// How long answers live.
    #[serde(default)]
    pub(crate) cache: CacheConfig,
    /// The parameters that stay when a commit moves on, such as the branch: the answer to the commit before stands
    /// in for one that is not known yet. Without it, a question is followed by itself only.
    pub(crate) lineage: Option<Vec<String>>,
    /// What an answer may lose before it is held.
    #[serde(default)]
    pub(crate) guard: GuardConfig,
    /// When a call is given up; the server's `deadline` unless set.
    pub(crate) deadline: Option<HumanDuration>,
    /// A second backend, which is asked afterwards and compared with `backend`. Callers never get its answers.
    pub(crate) shadow: Option<Box<ShadowConfig>>,
}

const fn default_stringify() -> bool {
    true
}

/// A route, ready to answer.
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// Its backend's kind.
    pub(crate) kind: &'static str,
    /// Its backend.
    pub(crate) backend: Arc<dyn Backend>,
    /// How answers look.
    pub(crate) shape: Shape,
    /// How long they live.
    pub(crate) policy: Policy,
    /// What they may lose.
    pub(crate) guard: Guard,
    /// When a call is given up.
    pub deadline: Duration,
    /// What is counted.
    pub(crate) metrics: RouteMetrics,
    /// The candidate for its backend's place.
    pub(crate) shadow: Option<Arc<Shadow>>,
    input: Accepts,
    lineage: Option<Vec<String>>,
    matcher: Option<Matcher>,
    prefix: KeyPrefix,
    revision: Revision,
    origin: Origin,
}

/// The configuration of a route, without the parts that all routes share.
#[derive(Debug, PartialEq, Eq)]
struct Origin {
    raw: Value,
    base: BaseDir,
    deadline: HumanDuration,
    package: Option<Package>,
}

/// Which parameters a route accepts.
enum Accepts {
    /// Any parameters.
    All,
    /// The declared parameters.
    Declared(Input),
    /// The parameters that a command announces.
    Announced(Box<Announced>),
}

impl Route {
    /// The parameters of a call as the backend gets them: checked, converted, with defaults.
    ///
    /// # Errors
    /// All problems of the parameters, or that the accepted parameters are not known before `until`.
    pub(crate) async fn admit(
        &self,
        parameters: Arc<Parameters>,
        until: Instant,
    ) -> Result<Arc<Parameters>, BackendError> {
        let accepted = match &self.input {
            Accepts::All => return Ok(parameters),
            Accepts::Declared(input) => input.accept(Arc::unwrap_or_clone(parameters)),
            Accepts::Announced(announced) => {
                // Boxed: it is rare, and larger than the rest of a request.
                let input = Box::pin(announced.input(until)).await;
                let input = input.map_err(|error| error.within("which parameters it has is not known"))?;
                input.accept(Arc::unwrap_or_clone(parameters))
            }
        };
        accepted.map(Arc::new).map_err(BackendError::invalid_input)
    }

    /// Whether it depends on the bytes of a request alone that the route takes it, and with which parameters: no folder and no command is
    /// asked. `is_named` tells whether the path names the route.
    #[must_use]
    pub(crate) fn depends_on_bytes_only(&self, is_named: bool) -> bool {
        let is_picked_by_bytes = is_named || self.matcher.as_ref().is_some_and(|matcher| !matcher.must_look());
        is_picked_by_bytes && !matches!(self.input, Accepts::Announced(_))
    }

    /// The identity of `query` on this route.
    #[must_use]
    pub fn key(&self, query: &Query) -> Key {
        self.prefix.key(query)
    }

    /// Whether the route would accept `parameters`, which an earlier configuration accepted, as far as that is known
    /// without running a command.
    #[must_use]
    pub(crate) fn accepts(&self, parameters: &Parameters) -> bool {
        match &self.input {
            Accepts::All | Accepts::Announced(_) => true,
            Accepts::Declared(input) => input.accept(parameters.clone()).is_ok_and(|same| same == *parameters),
        }
    }

    /// `admitted`, the parameters of a call, without those that have their declared default. Most callers do not send these.
    #[must_use]
    pub(crate) fn without_defaults(&self, admitted: &Parameters) -> Parameters {
        match &self.input {
            Accepts::Declared(input) => input.without_defaults(admitted),
            Accepts::All | Accepts::Announced(_) => admitted.clone(),
        }
    }

    /// The revision of its configuration.
    #[must_use]
    pub(crate) const fn revision(&self) -> Revision {
        self.revision
    }

    /// The keys and roots by which its answers are verified. They may change at any time.
    #[must_use]
    pub(crate) fn trust(&self) -> Trust {
        self.backend.trust()
    }

    /// What an answer is made under now.
    #[must_use]
    pub(crate) fn made_under(&self) -> MadeUnder {
        MadeUnder { revision: self.revision, trust: self.trust().fingerprint }
    }

    /// The state at `now` of an answer that was made under `made_under` at `stored_at`, and that is fresh for `life`. An answer of another
    /// configuration, or under other keys, is never served.
    #[must_use]
    pub(crate) fn state(&self, made_under: MadeUnder, stored_at: Timestamp, life: Life, now: Timestamp) -> Freshness {
        if made_under == self.made_under() { self.policy.state(stored_at, life, now) } else { Freshness::Expired }
    }

    /// Whether its answers may depend on the ApplicationSet that asks. If so, its name is part of each question.
    #[must_use]
    pub(crate) const fn depends_on_application_set(&self) -> bool {
        self.prefix.has_application_set()
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Route").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}
