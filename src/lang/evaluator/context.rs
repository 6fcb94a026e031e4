//! The variables of templates, and all that rendering one needs.

use minijinja::Value as TemplateValue;
use tokio::time::Instant;

use super::{EvaluationError, Evaluator};
use crate::{
    domain::generator::Query,
    lang::template::{Template, input_context},
};

/// The variables of templates, with who renders them, and until when.
#[derive(Debug, Clone)]
pub struct Context {
    values: TemplateValue,
    evaluator: Evaluator,
    deadline: Instant,
}

impl Context {
    /// The variables of a call.
    #[must_use]
    pub fn of_input(query: &Query, evaluator: &Evaluator) -> Self {
        Self::new(input_context(query), evaluator, query.deadline)
    }

    /// These `values`.
    #[must_use]
    pub fn new(values: TemplateValue, evaluator: &Evaluator, deadline: Instant) -> Self {
        Self { values, evaluator: evaluator.clone(), deadline }
    }

    /// These `values`, for templates that are rendered in this process or not at all.
    #[must_use]
    pub fn here(values: TemplateValue) -> Self {
        Self::new(values, &Evaluator::none(), Instant::now())
    }

    /// The same with other values, made of its own.
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
    /// As [`Template::render`], and when it takes too much time or memory.
    pub async fn render(&self, template: &Template) -> Result<String, EvaluationError> {
        self.evaluator.render(template, &self.values, self.deadline).await
    }
}
