//! One question to GitHub's API, with its headers and its credential.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, header};
use reqwest::Url;
use tokio::time::Instant;

use super::{super::api::Api, app::App};
use crate::{
    backend::request::sensitive,
    base_dir::BaseDir,
    error::{BackendError, ErrorKind},
    outbound::{Call, Reply},
    secret::SecretRef,
};

/// The largest answer that is read, in bytes: a hundred runs with their repositories are about one mebibyte.
const MOST: usize = 8 * 1024 * 1024;

/// Who asks.
#[derive(Debug)]
pub(super) enum Credential {
    /// Anybody.
    Nobody,
    /// Who has the token, which is read at each use.
    Token(SecretRef, BaseDir),
    /// An installed App.
    App(App),
}

/// The API, and who asks it.
#[derive(Debug)]
pub(super) struct Access {
    pub(super) api: Api,
    credential: Credential,
}

impl Access {
    pub(super) const fn new(api: Api, credential: Credential) -> Self {
        Self { api, credential }
    }

    /// Reads the 200 at `url`.
    pub(super) async fn get(&self, url: Url, deadline: Instant) -> Result<Reply, BackendError> {
        let shown = Call::get(url.clone(), MOST, deadline).to_string();
        let reply = match &self.credential {
            Credential::Nobody => self.send(url, None, None, deadline).await?,
            Credential::Token(reference, base) => {
                let authorization = sensitive(reference, base, "Bearer ")?;
                self.send(url, Some(authorization), None, deadline).await?
            }
            Credential::App(app) => {
                let token = app.token(&self.api, None, deadline).await?;
                let account = Some(app.account());
                let reply = self.send(url.clone(), Some(token.clone()), account.clone(), deadline).await?;
                if reply.status.as_u16() == 401 {
                    // It was revoked, or the clocks differ.
                    let renewed = app.token(&self.api, Some(&token), deadline).await?;
                    self.send(url, Some(renewed), account, deadline).await?
                } else {
                    reply
                }
            }
        };
        judge(reply).map_err(|error| error.within(shown))
    }

    /// Whether less than a tenth is left of what GitHub allows us.
    pub(super) fn is_low(&self) -> bool {
        let (authorization, account) = match &self.credential {
            Credential::Nobody => (None, None),
            Credential::Token(reference, base) => match sensitive(reference, base, "Bearer ") {
                Ok(authorization) => (Some(authorization), None),
                Err(_) => return false,
            },
            Credential::App(app) => (None, Some(app.account())),
        };
        self.api.is_low(headers(authorization), account)
    }

    async fn send(
        &self,
        url: Url,
        authorization: Option<HeaderValue>,
        account: Option<Arc<str>>,
        deadline: Instant,
    ) -> Result<Reply, BackendError> {
        let headers = headers(authorization);
        self.api.send(Call { headers, account, revalidate: true, ..Call::get(url, MOST, deadline) }).await
    }
}

/// The headers of every question.
pub(super) fn headers(authorization: Option<HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
    headers.extend(authorization.map(|value| (header::AUTHORIZATION, value)));
    headers
}

fn judge(reply: Reply) -> Result<Reply, BackendError> {
    let advice = match reply.status.as_u16() {
        200 => return Ok(reply),
        301 | 302 | 307 | 308 => "was the repository renamed or moved? write its present name",
        // A private repository looks like none at all to who may not see it.
        404 => {
            let message = format!(
                "404 Not Found: {}: it is not there, or the credential may not see it; check the repository's name, and that \
                 the credential may read its actions, checks, statuses and contents",
                reply.excerpt(120)
            );
            return Err(BackendError::new(ErrorKind::Denied, message));
        }
        409 | 422 => "does the repository have this commit? it may not be pushed yet",
        _ => return Err(reply.refusal()),
    };
    let error = reply.refusal();
    Err(BackendError { message: format!("{}; {advice}", error.message), ..error })
}
