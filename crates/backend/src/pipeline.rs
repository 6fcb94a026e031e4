//! `pipeline`: runs steps in order. Each step gets the items of the previous step. If one step fails, the whole answer is
//! *unknown*. An explicit empty list is passed to the next step like any other list.

pub mod select;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::{
    Backend, BuildContext, Building, KindConfig, Nature,
    step::StepConfig,
    steps::{StepReport, Steps},
};
use domain::{
    error::BackendError,
    generator::{Outcome, ParameterSet, Query},
};

/// The `pipeline` backend of a route or step.
#[derive(Debug)]
pub struct Pipeline {
    steps: Steps,
    nature: Nature,
}

impl KindConfig for Vec<StepConfig> {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        let context = building.context;
        if self.is_empty() {
            building.error_with_help("there are no steps", "name at least one backend: `pipeline: [ { script: … } ]`");
            return None;
        }
        let raw = context.raw.pointer("/backend/pipeline").unwrap_or(&Value::Null);
        let first_with_items = usize::from(!context.has_items());
        for (index, step) in self.iter().enumerate().skip(first_with_items) {
            if let Some(kind) = step.ignores_items() {
                building.index(index).key(kind).warning(
                    format!("`{kind}` does not look at the items of the step before it, which are lost"),
                    "let it be the first step, or join both with `merge`",
                );
            }
        }
        if self.has_misplaced_each(building) {
            return None;
        }
        if let Some((last, first)) = self.split_last()
            && let Some(each) = last.each()
        {
            let list = Pipeline::build(first, &mut building.with(BuildContext { raw, ..context }))?;
            let of_step = raw.get(first.len()).and_then(|step| step.get("each")).unwrap_or(&Value::Null);
            let building = &mut building.index(first.len());
            return Some(Arc::new(each.build(Arc::new(list), of_step, &mut building.key("each"))?));
        }
        Some(Arc::new(Pipeline::build(self, &mut building.with(BuildContext { raw, ..context }))?))
    }

    fn serves_last_build(&self) -> bool {
        self.iter().any(StepConfig::serves_last_build)
    }
}

/// The steps of a pipeline, as they are configured.
trait PipelineSteps {
    /// Notes each `each` that is not the last step of a route's pipeline. Returns whether there is one.
    fn has_misplaced_each(&self, building: &mut Building<'_>) -> bool;
}

impl PipelineSteps for [StepConfig] {
    fn has_misplaced_each(&self, building: &mut Building<'_>) -> bool {
        let mut is_any = false;
        for (index, _) in self.iter().enumerate().filter(|(_, step)| step.each().is_some()) {
            let (message, help) = if !building.context.is_route {
                (
                    "`each` is not possible in a pipeline within another backend",
                    "let it be the last step of the pipeline that is the route's `backend`",
                )
            } else if index == 0 {
                (
                    "`each` is the first step, so there is no list whose items it could query",
                    "write the step that makes the list before it, such as `http`",
                )
            } else if index + 1 < self.len() {
                (
                    "`each` is not the last step, and its elements are remembered one by one, so no step can read all of them",
                    "do in `output` what the later steps do, or move these into `each` as its `pipeline`",
                )
            } else {
                continue;
            };
            building.index(index).key("each").error_with_help(message, help);
            is_any = true;
        }
        is_any
    }
}

impl Pipeline {
    /// The pipeline of `steps`.
    fn build(steps: &[StepConfig], building: &mut Building<'_>) -> Option<Self> {
        let steps = Steps::build(steps, "step", true, building)?;
        let nature = steps.nature(steps.items().next_back().unwrap_or_default());
        Some(Self { steps, nature })
    }
}

#[async_trait]
impl Backend for Pipeline {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let last = self.steps.count() - 1;
        let (mut items, mut reports) = (query.items.clone(), Vec::new());
        for index in 0..last {
            let (sets, report) = StepReport::split(self.steps.fetch(index, query, items).await?);
            items = Some(Arc::new(sets.into_iter().map(|ParameterSet(set)| Value::Object(set)).collect()));
            reports.push(report);
        }
        let mut outcome = self.steps.fetch(last, query, items).await?;
        reports.push(StepReport::of_last(&mut outcome));
        Ok(self.steps.conclude(outcome, reports, query.ttl))
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn parts(&self) -> Vec<&dyn Backend> {
        self.steps.backends()
    }
}
