//! `pipeline`: runs steps in order. Each step gets the items of the previous step. If one step fails, the whole answer is
//! *unknown*. An explicit empty list goes on to the next step like any other list.

pub mod select;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Backend, BuildContext, KindConfig, Reached,
    step::StepConfig,
    steps::{StepReport, Steps},
};
use domain::{
    error::BackendError,
    generator::{Outcome, ParameterSet, Query, Trust},
    problem::{Path, Problems},
    secret::Secrets,
};
use lang::scope::ValueType;

/// The `pipeline` backend of a route or step.
#[derive(Debug)]
pub struct Pipeline(Steps);

impl KindConfig for Vec<StepConfig> {
    fn build(&self, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Arc<dyn Backend>> {
        if self.is_empty() {
            problems.error_with_help(
                path,
                "there are no steps",
                "name at least one backend: `pipeline: [ { script: … } ]`",
            );
            return None;
        }
        let raw = context.raw.pointer("/backend/pipeline").unwrap_or(&Value::Null);
        let first_with_items = usize::from(!context.has_items());
        for (index, step) in self.iter().enumerate().skip(first_with_items) {
            if let Some(kind) = step.ignores_items() {
                problems.warning(
                    &path.index(index).key(kind),
                    format!("`{kind}` does not look at the items of the step before it, which are lost"),
                    "let it be the first step, or join both with `merge`",
                );
            }
        }
        let steps = Steps::build(self, "step", true, BuildContext { raw, ..context }, path, problems)?;
        Some(Arc::new(Pipeline(steps)))
    }

    fn takes_notes(&self) -> bool {
        self.iter().any(StepConfig::takes_notes)
    }
}

#[async_trait]
impl Backend for Pipeline {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let (mut items, mut reports) = (query.items.clone(), Vec::new());
        for index in 0..self.0.count() - 1 {
            let (sets, report) = StepReport::split(self.0.ask(index, query, items).await?);
            items = Some(Arc::new(sets.into_iter().map(|ParameterSet(set)| Value::Object(set)).collect()));
            reports.push(report);
        }
        let mut last = self.0.ask(self.0.count() - 1, query, items).await?;
        reports.push(StepReport::of_last(&mut last));
        Ok(self.0.conclude(last, reports, query.ttl))
    }

    fn item(&self) -> ValueType {
        self.0.items().last().unwrap_or_default()
    }

    fn reads_application_set(&self) -> bool {
        self.0.reads_application_set()
    }

    fn takes_notes(&self) -> bool {
        self.0.takes_notes()
    }

    fn trust(&self) -> Trust {
        self.0.trust()
    }

    async fn reach(&self, deadline: Instant) -> Vec<Reached> {
        self.0.reach(deadline).await
    }

    fn forget(&self) {
        self.0.forget();
    }

    fn start_ahead(&self) {
        self.0.start_ahead();
    }

    fn secrets(&self) -> Secrets {
        self.0.secrets()
    }
}
