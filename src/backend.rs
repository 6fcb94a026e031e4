//! The seam between the engine and its sources: the [`Backend`] trait, and one file per kind of backend.
//!
//! A backend knows neither routes nor caches. Only [`pipeline`] and [`merge`] know other backends, as [`step`]s. To add a kind: a file with
//! its `Config`, `impl KindConfig` and `impl Backend`, and one entry in `backend_kinds!` below. Tests name what is then still missing.

pub(crate) mod credential;
pub mod digests;
pub(crate) mod fixed;
pub mod getparams;
pub mod http;
mod mapping;
pub(crate) mod merge;
pub(crate) mod pipeline;
pub mod request;
pub mod script;
pub(crate) mod step;
mod steps;
mod total;

use std::{sync::Arc, time::Instant};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

pub(crate) use self::mapping::in_turns_of;
use self::step::{MergeConfig, StepConfig, StepSource};
use crate::{
    clients::{launcher::Launchers, oci::Registries, outbound::Outbound},
    domain::{
        clock::Clock,
        document::kind_of,
        error::BackendError,
        generator::{Outcome, ParameterSet, Query, Trust},
        problem::{Path, Problems},
        secret::Secrets,
    },
    file::base_dir::BaseDir,
    lang::{
        evaluator::{Evaluator, Evaluators},
        scope::{NameScope, ValueType},
    },
};

/// A source of parameter sets.
#[async_trait]
pub(crate) trait Backend: Send + Sync + 'static {
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
pub(crate) async fn ask(
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
pub(crate) struct Reached {
    /// The source, such as `https://inventory.example.com`.
    pub(crate) source: String,
    /// What it said, or why it cannot be reached.
    pub(crate) result: Result<String, BackendError>,
}

/// The configuration of one kind of backend.
pub(crate) trait KindConfig {
    /// The backend, or `None` with its problems noted below `path`.
    fn build(&self, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Backend>>;

    /// Whether the backend may serve the last build while a newer commit is not built yet. Such a backend notes with each answer what it
    /// must know later.
    fn takes_notes(&self) -> bool {
        false
    }

    /// Whether the backend can use the items of the step before it.
    fn reads_items(&self) -> bool {
        true
    }

    /// Whether answers may become outdated. The list of `fixed` never does.
    fn gets_old(&self) -> bool {
        true
    }
}

/// Makes [`BackendConfig`], [`StepFields`] and [`KINDS`] from one list of kinds: the variant, its key in the configuration, and the type of
/// its configuration, which implements [`KindConfig`].
macro_rules! backend_kinds {
    ($($(#[$doc:meta])* $variant:ident($key:ident: $config:ty),)+) => {
        /// Where a route's answers come from: exactly one kind.
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub(crate) enum BackendConfig {
            $($(#[$doc])* $variant($config),)+
        }

        /// The keys of all kinds.
        pub const KINDS: &[&str] = &[$(stringify!($key)),+];

        impl BackendConfig {
            /// The kind's name: the key in the configuration and the `backend` label of metrics.
            #[must_use]
            pub(crate) const fn kind(&self) -> &'static str {
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
            $({"required": [stringify!($key)]},)+ {"required": ["select"]},
        ]))]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct StepFields {
            /// The step's name in messages; its number unless set.
            name: Option<String>,
            $($(#[$doc])* $key: Option<$config>,)+
            /// Only in a pipeline: a CEL expression over `items`, the items of the step before, and `params`. It gives a list of objects.
            select: Option<String>,
        }

        impl From<StepFields> for StepConfig {
            fn from(fields: StepFields) -> Self {
                let sources = [
                    $(fields.$key.map(|config| StepSource::Backend(BackendConfig::$variant(config))),)+
                    fields.select.map(StepSource::Select),
                ];
                Self::new(fields.name, sources.into_iter().flatten().collect())
            }
        }
    };
}

backend_kinds! {
    /// A list in this configuration.
    Fixed(fixed: fixed::Config),
    /// A program that is run for each question. As a later step of a pipeline it reads the items of the step before as `items`.
    Script(script: Box<script::Config>),
    /// A JSON API. As a later step of a pipeline its templates and its expression know the items of the step before as `items`.
    Http(http: Box<http::Config>),
    /// The digests of named images, or a list of tags, from their registry.
    Digests(digests: Box<digests::Config>),
    /// Several steps. Each step gets the items that the step before found.
    Pipeline(pipeline: Vec<StepConfig>),
    /// Several backends at once, whose items are joined.
    Merge(merge: MergeConfig),
}

impl<C: KindConfig> KindConfig for Box<C> {
    fn build(&self, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Backend>> {
        (**self).build(context, path, problems)
    }

    fn takes_notes(&self) -> bool {
        (**self).takes_notes()
    }

    fn reads_items(&self) -> bool {
        (**self).reads_items()
    }

    fn gets_old(&self) -> bool {
        (**self).gets_old()
    }
}

impl BackendConfig {
    /// The backend, or `None` with its problems noted below `path`.
    pub(crate) fn build(
        &self,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Arc<dyn Backend>> {
        self.config().build(context, &path.key(self.kind()), problems)
    }

    /// [`KindConfig::takes_notes`].
    #[must_use]
    pub(crate) fn takes_notes(&self) -> bool {
        self.config().takes_notes()
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
    /// The package that the backend's programs belong to.
    pub package: Option<&'a script::Package>,
    /// What candidates of shadows use in place of `outbound`, `registries`, `launchers` and the evaluators; the same unless set.
    pub apart: Option<&'a Apart>,
}

/// Clients for backends that must not take anything from others: no connection, no turn, no rest of a failing destination, nothing learned.
#[derive(Debug)]
pub struct Apart {
    /// The HTTP clients.
    pub outbound: Arc<Outbound>,
    /// The registries.
    pub registries: Registries,
    /// The launchers, which start programs.
    pub launchers: Arc<Launchers>,
    /// The processes that evaluate costly expressions.
    pub(crate) evaluators: Arc<Evaluators>,
}

impl BuildContext<'_> {
    /// Whether the backend gets the items of a step before it.
    #[must_use]
    pub(crate) fn has_items(&self) -> bool {
        self.scope.has(ITEMS)
    }
}

/// The variable with the items of the step before.
pub(crate) const ITEMS: &str = "items";

/// The parameter sets of a document that must be a list of objects.
///
/// # Errors
/// When it is anything else; the text says what.
pub(crate) fn parameter_sets(document: Value) -> Result<Vec<ParameterSet>, BackendError> {
    let Value::Array(items) = document else {
        return Err(BackendError::invalid_output(format!("expected a list of objects, found {}", kind_of(&document))));
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
