//! The configuration of a step: of a pipeline, or one of the backends that a merge joins.

use std::{borrow::Cow, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;

use super::{
    Backend, BackendConfig, BuildContext, Building, ITEMS, KINDS, StepFields, each::EachConfig, merge::join::Join,
    not_one::NotOne, pipeline::select::Select,
};
use lang::scope::ValueType;

/// One step, with a name if wanted.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "StepFields")]
pub struct StepConfig {
    /// The step's name in messages; its number unless set.
    pub(super) name: Option<String>,
    source: Result<StepSource, NotOne>,
}

/// Where a step's items come from.
#[derive(Debug, Clone)]
pub(super) enum StepSource {
    /// A backend.
    Backend(BackendConfig),
    /// A CEL expression over the items of the step before.
    Select(String),
    /// A backend for each item of the step before.
    Each(Box<EachConfig>),
}

/// A step's backend, built.
pub(super) struct BuiltStep {
    /// The key of the backend in the configuration.
    pub(super) kind: &'static str,
    pub(super) backend: Arc<dyn Backend>,
}

/// Backends, and how their items are joined.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "MergeBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MergeConfig {
    /// Items belong together if the values of all these keys are equal. A dot leads into an object: `values.cluster`.
    /// Each item must have the keys, and no two items of one backend may have the same values.
    #[schemars(length(min = 1))]
    pub merge_keys: Vec<String>,
    /// Which items the answer has.
    #[serde(default)]
    pub join: Join,
    /// The backends. The values of a later backend override those of earlier backends, key by key, also within objects. A list is
    /// replaced as a whole.
    #[schemars(length(min = 2))]
    pub backends: Vec<StepConfig>,
}

impl JsonSchema for StepConfig {
    fn schema_name() -> Cow<'static, str> {
        StepFields::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        StepFields::json_schema(generator)
    }
}

impl StepConfig {
    /// A step that names `sources`, of which there should be one.
    pub(super) fn new(name: Option<String>, sources: Vec<StepSource>) -> Self {
        Self { name, source: NotOne::check(sources.into_iter()) }
    }

    /// The backend that the step names.
    fn backend(&self) -> Option<&BackendConfig> {
        match &self.source {
            Ok(StepSource::Backend(config)) => Some(config),
            Ok(StepSource::Select(_) | StepSource::Each(_)) | Err(_) => None,
        }
    }

    /// The step's `each`, if it is one.
    pub(super) fn each(&self) -> Option<&EachConfig> {
        if let Ok(StepSource::Each(each)) = &self.source { Some(each) } else { None }
    }

    /// [`KindConfig::serves_last_build`](super::KindConfig::serves_last_build) of the step's backend.
    pub(super) fn serves_last_build(&self) -> bool {
        self.backend().is_some_and(BackendConfig::serves_last_build)
            || self.each().is_some_and(EachConfig::serves_last_build)
    }

    /// The kind of the step's backend if the backend cannot use the items of the step before it.
    pub(super) fn ignores_items(&self) -> Option<&'static str> {
        let backend = self.backend()?;
        if backend.config().reads_items() { None } else { Some(backend.kind()) }
    }

    /// Builds the step. Only a step of a pipeline may select.
    pub(super) fn build(&self, is_pipeline: bool, building: &mut Building<'_>) -> Option<BuiltStep> {
        match &self.source {
            Ok(StepSource::Backend(config)) => {
                Some(BuiltStep { kind: config.kind(), backend: config.build(building)? })
            }
            Ok(StepSource::Select(expression)) => select(expression, is_pipeline, &mut building.key("select")),
            Ok(StepSource::Each(_)) => {
                let help = "let it be the last step of the pipeline that is the route's `backend`, after the steps that make the list; a \
                            `merge` can be one of these";
                building.key("each").error_with_help("`each` is a step of a route's pipeline, not a backend", help);
                None
            }
            Err(not_one) => {
                let kinds = format!("one of {}, and select or each in a pipeline", KINDS.join(", "));
                match not_one {
                    NotOne::Missing => building.error_with_help("it names no backend", format!("it needs {kinds}")),
                    NotOne::Several => {
                        building.error_with_help("it names several backends", format!("it has exactly {kinds}"));
                    }
                }
                None
            }
        }
    }
}

fn select(expression: &str, is_pipeline: bool, building: &mut Building<'_>) -> Option<BuiltStep> {
    let context = building.context;
    let is_usable = is_pipeline && context.has_items();
    if !is_pipeline {
        let help = "put both into one: `{ pipeline: [ …, { select: … } ] }`";
        building.error_with_help("`select` is a step of a pipeline, not a backend", help);
    } else if !context.has_items() {
        building.error_with_help(
            "there is nothing to select from",
            "`select` chooses among the items of the step before it",
        );
    }
    // Where there are no items, that is the only problem to report.
    let scope = &if is_usable { context.scope.clone() } else { context.scope.with(ITEMS, ValueType::Anything) };
    let select = Select::build(expression, &mut building.with(BuildContext { scope, ..context }))?;
    Some(BuiltStep { kind: "select", backend: Arc::new(select) })
}
