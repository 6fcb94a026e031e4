//! `redirects`: whether a source may send us to another place on the same host.

use http::header;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    clients::outbound::{Reply, stays},
    domain::error::BackendError,
};

/// How often one question is sent on at most.
const MAX_REDIRECTS: usize = 5;

/// What a redirect is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Redirects {
    /// An error that names where it leads.
    #[default]
    Refuse,
    /// Followed while scheme, host and port stay, at most five times.
    SameOrigin,
}

/// Where `reply`, to what was asked at `from` and after so many `hops`, sends us; `None` when it does not.
///
/// # Errors
/// When that is elsewhere, or goes on and on.
pub(crate) fn target(from: &Url, reply: &Reply, hops: usize) -> Result<Option<Url>, BackendError> {
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
