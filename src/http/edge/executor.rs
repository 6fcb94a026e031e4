//! Runs the requests of an HTTP/2 connection.

use futures_util::FutureExt as _;
use hyper::rt::Executor;

/// Polls a request once, and spawns it only if it is not finished. A hundred requests that arrive together and are refused at once
/// therefore never wait side by side, each with its head in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollFirst;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for PollFirst {
    fn execute(&self, request: F) {
        let mut request = Box::pin(request);
        // This first poll has no waker; the spawned task polls again at once.
        if request.as_mut().now_or_never().is_none() {
            tokio::spawn(request);
        }
    }
}
