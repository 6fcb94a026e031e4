//! `pipeline`: steps, each of which gets the items that the one before found. A step that does not know makes the whole
//! answer *unknown*; an explicit empty list goes on to the next step like any other.

pub(crate) mod select;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::{
    Backend, BuildContext,
    step::StepConfig,
    steps::{StepReport, Steps},
};
use crate::domain::{
    error::BackendError,
    generator::{Outcome, ParameterSet, Query},
    problem::{Path, Problems},
    secret::Secrets,
};

/// The steps, ready to be asked.
#[derive(Debug)]
pub(crate) struct Pipeline(Steps);

impl Pipeline {
    /// Builds the steps.
    pub(crate) fn build(
        steps: &[StepConfig],
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        if steps.is_empty() {
            problems.error_with_help(
                path,
                "there are no steps",
                "name at least one backend: `pipeline: [ { script: … } ]`",
            );
            return None;
        }
        let raw = context.raw.pointer("/backend/pipeline").unwrap_or(&Value::Null);
        for (index, step) in steps.iter().enumerate().filter(|(index, _)| *index > 0 || context.has_items) {
            let deaf = [("fixed", step.fixed.is_some()), ("digests", step.digests.is_some())];
            for (kind, _) in deaf.into_iter().filter(|(_, is_it)| *is_it) {
                problems.warning(
                    &path.index(index).key(kind),
                    format!("`{kind}` does not look at the items of the step before it, which are lost"),
                    "let it be the first step, or join both with `merge`",
                );
            }
        }
        Some(Self(Steps::build(steps, "step", true, BuildContext { raw, ..context }, path, problems)?))
    }
}

#[async_trait]
impl Backend for Pipeline {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let (mut items, mut said) = (query.items.clone(), Vec::new());
        for index in 0..self.0.count() - 1 {
            let (sets, rest) = StepReport::apart(self.0.ask(index, query, items).await?);
            items = Some(Arc::new(sets.into_iter().map(|ParameterSet(set)| Value::Object(set)).collect()));
            said.push(rest);
        }
        let mut last = self.0.ask(self.0.count() - 1, query, items).await?;
        said.push(StepReport::besides(&mut last));
        Ok(self.0.conclude(last, said, query.ttl))
    }

    fn reads_application_set(&self) -> bool {
        self.0.reads_application_set()
    }

    fn takes_notes(&self) -> bool {
        self.0.takes_notes()
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
