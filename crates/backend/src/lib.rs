//! Kinds of backends: where a route gets its parameters from. One file per kind: [`fixed`], [`http`], [`script`], [`kubernetes`], [`sql`], [`digests`],
//! [`pipeline`] (with its last step [`each`]) and [`merge`].
//!
//! Start at [`source::Backend`], then [`fixed`], the smallest one. Used by the program. A backend has neither routes nor caches. Only [`pipeline`], [`each`]
//! and [`merge`] use other backends: [`step`] is the configuration of one of them, and `steps` are those built from it.
//!
//! Kinds share these: [`Building`] collects a builder's context and problems, [`request`] makes HTTP requests from templates, [`credential`] has
//! the secrets for them, `judging` decides which replies an expression sees, `mapping` runs CEL expressions over replies, [`getparams`] is the protocol of Argo CD's plugins, and `total` compares
//! the item count in an API's reply with the number of items read.
//!
//! To add a kind: a file with its `Config`, `impl KindConfig` and `impl Backend`, and one entry in `backend_kinds!` below. Tests then fail for
//! each place that does not mention it yet.

mod building;
pub mod credential;
pub mod digests;
pub mod each;
pub mod fixed;
pub mod getparams;
pub mod http;
mod judging;
pub mod kubernetes;
mod mapping;
pub mod merge;
mod not_one;
mod now;
pub mod pipeline;
pub mod request;
pub mod script;
pub mod sql;
pub mod step;
mod steps;
mod total;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub use self::building::Building;
use self::{
    each::EachConfig,
    not_one::NotOne,
    step::{MergeConfig, StepConfig, StepSource},
};
use domain::{
    clock::Clock,
    document::{found, kind_of},
    error::BackendError,
    file::base_dir::BaseDir,
    generator::ParameterSet,
};
use lang::{
    evaluator::{Evaluator, Evaluators},
    scope::NameScope,
};
use launcher::Launchers;
use oci::Registries;
use outbound::Outbound;
use source::{Backend, MaxUnknown, Nature, Reached, fetch_watched};

/// The configuration of one kind of backend.
pub trait KindConfig {
    /// The backend, or `None` with its problems noted.
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>>;

    /// Whether the backend can use the items of the step before it.
    fn reads_items(&self) -> bool {
        true
    }

    /// Whether the backend may serve the last build while a newer commit is not built yet.
    fn serves_last_build(&self) -> bool {
        false
    }
}

/// Makes [`BackendConfig`], [`StepFields`] and [`KINDS`] from one list of kinds: the variant, its key in the configuration, and the type of
/// its configuration, which implements [`KindConfig`].
macro_rules! backend_kinds {
    ($($(#[$doc:meta])* $variant:ident($key:ident: $config:ty),)+) => {
        /// Where a route's answers come from: exactly one kind.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub enum BackendConfig {
            $($(#[$doc])* $variant($config),)+
        }

        /// The keys of all kinds.
        pub const KINDS: &[&str] = &[$(stringify!($key)),+];

        impl BackendConfig {
            /// The kind's name: the key in the configuration and the `backend` label of metrics.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => stringify!($key),)+
                }
            }

            fn config(&self) -> &dyn KindConfig {
                match self {
                    $(Self::$variant(config) => &*config,)+
                }
            }
        }

        /// The keys of a step: exactly one kind of backend or `select`, and a name if wanted.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[schemars(rename = "BackendPart", extend("oneOf" = [
            $({"required": [stringify!($key)]},)+ {"required": ["select"]}, {"required": ["each"]},
        ]))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct StepFields {
            /// The step's name in messages; its number unless set.
            name: Option<String>,
            $($(#[$doc])* $key: Option<$config>,)+
            /// Only in a pipeline: a CEL expression over `items`, the items of the step before, and `params`. It gives a list of objects.
            select: Option<String>,
            /// Only as the last step of a route's pipeline: a backend that is queried for each item of the step before.
            each: Option<Box<EachConfig>>,
        }

        impl From<StepFields> for StepConfig {
            fn from(fields: StepFields) -> Self {
                let sources = [
                    $(fields.$key.map(|config| StepSource::Backend(BackendConfig::$variant(config))),)+
                    fields.select.map(StepSource::Select),
                    fields.each.map(StepSource::Each),
                ];
                Self::new(fields.name, sources.into_iter().flatten().collect())
            }
        }

        /// Queries a backend for each item of the step before: exactly one kind of backend, whose templates and expressions can use `item`.
        /// Each element is remembered by itself: one that is unknown keeps its last parameter sets, for at most `staleIfError`.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[schemars(rename = "EachStep", extend("oneOf" = [$({"required": [stringify!($key)]},)+]))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct EachFields {
            /// The fields of an item that make it the same element in the next list, such as `[number]` or `[repository, number]`. A dot
            /// leads into an object. No two items may have the same values.
            #[schemars(length(min = 1))]
            key: Vec<String>,
            /// How many elements may be unknown, as a number or a share. With more, or with more than half, the whole answer is unknown.
            max_unknown: Option<MaxUnknown>,
            $($(#[$doc])* $key: Option<$config>,)+
        }

        impl From<EachFields> for EachConfig {
            fn from(fields: EachFields) -> Self {
                let sources = [$(fields.$key.map(BackendConfig::$variant),)+];
                let source = NotOne::check(sources.into_iter().flatten()).map(Box::new);
                Self { key: fields.key, max_unknown: fields.max_unknown, source }
            }
        }
    };
}

backend_kinds! {
    /// A list in this configuration.
    Fixed(fixed: fixed::Config),
    /// A program that is run for each query. As a later step of a pipeline it reads the items of the step before as `items`.
    Script(script: Box<script::Config>),
    /// A JSON API. As a later step of a pipeline its templates and its expression can use the items of the step before as `items`.
    Http(http: Box<http::Config>),
    /// The rows of a query to PostgreSQL, MySQL or MariaDB.
    Sql(sql: Box<sql::Config>),
    /// The objects of a cluster, or of all clusters that Argo CD knows.
    Kubernetes(kubernetes: Box<kubernetes::Config>),
    /// The digests of named images, or a list of tags, from their registry.
    Digests(digests: Box<digests::Config>),
    /// Several steps. Each step gets the items that the step before found.
    Pipeline(pipeline: Vec<StepConfig>),
    /// Several backends at once, whose items are joined.
    Merge(merge: MergeConfig),
}

impl<C: KindConfig> KindConfig for Box<C> {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        (**self).build(building)
    }

    fn reads_items(&self) -> bool {
        (**self).reads_items()
    }

    fn serves_last_build(&self) -> bool {
        (**self).serves_last_build()
    }
}

