//! A forge's JSON API: one origin, one credential, pages that are followed to their end.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use reqwest::Url;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{
    error::BackendError,
    outbound::{Call, Line, Reply},
};

/// The largest answer that is read, in bytes.
const MOST: usize = 8 * 1024 * 1024;

/// Where an API is and how it is reached.
#[derive(Debug)]
pub struct Api {
    base: Url,
    line: Arc<Line>,
}

impl Api {
    /// The API below `base`, whose path it keeps.
    pub const fn new(base: Url, line: Arc<Line>) -> Self {
        Self { base, line }
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
    /// When there is none by `deadline`.
    pub async fn get(&self, url: Url, headers: HeaderMap, deadline: Instant) -> Result<Reply, BackendError> {
        let asked = url.path().to_owned();
        let mut call = Call { headers, revalidate: true, ..Call::get(url, MOST, deadline) };
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

    /// Sends `call` and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// When there is none by the call's deadline.
    pub async fn send(&self, call: Call) -> Result<Reply, BackendError> {
        self.line.fetch(call).await
    }

    /// The path of the API itself, without a slash at its end.
    #[must_use]
    pub fn path(&self) -> &str {
        self.base.path().trim_end_matches('/')
    }
}

/// Reads the `text` of an API's base URL.
///
/// # Errors
/// When it is no URL that can be asked as it stands; the text says why.
pub fn base_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("`{}` is no URL: {error}", text.escape_debug()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err("the API's URL begins with `https://` and its host".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the API's URL holds a user or a password; write a `token`".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("the API's URL ends with its path, without `?` and `#`".to_owned());
    }
    Ok(url)
}

/// The document in `reply`.
///
/// # Errors
/// When it is not the JSON that the API documents; what it says is told without secrets.
pub fn document<T: DeserializeOwned>(reply: &Reply) -> Result<T, BackendError> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        let why = format!("not the document that was expected: {error}: {}", reply.excerpt(120));
        BackendError::invalid_output(reply.secrets.redact(&why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_is_a_plain_url() {
        for good in ["https://api.github.com", "https://ghe.example.com/api/v3/", "http://127.0.0.1:80"] {
            assert!(base_url(good).is_ok(), "{good}");
        }
        for (bad, says) in [
            ("api.github.com", "no URL"),
            ("ftp://h/", "begins with"),
            ("https://u:p@h/", "password"),
            ("https://h/?a", "without"),
        ] {
            assert!(base_url(bad).unwrap_err().contains(says), "{bad}");
        }
    }
}
