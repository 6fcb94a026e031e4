//! Where the requests of an HTTP/2 connection run.

use futures_util::FutureExt as _;
use hyper::rt::Executor;

/// Runs a request at once as far as it gets, and spawns what then remains. A hundred requests that come together and are refused at
/// once so never wait side by side, each with its head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollFirst;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for PollFirst {
    fn execute(&self, request: F) {
        let mut request = Box::pin(request);
        // Nobody is woken by this first look; the spawned task looks again at once.
        if request.as_mut().now_or_never().is_none() {
            tokio::spawn(request);
        }
    }
}
