//! `merge`: calls several backends at the same time, and joins their items by the values of keys, as Argo CD's merge generator
//! does. If one backend fails, the whole answer is *unknown*.

pub mod join;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::Value;

use self::join::{Join, join};
use super::{
    Backend, BuildContext, Building, KindConfig, Nature,
    step::{MergeConfig, StepConfig},
    steps::{StepReport, Steps},
};
use domain::{
    error::BackendError,
    generator::{Outcome, Query},
};
use lang::scope::{NameScope, ValueType};

/// The `merge` backend of a route or step.
#[derive(Debug)]
pub struct Merge {
    keys: Vec<String>,
    join: Join,
    steps: Steps,
    nature: Nature,
}

impl KindConfig for MergeConfig {
    fn build(&self, building: &mut Building<'_>) -> Option<Arc<dyn Backend>> {
        let context = building.context;
        let mut keys = building.key("mergeKeys");
        if self.merge_keys.is_empty() {
            keys.error_with_help("there are no keys", "name what items have in common: `mergeKeys: [cluster]`");
        }
        for (index, key) in self.merge_keys.iter().enumerate() {
            if key.split('.').any(str::is_empty) {
                keys.index(index).error("a key is a name, or names with dots between them");
            } else if self.merge_keys[..index].contains(key) {
                keys.index(index).error(format!("`{}` stands here twice", key.escape_debug()));
            }
        }
        let mut backends = building.key("backends");
        if self.backends.len() < 2 {
            backends.error_with_help("there is nothing to merge", "name two backends or more");
        }
        let raw = context.raw.pointer("/backend/merge/backends").unwrap_or(&Value::Null);
        let mut backends = backends.with(BuildContext { raw, ..context });
        let steps = Steps::build(&self.backends, "backend", false, &mut backends)?;
        check_keys(&self.merge_keys, &steps, &mut building.key("mergeKeys"));
        let nature = steps.nature(ValueType::any_of(steps.items()));
        Some(Arc::new(Merge { keys: self.merge_keys.clone(), join: self.join, steps, nature }))
    }

    fn serves_last_build(&self) -> bool {
        self.backends.iter().any(StepConfig::serves_last_build)
    }
}

#[async_trait]
impl Backend for Merge {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let fetches = (0..self.steps.count()).map(|index| self.steps.fetch(index, query, query.items.clone()));
        let (mut lists, mut reports) = (Vec::new(), Vec::new());
        for outcome in all(join_all(fetches).await)? {
            let (sets, report) = StepReport::split(outcome);
            lists.push(sets);
            reports.push(report);
        }
        let counts: Vec<String> = lists.iter().map(|list| list.len().to_string()).collect();
        let steps =
            format!("the {} join of {} items by {}", self.join.as_str(), counts.join(" and "), self.keys.join(", "));
        let sets = join(lists, &self.keys, self.join).map_err(|(index, why)| {
            self.steps.secrets().clean(&BackendError::invalid_output(why)).within(self.steps.label(index))
        })?;
        Ok(self.steps.conclude(Outcome::of_list(sets, steps, "nothing is left"), reports, query.ttl))
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }

    fn parts(&self) -> Vec<&dyn Backend> {
        self.steps.backends()
    }
}

/// Notes the merge keys that the items of a backend cannot have.
fn check_keys(keys: &[String], steps: &Steps, building: &mut Building<'_>) {
    for (index, key) in keys.iter().enumerate() {
        for (step, item) in steps.items().enumerate() {
            let scope = NameScope::of(&[]).with_keys_of(&item);
            // A key may itself have dots.
            if let Err(unknown) = scope.follow(key)
                && scope.get(key).is_none()
            {
                let message = format!("the items of {} have no key `{key}`", steps.label(step));
                building.index(index).mistake(message, unknown.help);
            }
        }
    }
}

/// All outcomes, or all errors in one (invariant I3).
fn all(results: Vec<Result<Outcome, BackendError>>) -> Result<Vec<Outcome>, BackendError> {
    let (mut outcomes, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        return Ok(outcomes);
    }
    let learned = outcomes.into_iter().flat_map(|outcome| outcome.evidence);
    let evidence = learned.chain(errors.iter().flat_map(|error| error.evidence.clone())).collect();
    BackendError::of_all(&errors, evidence).map_or(Ok(Vec::new()), Err)
}
