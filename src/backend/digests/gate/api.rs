//! A forge's JSON API: where it is, and one question to it.

use std::{path::PathBuf, sync::Arc};

use http::{HeaderMap, HeaderValue, header};
use reqwest::Url;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::address::base_url;
use crate::{
    backend::BuildContext,
    clients::outbound::{Call, HttpClient, Reply, TlsKeys, account_of},
    domain::{
        error::BackendError,
        problem::{Path, Problems},
    },
};

/// The largest answer that is read, in bytes.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// Where an API is and how it is reached.
#[derive(Debug)]
pub(crate) struct Api {
    /// Its base URL.
    pub(crate) base: Url,
    line: Arc<HttpClient>,
}

impl Api {
    /// The API at `api`, which trusts the certificates in `ca` too: keys of the gate at `path`.
    pub(crate) fn build(
        api: &str,
        ca: Option<&PathBuf>,
        context: BuildContext<'_>,
        path: &Path,
        problems: &mut Problems,
    ) -> Option<Self> {
        let base = problems.note(&path.key("api"), base_url(api));
        let keys = TlsKeys { ca, ..TlsKeys::default() };
        let line = keys.line(api.starts_with("http://"), context.outbound, context.base, path, problems);
        let base = base?;
        context.outbound.name_destination(Some(&base));
        Some(Self { base, line: line? })
    }

    /// `base` with `segments` after its path, each percent-encoded as one, and with `query`.
    #[must_use]
    pub(crate) fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    /// Asks for `url` with `headers`, and reads a whole 200.
    ///
    /// # Errors
    /// When there is none by `deadline`.
    pub(crate) async fn get(&self, url: Url, headers: HeaderMap, deadline: Instant) -> Result<Reply, BackendError> {
        let asked = url.path().to_owned();
        let mut call = Call { headers, revalidate: true, ..Call::get(url, MAX_REPLY_BYTES, deadline) };
        call.headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        let reply = self.line.fetch(call).await?;
        let refusal = match reply.status.as_u16() {
            200 => return Ok(reply),
            404 => BackendError::invalid_output(
                "404 Not Found: it is not there, or the token may not see it; check the names and what the token may read",
            ),
            _ => reply.refusal(),
        };
        Err(refusal.within(format_args!("GET {asked}")))
    }

    /// The way there.
    #[must_use]
    pub(crate) const fn line(&self) -> &Arc<HttpClient> {
        &self.line
    }

    /// Whether less than a tenth is left of what the API allows who asks with `headers`.
    #[must_use]
    pub(crate) fn is_low(&self, headers: &HeaderMap) -> bool {
        self.line.is_low(&self.base, &account_of(headers))
    }

    /// The path of the API itself, without a slash at its end.
    #[must_use]
    pub(crate) fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }
}

/// The document in `reply`.
///
/// # Errors
/// When it is not the JSON that the API documents; what it says is told without secrets.
pub(crate) fn document<T: DeserializeOwned>(reply: &Reply) -> Result<T, BackendError> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        let why = format!("not the document that was expected: {error}: {}", reply.excerpt(120));
        BackendError::invalid_output(reply.secrets.redact(&why))
    })
}
