//! `select`: a CEL expression that filters and maps the items of the previous step.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Backend, BuildContext, ITEMS, mapping, parameter_sets};
use domain::{
    error::BackendError,
    generator::{Outcome, Query},
    problem::{Path, Problems},
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
    /// What is known of an item of its result.
    item: ValueType,
    evaluator: Evaluator,
}

impl Select {
    /// Compiles `source`. Notes at `path` what is wrong with it.
    pub fn build(source: &str, context: BuildContext<'_>, path: &Path, problems: &mut Problems) -> Option<Self> {
        let scope = context.scope.only(&[ITEMS, "params"]);
        let (expression, item) = Expression::build_objects(source, &scope, path, problems)?;
        Some(Self { expression: Arc::new(expression), item, evaluator: context.evaluator.clone() })
    }
}

#[async_trait]
impl Backend for Select {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let items = query.items.clone().unwrap_or_else(|| Arc::new(Value::Array(Vec::new())));
        let count = items.as_array().map_or(0, Vec::len);
        let mut variables = Variables::default().value("items", items);
        if self.expression.mentions("params") {
            variables = variables.value("params", Value::Object((*query.parameters).clone()));
        }
        let load = if count > MAX_SMALL_LIST { Load::Unknown } else { Load::Bytes(count) };
        let (deadline, invalid) = (query.deadline, BackendError::invalid_output);
        let selected = mapping::evaluate(&self.evaluator, &self.expression, variables, load, deadline, invalid);
        let sets = parameter_sets(selected.await?)?;
        Ok(Outcome::of_list(sets, format!("the expression over {count} item{}", plural(count)), "an empty list"))
    }

    fn item(&self) -> ValueType {
        self.item.clone()
    }

    fn reads_application_set(&self) -> bool {
        false
    }
}