impl BackendConfig {
    /// The backend, or `None` with its problems noted.
    pub fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        self.config().build(&mut building.backend(self.kind()))
    }

    /// [`KindConfig::serves_last_build`].
    #[must_use]
    pub fn serves_last_build(&self) -> bool {
        self.config().serves_last_build()
    }
}

/// Everything that building a backend may use.
#[derive(Clone, Copy)]
pub struct BuildContext<'a> {
    /// The folder that relative paths start from.
    pub base: &'a BaseDir,
    /// The time, by which cached knowledge becomes outdated.
    pub clock: &'a Arc<dyn Clock>,
    /// The HTTP clients.
    pub outbound: &'a Arc<Outbound>,
    /// The launchers, which start programs.
    pub launchers: &'a Arc<Launchers>,
    /// Evaluates the route's expressions and templates.
    pub evaluator: &'a Evaluator,
    /// The route's configuration as a document.
    pub raw: &'a Value,
    /// The registries.
    pub registries: &'a Registries,
    /// The names that templates over the call can use. They include `items` if the backend gets the items of a step before it.
    pub scope: &'a NameScope,
    /// Whether the backend is the route's own, and no part of another one.
    pub is_route: bool,
    /// The package that the backend's programs belong to.
    pub package: Option<&'a script::Package>,
    /// The replacements that candidates of shadows use for `outbound`, `registries`, `launchers` and the evaluators; the same unless set.
    pub isolated: Option<&'a IsolatedClients>,
}

/// Clients for backends that must not take anything from others: no connection, no permit, no backoff of a failing destination, no cached
/// reply.
#[derive(Debug)]
pub struct IsolatedClients {
    /// The HTTP clients.
    pub outbound: Arc<Outbound>,
    /// The registries.
    pub registries: Registries,
    /// The launchers, which start programs.
    pub launchers: Arc<Launchers>,
    /// The processes that evaluate costly expressions.
    pub evaluators: Arc<Evaluators>,
}

impl BuildContext<'_> {
    /// Whether the backend gets the items of a step before it.
    #[must_use]
    pub(crate) fn has_items(&self) -> bool {
        self.scope.has(ITEMS)
    }
}

/// The variable with the items of the step before.
pub const ITEMS: &str = "items";
/// The variable with the item of the element, below `each`.
pub const ITEM: &str = "item";

/// The parameter sets of a document that must be a list of objects.
///
/// # Errors
/// When it is anything else; the text names its type.
pub fn parameter_sets(document: Value) -> Result<Vec<ParameterSet>, BackendError> {
    let Value::Array(items) = document else {
        return Err(BackendError::invalid_output(format!("expected a list of objects, found {}", found(&document))));
    };
    items
        .into_iter()
        .enumerate()
        .map(|(index, item)| match item {
            Value::Object(map) => Ok(ParameterSet(map)),
            other => Err(BackendError::invalid_output(format!("item {index} is {}, not an object", kind_of(&other)))),
        })
        .collect()
}
