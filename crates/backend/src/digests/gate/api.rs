//! A forge's JSON API: its address, and one request to it.

use std::{path::PathBuf, sync::Arc};

use http::{HeaderMap, HeaderValue, header};
use reqwest::Url;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::address::base_url;
use crate::Building;
use domain::error::BackendError;
use outbound::{Call, HttpClient, Reply, TlsKeys, account_of};

/// The largest answer that is read, in bytes.
const MAX_REPLY_BYTES: usize = 8 * 1024 * 1024;

/// An API's address, and the client that reaches it.
#[derive(Debug)]
pub struct ForgeApi {
    /// Its base URL.
    pub base: Url,
    client: Arc<HttpClient>,
}

impl ForgeApi {
    /// The API at the address `api`. It trusts the certificates in `ca` too. Both are keys of the gate that is built.
    pub fn build(api: &str, ca: Option<&PathBuf>, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        let base = building.key("api").note(base_url(api));
        let (keys, is_plain) = (TlsKeys { ca, ..TlsKeys::default() }, api.starts_with("http://"));
        let client = keys.client(is_plain, context.outbound, &mut building.section());
        let base = base?;
        context.outbound.name_destination(Some(&base));
        Some(Self { base, client: client? })
    }

    /// `base` with `segments` after its path, each percent-encoded as one, and with `query`.
    #[must_use]
    pub fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
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
    /// When there is no 200 by `deadline`.
    pub async fn get(&self, url: Url, headers: HeaderMap, deadline: Instant) -> Result<Reply, BackendError> {
        let path = url.path().to_owned();
        let mut call = Call { headers, revalidate: true, ..Call::get(url, MAX_REPLY_BYTES, deadline) };
        call.headers.entry(header::ACCEPT).or_insert(HeaderValue::from_static("application/json"));
        let reply = self.client.fetch(call).await?;
        let refusal = match reply.status.as_u16() {
            200 => return Ok(reply),
            404 => BackendError::invalid_output(
                "404 Not Found: it does not exist, or the token may not see it; check the names and the token's rights",
            ),
            _ => reply.refusal(),
        };
        Err(refusal.within(format_args!("GET {path}")))
    }

    /// The client that reaches it.
    #[must_use]
    pub const fn client(&self) -> &Arc<HttpClient> {
        &self.client
    }

    /// Whether less than a tenth is left of the rate limit for requests with `headers`.
    #[must_use]
    pub fn is_low(&self, headers: &HeaderMap) -> bool {
        self.client.is_low(&self.base, &account_of(headers))
    }

    /// The path of the API itself, without a slash at its end.
    #[must_use]
    pub fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }
}

/// The document in `reply`.
///
/// # Errors
/// When it is not the JSON that the API documents. The message quotes it without secrets.
pub fn document<T: DeserializeOwned>(reply: &Reply) -> Result<T, BackendError> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        let why = format!("not the document that was expected: {error}: {}", reply.excerpt(120));
        BackendError::invalid_output(reply.secrets.redact(&why))
    })
}
