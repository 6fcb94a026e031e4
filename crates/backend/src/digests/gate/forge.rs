//! The common parts of the gates of code forges: an API with its credential, lists that are read to their end, and statuses by name.

mod credential;
mod field;
mod statuses;

use std::path::PathBuf;

use http::HeaderMap;
use reqwest::Url;
use tokio::time::Instant;

pub(crate) use self::statuses::unknown_word;
pub use self::{
    credential::{ForgeCredential, Form},
    field::Field,
    statuses::{ReportedStatus, Required},
};
use super::{
    api::ForgeApi,
    paging::{self, ListPage},
};
use crate::Building;
use domain::{error::BackendError, secret::Secrets};
use outbound::{Reply, names_user, warn_of_cleartext};

/// The longest address of a run's page that is passed on, in bytes.
const MAX_LINK_BYTES: usize = 2048;

/// A forge's API and its credential.
#[derive(Debug)]
pub struct Forge {
    name: String,
    api: ForgeApi,
    credential: Option<ForgeCredential>,
}

impl Forge {
    /// A forge of the kind `kind`. `api` and `ca` are keys of the gate that is built.
    pub fn build(
        kind: &str,
        api: &str,
        ca: Option<&PathBuf>,
        credential: Option<ForgeCredential>,
        building: &mut Building<'_>,
    ) -> Option<Self> {
        let api = ForgeApi::build(api, ca, building)?;
        if credential.is_some() {
            warn_of_cleartext(&api.base, &building.path.key("api"), building.problems);
        }
        let name = format!("{kind} at {}", api.base.host_str().unwrap_or_default());
        Some(Self { name, api, credential })
    }

    /// The API's address with `segments` after its path, each percent-encoded as one, and with `query`.
    #[must_use]
    pub fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        self.api.url(segments, query)
    }

    /// All items of the list that begins at `first`, and the secrets that messages about it must not show. `read` makes items of
    /// a page.
    ///
    /// # Errors
    /// When a page is missing by `deadline`, or the list does not end.
    pub async fn list<T: Send>(
        &self,
        first: Url,
        deadline: Instant,
        read: impl FnMut(&Reply, &Url) -> Result<ListPage<T>, BackendError> + Send,
    ) -> Result<(Vec<T>, Secrets), BackendError> {
        let list = paging::list(first, |url| self.get(url, deadline), read).await;
        list.map_err(|error| error.within(&self.name))
    }

    /// Whether less than a tenth is left of the forge's rate limit.
    #[must_use]
    pub fn is_low(&self) -> bool {
        self.headers().is_ok_and(|headers| self.api.is_low(&headers))
    }

    async fn get(&self, url: Url, deadline: Instant) -> Result<Reply, BackendError> {
        self.api.get(url, self.headers()?, deadline).await
    }

    /// The credential's header, if there is a credential.
    fn headers(&self) -> Result<HeaderMap, BackendError> {
        let mut headers = HeaderMap::new();
        headers.extend(self.credential.as_ref().map(ForgeCredential::header).transpose()?);
        Ok(headers)
    }

    /// `error`, with the forge and the list's `path` before its message.
    #[must_use]
    pub(crate) fn at_list(&self, path: &str, error: BackendError) -> BackendError {
        error.within(format_args!("{}: GET {path}", self.name))
    }

    /// The page of a run, as the forge names it. A relative address starts at the API's. `None` if it is not a web page.
    #[must_use]
    pub fn link(&self, text: &str) -> Option<String> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_LINK_BYTES {
            return None;
        }
        let url = self.api.base.join(text).ok()?;
        let is_page = matches!(url.scheme(), "http" | "https") && !names_user(&url);
        is_page.then(|| url.to_string())
    }
}

/// `text`, if its characters are those of an RFC 3339 time. It is passed on unchanged.
#[must_use]
pub fn time(text: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b':' | b'.' | b'T' | b'Z' | b' ');
    ((10..=40).contains(&text.len()) && text.bytes().all(fits)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_only_its_own_characters() {
        for good in ["2026-04-01T08:00:01.250000+00:00", "2016-08-11T11:28:34.085Z"] {
            assert_eq!(time(good).as_deref(), Some(good));
        }
        for bad in ["", "yesterday", "2026-04-01T08:00:01Z; token", "2026"] {
            assert_eq!(time(bad), None, "{bad}");
        }
    }
}
