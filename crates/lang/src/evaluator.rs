//! Where expressions and templates are evaluated: in this process if that is provably cheap, else in an *evaluator*. An
//! evaluator is a contained process of the gateway's own program. It is killed when its time is over.
//!
//! All evaluators together map 136 MiB ([`SMALL`], [`LARGE`]) on any machine, of which the allocators leave some 24 MiB
//! untouched. Evaluations in this process take at most 8 MiB. That is less than 128 MiB in all. A route has one evaluation of
//! each size under way, so no route can keep all evaluators.

mod context;
mod error;
mod inside;
mod pool;
mod process;
mod wire;

use std::{fmt::Display, path::Path, sync::Arc};

use serde_json::Value;
use tokio::{
    sync::Semaphore,
    task::spawn_blocking,
    time::{Instant, timeout_at},
};

pub use self::{
    context::Context,
    error::EvaluationError,
    inside::run,
    wire::{Task, Variables},
};
use self::{error::Cause, pool::EvaluatorPool, wire::EvaluatorAnswer};
use crate::{
    expression::Expression,
    template::{Template, json_of},
};
use domain::document;
use telemetry::metrics::EvaluationMetrics;

/// The subcommand that makes the gateway's program an evaluator.
pub const ARGUMENT: &str = "evaluate";

/// Evaluators of short tasks: how many, and how much memory each may map, in bytes. The allocator leaves some 8 MiB of it
/// untouched.
const SMALL: (usize, u64) = (2, 18 * 1024 * 1024);
/// Evaluators of long tasks: how many, and how much memory each may map, in bytes.
const LARGE: (usize, u64) = (1, 100 * 1024 * 1024);
/// A longer task is a long one, in bytes.
const LONG: usize = 256 * 1024;

/// All evaluators of a gateway.
#[derive(Debug)]
pub struct Evaluators {
    small: EvaluatorPool,
    large: EvaluatorPool,
    metrics: EvaluationMetrics,
}

/// One route's access to the evaluators.
#[derive(Debug, Clone)]
pub struct Evaluator(Arc<Route>);

#[derive(Debug)]
struct Route {
    /// `None` if everything must be evaluated in this process.
    all: Option<Arc<Evaluators>>,
    /// One short evaluation at a time, and one long one.
    slots: [Semaphore; 2],
}

impl Evaluators {
    /// No evaluators yet. `program` is the gateway's own.
    #[must_use]
    pub fn new(program: &Path, metrics: EvaluationMetrics) -> Arc<Self> {
        let pool = |(count, memory)| EvaluatorPool::new(program.to_owned(), count, memory);
        Arc::new(Self { small: pool(SMALL), large: pool(LARGE), metrics })
    }

    /// Access for one route, which shares the evaluators with other routes.
    #[must_use]
    pub fn of_route(self: &Arc<Self>) -> Evaluator {
        Evaluator::new(Some(Arc::clone(self)))
    }
}

impl Evaluator {
    fn new(all: Option<Arc<Evaluators>>) -> Self {
        Self(Arc::new(Route { all, slots: [Semaphore::new(1), Semaphore::new(1)] }))
    }

    /// Access for another route to the same evaluators.
    #[must_use]
    pub fn of_another_route(&self) -> Self {
        Self::new(self.0.all.clone())
    }

    /// No evaluators: each evaluation that is not cheap is an error.
    #[must_use]
    pub fn none() -> Self {
        Self::new(None)
    }

    /// The value of `expression` with `variables`, from an evaluator.
    ///
    /// # Errors
    /// When the expression does not fit the variables, or there was no free slot, no time, or no memory for it.
    pub async fn evaluate(
        &self,
        expression: &Expression,
        variables: &Variables,
        deadline: Instant,
    ) -> Result<Value, EvaluationError> {
        let source = expression.source();
        let variables = variables.of(expression);
        let variables = variables.iter().map(|(name, json)| (*name, &**json)).collect();
        let task = Task::Expression { source, variables };
        let EvaluatorAnswer::Value(value) = self.delegate(&task, source, deadline).await? else {
            return Err(Cause::Crashed("it sent an unexpected answer".to_owned()).of(source));
        };
        let failure = |error: &dyn Display| EvaluationError::from(format!("`{}`: {error}", source.trim()));
        let json = value?;
        if json.len() <= LONG {
            return document::read_back(json.as_bytes()).map_err(|error| failure(&error));
        }
        let read = spawn_blocking(move || document::read_back(json.as_bytes())).await;
        read.map_err(|error| failure(&error))?.map_err(|error| failure(&error))
    }

    /// The text of `template` with `values`, from this process if that is cheap.
    async fn render(
        &self,
        template: &Template,
        values: &minijinja::Value,
        deadline: Instant,
    ) -> Result<String, EvaluationError> {
        if let Some(rendered) = template.render_small(values) {
            return rendered.map_err(EvaluationError::from);
        }
        let context = json_of(values).map_err(EvaluationError::from)?.to_string().into_bytes();
        let task = Task::Template { source: template.source(), place: template.place(), context: &context };
        match self.delegate(&task, template.source(), deadline).await? {
            EvaluatorAnswer::Text(text) => text.map_err(EvaluationError::from),
            _ => Err(Cause::Crashed("it sent an unexpected answer".to_owned()).of(template.source())),
        }
    }

    /// Passes `task` to an evaluator, and counts the result. `source` is that of its expression or template, for errors.
    async fn delegate(
        &self,
        task: &Task<'_>,
        source: &str,
        deadline: Instant,
    ) -> Result<EvaluatorAnswer, EvaluationError> {
        let Some(all) = &self.0.all else { return Err(Cause::None.of(source)) };
        let answer = self.answer(all, task, deadline).await;
        all.metrics.count(answer.as_ref().map_or_else(Cause::as_str, EvaluatorAnswer::as_str));
        answer.map_err(|cause| cause.of(source))
    }

    async fn answer(&self, all: &Evaluators, task: &Task<'_>, deadline: Instant) -> Result<EvaluatorAnswer, Cause> {
        let is_long = task.len() > LONG;
        let (pool, slot) = if is_long { (&all.large, &self.0.slots[1]) } else { (&all.small, &self.0.slots[0]) };
        // The route's own slot first: while one waits here, it takes no place in the queue for the evaluators.
        let own = timeout_at(deadline, slot.acquire()).await;
        let Ok(Ok(_own)) = own else { return Err(Cause::NoSlot) };
        pool.answer(task, deadline).await
    }
}
