//! A backend that is a part of another, as it is configured: a step of a pipeline, or one of those that a merge asks.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Backend, BackendConfig, BuildContext, digests, fixed, http, merge::join::Join, pipeline::select::Select, script,
};
use crate::domain::problem::{Path, Problems};

/// One part: exactly one kind of backend and, if wanted, a name.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "BackendPart", extend("oneOf" = [
    {"required": ["fixed"]}, {"required": ["script"]}, {"required": ["http"]}, {"required": ["digests"]},
    {"required": ["pipeline"]}, {"required": ["merge"]}, {"required": ["select"]},
]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct StepConfig {
    /// What it is called in messages; its number unless set.
    pub(crate) name: Option<String>,
    /// A list in this configuration.
    pub(crate) fixed: Option<fixed::Config>,
    /// A program. From the second step on it reads the items of the step before as `items`.
    pub(crate) script: Option<Box<script::Config>>,
    /// A JSON API. From the second step on its templates and its expression know the items of the step before as `items`.
    pub(crate) http: Option<Box<http::Config>>,
    /// The digests of images.
    pub(crate) digests: Option<Box<digests::Config>>,
    /// Several steps.
    pub(crate) pipeline: Option<Vec<StepConfig>>,
    /// Several backends at once.
    pub(crate) merge: Option<MergeConfig>,
    /// In a pipeline: a CEL expression over `items`, what the step before found, and `params`, that gives a list of
    /// objects.
    pub(crate) select: Option<String>,
}

/// Backends, and how their items are joined.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "MergeBackend")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MergeConfig {
    /// Items belong together when the values of all these keys are equal. A dot leads into an object: `values.cluster`.
    /// Each item must have them, and no two of one backend the same.
    #[schemars(length(min = 1))]
    pub(crate) merge_keys: Vec<String>,
    /// Which items there are in the end.
    #[serde(default)]
    pub(crate) join: Join,
    /// The backends. What later ones say of an item overrides what earlier ones do, key by key, also within objects; a
    /// list is replaced.
    #[schemars(length(min = 2))]
    pub(crate) backends: Vec<StepConfig>,
}

impl StepConfig {
    /// The backends that it names.
    fn backends(&self) -> Vec<BackendConfig> {
        let all = [
            self.fixed.clone().map(BackendConfig::Fixed),
            self.script.clone().map(BackendConfig::Script),
            self.http.clone().map(BackendConfig::Http),
            self.digests.clone().map(BackendConfig::Digests),
            self.pipeline.clone().map(BackendConfig::Pipeline),
            self.merge.clone().map(BackendConfig::Merge),
        ];
        all.into_iter().flatten().collect()
    }

    /// Whether it answers what was built before, as [`BackendConfig::takes_notes`].
    pub(super) fn takes_notes(&self) -> bool {
        self.backends().iter().any(BackendConfig::takes_notes)
    }

    /// The backend and its kind. Only a step of a pipeline may select.
    pub(super) fn build(
        &self,
        is_step: bool,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<(&'static str, Arc<dyn Backend>)> {
        let kinds = "one of fixed, script, http, digests, pipeline, merge, and select in a pipeline";
        match (&*self.backends(), &self.select) {
            ([backend], None) => Some((backend.kind(), backend.build(context, path, problems)?)),
            ([], Some(source)) => {
                let path = path.key("select");
                if !is_step {
                    let help = "put both into one: `{ pipeline: [ …, { select: … } ] }`";
                    problems.error_with_help(&path, "`select` is a step of a pipeline, not a backend", help);
                } else if !context.has_items {
                    let help = "`select` chooses among the items of the step before it";
                    problems.error_with_help(&path, "there is nothing to select from", help);
                }
                Some(("select", Arc::new(problems.note(&path, Select::compile(source, context.evaluator))?)))
            }
            ([], None) => {
                problems.error_with_help(path, "it names no backend", format!("it needs {kinds}"));
                None
            }
            _ => {
                problems.error_with_help(path, "it names several backends", format!("it has exactly {kinds}"));
                None
            }
        }
    }
}
