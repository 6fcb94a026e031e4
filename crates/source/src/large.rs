//! Large documents are read off the async threads, a few at a time.

use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;

use domain::error::BackendError;

/// The largest document that is processed on an async thread, in bytes.
const MAX_SMALL_BYTES: usize = 32 * 1024;

/// How many large documents are processed at the same time. A fixed number limits the memory, on any number of processors.
const MAX_CONCURRENT_DOCUMENTS: usize = 2;

static LARGE_DOCUMENTS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(MAX_CONCURRENT_DOCUMENTS)));

tokio::task_local! {
    /// Other permits for large documents than those of all routes.
    static PERMITS: Arc<Semaphore>;
}

/// Does `work` with `permits` for its large documents.
pub fn with_permits_of<F: Future>(permits: Arc<Semaphore>, work: F) -> impl Future<Output = F::Output> {
    PERMITS.scope(permits, work)
}

/// How much work a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
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
pub async fn work_on<T: Send + 'static>(
    load: Load,
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    if matches!(load, Load::Bytes(..=MAX_SMALL_BYTES)) {
        return work();
    }
    // The permit belongs to the work: it is held until the work ends, even if the caller has gone.
    let permits = PERMITS.try_with(Arc::clone).unwrap_or_else(|_| Arc::clone(&LARGE_DOCUMENTS));
    let permit = permits.acquire_owned().await;
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    })
    .await
    .map_err(|error| BackendError::invalid_output(format!("mapping the answer failed: {error}")))?
}
