//! The variables of templates, with everything that rendering needs.

use minijinja::Value as TemplateValue;
use tokio::time::Instant;

use super::{EvaluationError, Evaluator};
use crate::{
    domain::generator::Query,
    lang::template::{Template, input_context},
};

/// The variables of templates, the evaluator that renders them, and the deadline.
#[derive(Debug, Clone)]
pub struct Context {
    values: TemplateValue,
    evaluator: Evaluator,
    deadline: Instant,
}

impl Context {
    /// The variables of a query.
    #[must_use]
    pub fn of_input(query: &Query, evaluator: &Evaluator) -> Self {
        Self::new(input_context(query), evaluator, query.deadline)
    }

    /// A context with `values`.
    #[must_use]
    pub fn new(values: TemplateValue, evaluator: &Evaluator, deadline: Instant) -> Self {
        Self { values, evaluator: evaluator.clone(), deadline }
    }

    /// A context with `values`, for templates that are rendered in this process or not at all.
    #[must_use]
    pub fn here(values: TemplateValue) -> Self {
        Self::new(values, &Evaluator::none(), Instant::now())
    }

    /// The context with changed values.
    #[must_use]
    pub(crate) fn map(self, change: impl FnOnce(TemplateValue) -> TemplateValue) -> Self {
        Self { values: change(self.values), ..self }
    }

    /// The variables.
    #[must_use]
    pub(crate) const fn values(&self) -> &TemplateValue {
        &self.values
    }

    /// The text of `template`.
    ///
    /// # Errors
    /// As [`Template::render`], and when rendering takes too much time or memory.
    pub async fn render(&self, template: &Template) -> Result<String, EvaluationError> {
        self.evaluator.render(template, &self.values, self.deadline).await
    }
}
