//! From a document to parameter sets, by a CEL expression: what `http` and `script` do alike.

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

/// Documents larger than this are worked on off the async threads, in bytes.
const LARGE: usize = 32 * 1024;

/// So many documents are worked on at once, however many processors there are: together they take memory.
const AT_ONCE: usize = 2;

static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(AT_ONCE)));

/// How long work on a document may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// By so many bytes.
    Bytes(usize),
    /// Nobody knows.
    Unknown,
}

/// Does `work` on a document where it holds up nobody.
///
/// # Errors
/// Those of `work`, and when it panics.
pub(crate) async fn work_on<T: Send + 'static>(
    load: Load,
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    if matches!(load, Load::Bytes(..=LARGE)) {
        return work();
    }
    // Held by the work, not by who waits for it.
    let turn = Arc::clone(&TURNS).acquire_owned().await;
    tokio::task::spawn_blocking(move || {
        let _turn = turn;
        work()
    })
    .await
    .map_err(|error| BackendError::invalid_output(format!("mapping the answer failed: {error}")))?
}

/// What `expression` makes of `variables`, which are so much: in this process where that is cheap, else in an evaluator.
///
/// # Errors
/// When it does not fit them, or takes too much time or memory; `wrong` makes the first of a text.
pub(crate) async fn evaluate(
    evaluator: &Evaluator,
    expression: &Arc<Expression>,
    variables: Variables,
    load: Load,
    deadline: Instant,
    wrong: fn(String) -> BackendError,
) -> Result<Value, BackendError> {
    let (own, given) = (Arc::clone(expression), variables.clone());
    let here = work_on(load, move || given.evaluate_small(&own).transpose().map_err(wrong));
    // What waits for a turn here has not begun.
    let here = timeout_at(deadline, here).await;
    let here = here.map_err(|_| BackendError::timeout("there was no time left for its expression"))?;
    match here? {
        Some(value) => Ok(value),
        None => evaluator.evaluate(expression, &variables, deadline).await.map_err(|error| error.told(wrong)),
    }
}

/// The parameter sets that the configuration's `parameters` made.
///
/// # Errors
/// When it did not, or something else than a list of objects.
pub(crate) fn mapped(value: Result<Value, BackendError>) -> Result<Vec<ParameterSet>, BackendError> {
    value.and_then(parameter_sets).map_err(|error| error.within("parameters"))
}
