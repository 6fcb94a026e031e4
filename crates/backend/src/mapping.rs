//! Runs CEL expressions over documents, for `http`, `script`, `select` and gates.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::{ITEM, ITEMS, parameter_sets};
use domain::{
    error::BackendError,
    generator::{ParameterSet, Query},
};
use lang::{
    evaluator::{Evaluator, Variables},
    expression::Expression,
};
use source::{Load, work_on};

/// The variables of an expression.
pub(crate) struct Inputs {
    pub(crate) variables: Variables,
    /// Their size.
    pub(crate) load: Load,
}

/// What a question adds to the variables of `expression`: `items` and `item`, and `params` if it mentions it.
pub(crate) fn query_variables(query: &Query, expression: &Expression) -> Variables {
    let mut variables = Variables::default();
    if expression.mentions("params") {
        variables = variables.value("params", Value::Object((*query.parameters).clone()));
    }
    if let Some(item) = query.item() {
        variables = variables.value(ITEM, Arc::clone(item));
    }
    match &query.items {
        Some(items) => variables.value(ITEMS, Arc::clone(items)),
        None => variables,
    }
}

/// The value of `expression` with `inputs`. A cheap expression runs in this process, any other in an
/// evaluator.
///
/// # Errors
/// When the expression does not fit the variables, for which `wrong` makes the error from a text. Also when the expression takes
/// too much time or memory.
pub(crate) async fn evaluate(
    evaluator: &Evaluator,
    expression: &Arc<Expression>,
    inputs: Inputs,
    deadline: Instant,
    wrong: fn(String) -> BackendError,
) -> Result<Value, BackendError> {
    let Inputs { variables, load } = inputs;
    let (own, values) = (Arc::clone(expression), variables.clone());
    let local = work_on(load, move || values.evaluate_small(&own).transpose().map_err(wrong));
    // Work that still waits for a permit has not begun.
    let local = timeout_at(deadline, local).await;
    let local = local.map_err(|_| BackendError::timeout("there was no time left for its expression"))?;
    match local? {
        Some(value) => Ok(value),
        None => {
            evaluator.evaluate(expression, &variables, deadline).await.map_err(|error| error.into_backend_error(wrong))
        }
    }
}

/// The parameter sets in the result of the configuration's `parameters` expression.
///
/// # Errors
/// When the expression failed, or did not give a list of objects.
pub(crate) fn mapped(value: Result<Value, BackendError>) -> Result<Vec<ParameterSet>, BackendError> {
    value.and_then(parameter_sets).map_err(|error| error.within("parameters"))
}
