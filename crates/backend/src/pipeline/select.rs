//! `select`: a CEL expression that filters and maps the items of the previous step.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{
    Backend, Building, ITEM, ITEMS, Nature,
    mapping::{self, Inputs},
    now::{self, NOW, Now},
    parameter_sets,
};
use domain::{
    error::BackendError,
    generator::{Outcome, Query},
    units::plural,
};
use lang::{
    evaluator::{Evaluator, Variables},
    expression::Expression,
    scope::ValueType,
};
use source::Load;

/// Longer lists of items are processed off the async threads.
const MAX_SMALL_LIST: usize = 100;

/// A compiled `select` expression.
#[derive(Debug)]
pub struct Select {
    expression: Arc<Expression>,
    evaluator: Evaluator,
    now: Now,
    uses_now: bool,
    nature: Nature,
}

impl Select {
    /// Compiles `source`, and notes its mistakes.
    pub fn build(source: &str, building: &mut Building<'_>) -> Option<Self> {
        let scope = building.context.scope.only(&[ITEMS, ITEM, "params"]).with(NOW, ValueType::Plain("a number"));
        let (expression, item) = Expression::build_objects(source, &scope, &building.path, building.problems)?;
        let uses_now = expression.uses(NOW);
        let nature = Nature { reads_application_set: false, gets_old: uses_now, item, ..Nature::default() };
        let (now, evaluator) = (Now::of(building.context.clock), building.context.evaluator.clone());
        Some(Self { expression: Arc::new(expression), evaluator, now, uses_now, nature })
    }
}

#[async_trait]
impl Backend for Select {
    async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
        let items = query.items.clone().unwrap_or_else(|| Arc::new(Value::Array(Vec::new())));
        let count = items.as_array().map_or(0, Vec::len);
        let mut variables = Variables::default().value("items", items);
        if self.expression.mentions("params") {
            variables = variables.value("params", Value::Object((*query.parameters).clone()));
        }
        if self.uses_now {
            variables = variables.value(NOW, Value::from(self.now.seconds()));
        }
        if let Some(item) = query.item() {
            variables = variables.value(ITEM, Arc::clone(item));
        }
        let load = if count > MAX_SMALL_LIST { Load::Unknown } else { Load::Bytes(count) };
        let (deadline, invalid) = (query.deadline, BackendError::invalid_output);
        let selected =
            mapping::evaluate(&self.evaluator, &self.expression, Inputs { variables, load }, deadline, invalid);
        let sets = parameter_sets(selected.await?)?;
        let outcome =
            Outcome::of_list(sets, format!("the expression over {count} item{}", plural(count)), "an empty list");
        Ok(if self.uses_now { now::limit(outcome, None) } else { outcome })
    }

    fn nature(&self) -> &Nature {
        &self.nature
    }
}
