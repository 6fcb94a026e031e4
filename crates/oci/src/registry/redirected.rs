//! Follows a registry's redirects: of contents to another store, or of everything to another registry. Credentials stay at the
//! registry, and callers that fetch by digest check the digest of the bytes that arrive.

use http::{Method, header};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use tokio::time::Instant;

use super::{Registry, RegistryRequest};
use domain::{document::excerpt, error::BackendError};
use outbound::{Reply, check_link};

/// How many redirects are followed for one request.
const MAX_REDIRECTS: usize = 3;

impl Registry {
    /// Sends a request, and buys a token if the registry wants one. A remembered credential or token that is refused is renewed
    /// once. A redirect is followed.
    ///
    /// # Errors
    /// When no whole answer arrives by `deadline`. Any status is an answer, but a redirect that is not followed.
    pub(crate) async fn fetch(&self, request: &RegistryRequest<'_>, deadline: Instant) -> Result<Reply, BackendError> {
        self.fetch_at(self.url(request)?, request, deadline).await.map(|(reply, _)| reply)
    }

    /// As [`Self::fetch`], at `url`, to which the registry led. Also returns the URL that answered. The credential goes only to
    /// the registry itself.
    ///
    /// # Errors
    /// When no whole answer arrives by `deadline`.
    pub(crate) async fn fetch_at(
        &self,
        url: Url,
        request: &RegistryRequest<'_>,
        deadline: Instant,
    ) -> Result<(Reply, Url), BackendError> {
        let (mut reply, mut at) = self.fetch_once(url, request, deadline).await?;
        for hops in 0..=MAX_REDIRECTS {
            let Some(to) = self.redirect(&reply, &at)? else {
                return if hops > 0 { is_of(&reply, &at, request).map(|()| (reply, at)) } else { Ok((reply, at)) };
            };
            if hops < MAX_REDIRECTS {
                (reply, at) = self.fetch_once(to, request, deadline).await?;
            }
        }
        let why = format!("it redirects more than {MAX_REDIRECTS} times ({})", reply.status);
        Err(BackendError::invalid_output(why))
    }

    async fn fetch_once(
        &self,
        url: Url,
        request: &RegistryRequest<'_>,
        deadline: Instant,
    ) -> Result<(Reply, Url), BackendError> {
        let request = RegistryRequest { url: Some(&url), ..request.clone() };
        if url.origin() == self.base.origin() {
            // On the heap: otherwise the futures that await it would be large, too.
            return Ok((Box::pin(self.fetch_authorized(&request, deadline)).await?, url));
        }
        let reply = self.send(&request, None, None, deadline).await?;
        // Another host gets no credential, and its refusal proves nothing about the image.
        if matches!(reply.status.as_u16(), 401 | 403) {
            let host = url.host_str().unwrap_or_default();
            return Err(reply.refusal().within(format_args!("{host}, to which it redirects")));
        }
        Ok((reply, url))
    }

    /// The URL to which `reply` redirects. `None` if it is not a redirect.
    ///
    /// # Errors
    /// When no request may go to that URL.
    fn redirect(&self, reply: &Reply, from: &Url) -> Result<Option<Url>, BackendError> {
        if !matches!(reply.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let location = reply.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
        let wrong = |why: &str| BackendError::invalid_output(format!("it redirects ({}): {why}", reply.status));
        let to = location.and_then(|location| from.join(location).ok()).ok_or_else(|| wrong("to no URL"))?;
        check_link(&to, &self.base, |address| self.client.allows(address))
            .map_err(|why| wrong(&format!("its URL {why}")))?;
        Ok(Some(to))
    }

    /// The content of `digest` in the repository. Many registries redirect to another store, which does not get the credential.
    ///
    /// # Errors
    /// When it is not read by `deadline`.
    pub(crate) async fn blob(&self, repository: &str, digest: &str, deadline: Instant) -> Result<Reply, BackendError> {
        let path = format!("blobs/{digest}");
        let request = RegistryRequest { method: Method::GET, repository, path: &path, query: None, url: None };
        let reply = self.fetch(&request, deadline).await?;
        if reply.status.as_u16() == 200 { Ok(reply) } else { Err(reply.refusal()) }
    }
}

/// Checks that a 404 after a redirect is about the path of the request. A missing sign-in page proves nothing about an image.
///
/// # Errors
/// When it is about something else.
fn is_of(reply: &Reply, at: &Url, request: &RegistryRequest<'_>) -> Result<(), BackendError> {
    let path = percent_decode_str(at.path()).decode_utf8_lossy();
    if reply.status.as_u16() != 404 || path.ends_with(&format!("/{}", request.path)) {
        return Ok(());
    }
    let why = format!("it redirects to `{}`, which answers 404, so it proves nothing", excerpt(path.as_bytes(), 120));
    Err(BackendError::invalid_output(why))
}
