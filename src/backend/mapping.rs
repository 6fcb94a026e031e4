//! From a document to parameter sets, by a CEL expression: what `http` and `script` do alike.

use serde_json::Value;

use super::parameter_sets;
use crate::{error::BackendError, expression::Expression, generator::ParameterSet};

/// Documents larger than this are worked on off the async threads, in bytes.
const LARGE: usize = 32 * 1024;

/// Does `work` on a document of `size` bytes where it holds up nobody.
///
/// # Errors
/// Those of `work`, and when it panics.
pub async fn work_on<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    if size <= LARGE {
        return work();
    }
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| BackendError::invalid_output(format!("mapping the answer failed: {error}")))?
}

/// What `expression`, the configuration's `parameters`, makes of `variables`.
///
/// # Errors
/// When it does not fit them, or does not give a list of objects.
pub fn map(expression: &Expression, variables: &[(&str, &Value)]) -> Result<Vec<ParameterSet>, BackendError> {
    let mapped = expression.evaluate(variables).map_err(BackendError::invalid_output);
    mapped.and_then(parameter_sets).map_err(|error| error.within("parameters"))
}
