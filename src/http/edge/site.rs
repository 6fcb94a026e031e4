//! The content of a listener: a router, and before it the calls that need no router.

use std::{convert::Infallible, fmt, ops::ControlFlow, pin::Pin, sync::Arc};

use axum::{Router, extract::Request, response::Response};
use tower::Service as _;

/// An answer under way.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Takes the calls that make up nearly all of a listener's requests. The router would find the same handler for them, after a longer search.
pub(crate) trait Calls: Send + Sync {
    /// Breaks off with the answer to `request`, or continues with the request if the router must answer.
    fn take(&self, request: Request) -> ControlFlow<Answering, Request>;
}

/// The content of a listener.
#[derive(Clone)]
pub struct Site {
    router: Router,
    calls: Option<Arc<dyn Calls>>,
}

impl Site {
    /// A site whose `calls` go before its `router`.
    pub(crate) fn new(router: Router, calls: Arc<dyn Calls>) -> Self {
        Self { router, calls: Some(calls) }
    }

    /// The answer to `request`. Those who sent it are in its extensions.
    pub fn answer(&self, request: Request) -> impl Future<Output = Result<Response, Infallible>> + use<> {
        let taken = match &self.calls {
            Some(calls) => calls.take(request),
            None => ControlFlow::Continue(request),
        };
        let answering = taken.map_continue(|request| self.router.clone().call(request));
        async move {
            match answering {
                ControlFlow::Break(call) => Ok(call.await),
                ControlFlow::Continue(routed) => routed.await,
            }
        }
    }
}

impl From<Router> for Site {
    fn from(router: Router) -> Self {
        Self { router, calls: None }
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").finish_non_exhaustive()
    }
}
