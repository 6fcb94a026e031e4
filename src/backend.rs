//! The seam between the engine and its sources: the [`Backend`] trait and one file per kind.
//!
//! A backend knows neither routes nor caches nor other backends, but for [`pipeline`] and [`merge`], which are made of
//! others and know them as [`step`]s. To add a kind: a file with its `Config`, `build` and `impl Backend`, and one line in
//! [`BackendConfig`] and [`step::StepConfig`].

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

use crate::{
    clients::{launcher::Launchers, oci::Registries, outbound::Outbound},
    domain::{
        clock::Clock,
        document::kind_of,
        error::BackendError,
        generator::{Outcome, ParameterSet, Query},
        problem::{Path, Problems},
        secret::Secrets,
    },
    file::base_dir::BaseDir,
    lang::evaluator::Evaluator,
};

/// A source of parameter sets.
#[async_trait]
pub(crate) trait Backend: Send + Sync + 'static {
    /// Asks the source. Free of side effects (invariant I7), and done by the query's deadline.
    ///
    /// # Errors
    /// Whenever the answer is not known whole: unknown is never an empty list (invariants I2, I3).
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError>;

    /// Whether an answer may depend on the ApplicationSet's name, which is then part of its cache key.
    fn reads_application_set(&self) -> bool {
        true
    }

    /// Whether it wants to be told what it noted with the answer that a question follows.
    fn takes_notes(&self) -> bool {
        false
    }

    /// Forgets what it learned for others, so that the next question asks the source.
    fn forget(&self) {}

    /// Starts what it wants ready before the first question.
    fn start_ahead(&self) {}

    /// The secrets that it tells its source, and that may come back in what it finds.
    fn secrets(&self) -> Secrets {
        Secrets::default()
    }
}

/// Asks `backend`, and lets whoever watches `query` see it as the step `name`.
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

/// Where a route's answers come from: exactly one kind.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum BackendConfig {
    /// A list in this configuration.
    Fixed(fixed::Config),
    /// A program that is run for each question.
    Script(Box<script::Config>),
    /// A JSON API.
    Http(Box<http::Config>),
    /// The digests of named images, from their registry.
    Digests(Box<digests::Config>),
    /// Several steps: what one finds is what the next is given.
    Pipeline(Vec<step::StepConfig>),
    /// Several backends at once, whose items are joined.
    Merge(step::MergeConfig),
}

/// What the building of a backend may use.
#[derive(Clone, Copy)]
pub struct BuildContext<'a> {
    /// Where relative paths start.
    pub base: &'a BaseDir,
    /// The time, by which what was learned gets old.
    pub clock: &'a Arc<dyn Clock>,
    /// The way out.
    pub outbound: &'a Arc<Outbound>,
    /// Where programs are started.
    pub launchers: &'a Arc<Launchers>,
    /// Where the route's expressions and templates are evaluated.
    pub evaluator: &'a Evaluator,
    /// The route as it stands in the file.
    pub raw: &'a Value,
    /// The registries.
    pub registries: &'a Registries,
    /// Whether it gets the items of a step before it.
    pub has_items: bool,
    /// The package that its programs belong to.
    pub package: Option<&'a script::Package>,
}

impl BackendConfig {
    /// The kind's name: the key in the configuration and the `backend` label of metrics.
    #[must_use]
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "fixed",
            Self::Script(_) => "script",
            Self::Http(_) => "http",
            Self::Digests(_) => "digests",
            Self::Pipeline(_) => "pipeline",
            Self::Merge(_) => "merge",
        }
    }

    /// Whether it, or a part of it, answers what was built before while a commit is not built yet.
    #[must_use]
    pub(crate) fn takes_notes(&self) -> bool {
        match self {
            Self::Fixed(_) | Self::Script(_) | Self::Http(_) => false,
            Self::Digests(config) => config.list.is_none(),
            Self::Pipeline(steps) => steps.iter().any(step::StepConfig::takes_notes),
            Self::Merge(config) => config.backends.iter().any(step::StepConfig::takes_notes),
        }
    }

    /// The backend, or `None` with what is wrong noted in `problems` below `path`.
    pub(crate) fn build(
        &self,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Arc<dyn Backend>> {
        let path = &path.key(self.kind());
        match self {
            Self::Fixed(config) => Some(Arc::new(fixed::Fixed::build(config))),
            Self::Script(config) => Some(Arc::new(script::Script::build(config, context, path, problems)?)),
            Self::Http(config) => Some(Arc::new(http::Http::build(config, context, path, problems)?)),
            Self::Digests(config) => Some(Arc::new(digests::Digests::build(config, context, path, problems)?)),
            Self::Pipeline(config) => Some(Arc::new(pipeline::Pipeline::build(config, context, path, problems)?)),
            Self::Merge(config) => Some(Arc::new(merge::Merge::build(config, context, path, problems)?)),
        }
    }
}

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
