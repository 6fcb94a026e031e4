//! From a document to parameter sets, by a CEL expression: what `http` and `script` do alike.

use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;

use super::parameter_sets;
use crate::{document::Document, error::BackendError, expression::Expression, generator::ParameterSet};

/// Documents larger than this are worked on off the async threads, in bytes.
const LARGE: usize = 32 * 1024;

/// So many documents are worked on at once. What takes its time cannot be stopped, and must not take all processors.
static TURNS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new(2 * processors))
});

/// How long work on a document may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// By so many bytes.
    Bytes(usize),
    /// Nobody knows.
    Unknown,
}

impl Load {
    /// What is left of it when `expression` goes through the document.
    #[must_use]
    pub fn with(self, expression: Option<&Expression>) -> Self {
        if expression.is_some_and(Expression::is_nested) { Self::Unknown } else { self }
    }
}

/// Does `work` on a document where it holds up nobody.
///
/// # Errors
/// Those of `work`, and when it panics.
pub async fn work_on<T: Send + 'static>(
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

/// What `expression`, the configuration's `parameters`, makes of `variables`.
///
/// # Errors
/// When it does not fit them, or does not give a list of objects.
pub fn map(expression: &Expression, variables: &[(&str, &Document<'_>)]) -> Result<Vec<ParameterSet>, BackendError> {
    let mapped = expression.evaluate(variables).map_err(BackendError::invalid_output);
    mapped.and_then(parameter_sets).map_err(|error| error.within("parameters"))
}
