//! Runs CEL expressions over documents, for `http`, `script`, `select` and gates. Large documents are read off the async threads.

use std::sync::{Arc, LazyLock};

use serde_json::Value;
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::parameter_sets;
use crate::{
    domain::{error::BackendError, generator::ParameterSet},
    lang::{
        evaluator::{Evaluator, Variables},
        expression::Expression,
    },
};

/// The largest document that is processed on an async thread, in bytes.
const MAX_SMALL_BYTES: usize = 32 * 1024;

/// How many large documents are processed at the same time. A fixed number limits the memory, on any number of processors.
const MAX_CONCURRENT_DOCUMENTS: usize = 2;

static LARGE_DOCUMENTS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_CONCURRENT_DOCUMENTS)));

tokio::task_local! {
    /// Other turns for large documents than those of all routes.
    static TURNS: Arc<Semaphore>;
}

/// Does `work` with `turns` for its large documents.
pub(crate) fn in_turns_of<F: Future>(turns: Arc<Semaphore>, work: F) -> impl Future<Output = F::Output> {
    TURNS.scope(turns, work)
}

/// How much work a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// The size of the document, in bytes.
    Bytes(usize),
    /// Not known. Treated like a large document.
    Unknown,
}

/// Runs `work` on a document. A small document is processed at once, a large one on a blocking thread, so that no other
/// request waits for it.
///
/// # Errors
/// The errors of `work`. A panic of `work` is an error too.
pub(crate) async fn work_on<T: Send + 'static>(
    load: Load,
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    if matches!(load, Load::Bytes(..=MAX_SMALL_BYTES)) {
        return work();
    }
    // The permit belongs to the work: it is held until the work ends, even if the caller has gone.
    let turns = TURNS.try_with(Arc::clone).unwrap_or_else(|_| Arc::clone(&LARGE_DOCUMENTS));
    let permit = turns.acquire_owned().await;
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    })
    .await
    .map_err(|error| BackendError::invalid_output(format!("mapping the answer failed: {error}")))?
}

/// The value of `expression` with `variables`, whose size is `load`. A cheap expression runs in this process, any other in an
/// evaluator.
///
/// # Errors
/// When the expression does not fit the variables, for which `wrong` makes the error from a text. Also when the expression takes
/// too much time or memory.
pub(crate) async fn evaluate(
    evaluator: &Evaluator,
    expression: &Arc<Expression>,
    variables: Variables,
    load: Load,
    deadline: Instant,
    wrong: fn(String) -> BackendError,
) -> Result<Value, BackendError> {
    let (own, given) = (Arc::clone(expression), variables.clone());
    let local = work_on(load, move || given.evaluate_small(&own).transpose().map_err(wrong));
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
