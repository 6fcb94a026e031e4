//! `redirects`: whether an upstream may redirect a request to another URL on the same host.

use http::header;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;

use domain::error::BackendError;
use outbound::{Reply, stays};

/// The most redirects of one request.
const MAX_REDIRECTS: usize = 5;

/// The treatment of a redirect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Redirects {
    /// A redirect is an error. The error names the target.
    #[default]
    Refuse,
    /// A redirect is followed if scheme, host and port stay the same, at most five times.
    SameOrigin,
}

/// The URL to which `reply` redirects; `None` if `reply` is not a redirect. `from` is the URL that was called, and `hops` is the
/// number of redirects so far.
///
/// # Errors
/// When the target has another scheme, host or port, or there were too many redirects.
pub(super) fn target(from: &Url, reply: &Reply, hops: usize) -> Result<Option<Url>, BackendError> {
    if !matches!(reply.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let invalid = |why: String| Err(BackendError::invalid_output(why));
    let location = reply.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
    let Some(Ok(url)) = location.map(|location| from.join(location)) else {
        return invalid(format!("{} without a `Location` that can be read", reply.status));
    };
    if !stays(from, &url) {
        return invalid(format!(
            "it redirects elsewhere ({}); only the same scheme, host and port are followed",
            url.origin().ascii_serialization()
        ));
    }
    if hops >= MAX_REDIRECTS {
        return invalid(format!("it redirects more than {MAX_REDIRECTS} times"));
    }
    Ok(Some(url))
}
