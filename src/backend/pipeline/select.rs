//! `select`: a CEL expression that filters and maps the items of the step before.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::time::timeout_at;

use crate::{
    backend::{
        Backend,
        mapping::{self, Load},
        parameter_sets,
    },
    document::Document,
    error::BackendError,
    expression::Expression,
    generator::{Outcome, ParameterSet, Query},
};

/// More items than this are gone through off the async threads.
const MANY: usize = 100;

/// An expression, compiled.
#[derive(Debug)]
pub struct Select(Arc<Expression>);

impl Select {
    /// Compiles `source`.
    ///
    /// # Errors
    /// When it is no expression.
    pub fn compile(source: &str) -> Result<Self, String> {
        Expression::compile(source).map(|expression| Self(Arc::new(expression)))
    }
}

#[async_trait]
impl Backend for Select {
    async fn resolve(&self, query: &Query) -> Result<Outcome, BackendError> {
        let items = query.items.clone().unwrap_or_else(|| Arc::new(Value::Array(Vec::new())));
        let count = items.as_array().map_or(0, Vec::len);
        let (expression, parameters) = (Arc::clone(&self.0), Arc::clone(&query.parameters));
        let work = move || select(&expression, &(&*items).into(), &(&*parameters).into());
        let load = if count > MANY { Load::Unknown } else { Load::Bytes(count) }.with(Some(&self.0));
        let done = timeout_at(query.deadline, mapping::work_on(load, work)).await;
        let sets =
            done.map_err(|_| BackendError::timeout(format!("the expression is not done with {count} items")))??;
        Ok(Outcome::of_list(sets, format!("the expression over {count} item{}", plural(count)), "an empty list"))
    }

    fn reads_application_set(&self) -> bool {
        false
    }
}

fn select(
    expression: &Expression,
    items: &Document<'_>,
    parameters: &Document<'_>,
) -> Result<Vec<ParameterSet>, BackendError> {
    let selected = expression.evaluate(&[("items", items), ("params", parameters)]);
    parameter_sets(selected.map_err(BackendError::invalid_output)?)
}

const fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}
