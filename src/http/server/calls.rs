//! Finds the plugin generator's calls without a router.

use std::{ops::ControlFlow, sync::Arc};

use axum::extract::Request;
use http::Method;

use super::{GETPARAMS, getparams};
use crate::{
    app::App,
    http::edge::{Answering, Calls},
};

/// The calls that `app` answers.
pub(super) struct GetParamsCalls(pub(super) Arc<App>);

impl Calls for GetParamsCalls {
    fn take(&self, request: Request) -> ControlFlow<Answering, Request> {
        if request.method() != Method::POST {
            return ControlFlow::Continue(request);
        }
        let Some(named) = named_in(request.uri().path()) else {
            return ControlFlow::Continue(request);
        };
        let named = (!named.is_empty()).then(|| named.to_owned());
        ControlFlow::Break(Box::pin(getparams::serve(Arc::clone(&self.0), named, request)))
    }
}

/// The name of a route in the path of a call; empty if it names none. `None` for all other paths, and for names with an escaped character.
fn named_in(path: &str) -> Option<&str> {
    match path.strip_suffix(GETPARAMS)? {
        "" => Some(""),
        prefix => prefix.strip_prefix('/').filter(|name| !name.is_empty() && !name.contains(['/', '%'])),
    }
}
