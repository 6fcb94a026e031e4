//! The variables of templates, with everything that rendering needs.

use std::sync::{Arc, OnceLock};

use minijinja::Value as TemplateValue;
use serde_json::Value;
use tokio::time::Instant;

use super::{EvaluationError, Evaluator};
use crate::template::{JsonVariable, Template, input_values};
use domain::generator::{Parameters, Query};

/// The variables of templates, the evaluator that renders them, and the deadline.
#[derive(Debug, Clone)]
pub struct Context {
    /// Where the values come from, if they are those of a query.
    input: Option<Input>,
    /// Made when first needed: plain templates read the input itself.
    values: OnceLock<TemplateValue>,
    evaluator: Evaluator,
    deadline: Instant,
}

/// The part of a query that templates may read.
#[derive(Debug, Clone)]
struct Input {
    parameters: Arc<Parameters>,
    application_set: Arc<str>,
    items: Option<Arc<Value>>,
    item: Option<Arc<Value>>,
}

impl Input {
    fn find(&self, name: &str) -> Option<JsonVariable<'_>> {
        match name {
            "params" => Some(JsonVariable::Object(&self.parameters)),
            "applicationSet" => Some(JsonVariable::Text(&self.application_set)),
            "item" => JsonVariable::of(self.item.as_deref()?),
            _ => None,
        }
    }

    fn values(&self) -> TemplateValue {
        let others = [("items", self.items.as_deref()), ("item", self.item.as_deref())];
        input_values(&self.parameters, &self.application_set, others)
    }
}

impl Context {
    /// The variables of a query.
    #[must_use]
    pub fn of_input(query: &Query, evaluator: &Evaluator) -> Self {
        let input = Input {
            parameters: Arc::clone(&query.parameters),
            application_set: Arc::clone(&query.application_set),
            items: query.items.clone(),
            item: query.item().cloned(),
        };
        let (evaluator, deadline) = (evaluator.clone(), query.deadline);
        Self { input: Some(input), values: OnceLock::new(), evaluator, deadline }
    }

    /// A context with `values`.
    #[must_use]
    pub fn new(values: TemplateValue, evaluator: &Evaluator, deadline: Instant) -> Self {
        Self { input: None, values: OnceLock::from(values), evaluator: evaluator.clone(), deadline }
    }

    /// A context with `values`, for templates that are rendered in this process or not at all.
    #[must_use]
    pub fn here(values: TemplateValue) -> Self {
        Self::new(values, &Evaluator::none(), Instant::now())
    }

    /// The context with another deadline.
    #[must_use]
    pub fn until(self, deadline: Instant) -> Self {
        Self { deadline, ..self }
    }

    /// The context with changed values.
    #[must_use]
    pub fn map(self, change: impl FnOnce(TemplateValue) -> TemplateValue) -> Self {
        let values = OnceLock::from(change(self.values().clone()));
        Self { input: None, values, ..self }
    }

    /// The variables.
    #[must_use]
    pub fn values(&self) -> &TemplateValue {
        self.values.get_or_init(|| self.input.as_ref().map(Input::values).unwrap_or_default())
    }

    /// The text of `template`.
    ///
    /// # Errors
    /// As [`Template::render`], and when rendering takes too much time or memory.
    pub async fn render(&self, template: &Template) -> Result<String, EvaluationError> {
        if let Some(input) = &self.input
            && let Some(text) = template.render_json(|name| input.find(name))
        {
            return Ok(text);
        }
        self.evaluator.render(template, self.values(), self.deadline).await
    }
}
