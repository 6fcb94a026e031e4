//! A token that the gateway requests when it needs one, and keeps while it is valid.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use http::HeaderValue;
use tokio::{sync::Mutex, time::Instant};

use domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
    secret::{Secret, Secrets},
};

/// A server that issues tokens.
#[async_trait]
pub trait TokenIssuer: fmt::Debug + Send + Sync {
    /// Requests a token. `now` is the time of the request.
    ///
    /// # Errors
    /// When no token arrives by `deadline`. The message names the server.
    async fn issue(&self, now: Timestamp, deadline: Instant) -> Result<Token, BackendError>;

    /// The account for rate limits. It stays the same when the token changes.
    fn account(&self) -> Arc<str>;

    /// The secrets that are sent to get a token.
    fn secrets(&self) -> Secrets;
}

/// A token and its time of renewal.
#[derive(Debug)]
pub struct Token {
    /// The complete `Authorization` header, marked as sensitive.
    pub authorization: HeaderValue,
    /// From this time on, a new token is requested.
    pub renew_at: Timestamp,
}

/// Keeps the current token of a [`TokenIssuer`].
pub struct IssuedToken {
    issuer: Box<dyn TokenIssuer>,
    clock: Arc<dyn Clock>,
    token: Mutex<Option<Token>>,
}

impl IssuedToken {
    /// Starts without a token.
    pub fn new(issuer: Box<dyn TokenIssuer>, clock: &Arc<dyn Clock>) -> Self {
        Self { issuer, clock: Arc::clone(clock), token: Mutex::default() }
    }

    /// The account for rate limits.
    pub fn account(&self) -> Arc<str> {
        self.issuer.account()
    }

    /// The secrets that an answer could repeat: those of the issuer, and the current token.
    pub fn secrets(&self) -> Secrets {
        let mut secrets = self.issuer.secrets();
        let token = self.token.try_lock();
        let token = token.as_ref().ok().and_then(|token| token.as_ref()?.authorization.to_str().ok());
        if let Some(token) = token {
            secrets.push(Secret::from(token.to_owned()));
        }
        secrets
    }

    /// The current token, or a new one if it expires soon or is the token that was `refused`. Calls that come during a request for a
    /// token wait for its result.
    ///
    /// # Errors
    /// When there is no token by `deadline`.
    pub async fn token(&self, refused: Option<&HeaderValue>, deadline: Instant) -> Result<HeaderValue, BackendError> {
        let late = |_| BackendError::timeout("the token did not arrive in time");
        let mut token = tokio::time::timeout_at(deadline, self.token.lock()).await.map_err(late)?;
        if let Some(token) = &*token
            && self.clock.now() < token.renew_at
            && refused != Some(&token.authorization)
        {
            return Ok(token.authorization.clone());
        }
        *token = None;
        let issued = self.issuer.issue(self.clock.now(), deadline).await?;
        Ok(token.insert(issued).authorization.clone())
    }
}

impl fmt::Debug for IssuedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IssuedToken").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}
