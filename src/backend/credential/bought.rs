//! A token that is bought, and kept as long as it is good.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use http::HeaderValue;
use tokio::{sync::Mutex, time::Instant};

use crate::domain::{
    clock::{Clock, Timestamp},
    error::BackendError,
    secret::{Secret, Secrets},
};

/// Who sells tokens.
#[async_trait]
pub(crate) trait Seller: fmt::Debug + Send + Sync {
    /// Buys one at `now`.
    ///
    /// # Errors
    /// When none is given by `deadline`; the message names who was asked.
    async fn buy(&self, now: Timestamp, deadline: Instant) -> Result<Token, BackendError>;

    /// What stays when the token changes: who asks.
    fn account(&self) -> Arc<str>;

    /// What it is bought with.
    fn secrets(&self) -> Secrets;
}

/// A token, as it is sent.
#[derive(Debug)]
pub(crate) struct Token {
    /// The whole `Authorization`, marked as sensitive.
    pub(crate) authorization: HeaderValue,
    /// When it is time for another.
    pub(crate) renew_at: Timestamp,
}

/// A token, bought when it is needed.
pub(crate) struct Bought {
    seller: Box<dyn Seller>,
    clock: Arc<dyn Clock>,
    token: Mutex<Option<Token>>,
}

impl Bought {
    /// Nothing is bought yet.
    pub(crate) fn new(seller: Box<dyn Seller>, clock: &Arc<dyn Clock>) -> Self {
        Self { seller, clock: Arc::clone(clock), token: Mutex::default() }
    }

    /// Who asks.
    pub(crate) fn account(&self) -> Arc<str> {
        self.seller.account()
    }

    /// What may come back: what it is bought with, and the token.
    pub(crate) fn secrets(&self) -> Secrets {
        let mut secrets = self.seller.secrets();
        let token = self.token.try_lock();
        let token = token.as_ref().ok().and_then(|token| token.as_ref()?.authorization.to_str().ok());
        if let Some(token) = token {
            secrets.push(Secret::from(token.to_owned()));
        }
        secrets
    }

    /// One that is still good and not the one that was `refused`. Who comes while one is bought waits for it.
    ///
    /// # Errors
    /// When there is none by `deadline`.
    pub(crate) async fn token(
        &self,
        refused: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<HeaderValue, BackendError> {
        let late = |_| BackendError::timeout("the token did not arrive in time");
        let mut token = tokio::time::timeout_at(deadline, self.token.lock()).await.map_err(late)?;
        if let Some(token) = &*token
            && self.clock.now() < token.renew_at
            && refused != Some(&token.authorization)
        {
            return Ok(token.authorization.clone());
        }
        *token = None;
        let bought = self.seller.buy(self.clock.now(), deadline).await?;
        Ok(token.insert(bought).authorization.clone())
    }
}

impl fmt::Debug for Bought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bought").field("seller", &self.seller).finish_non_exhaustive()
    }
}
