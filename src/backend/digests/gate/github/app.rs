//! A GitHub App: its key signs a short-lived JWT, which buys a token for one installation.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use http::{HeaderValue, Method};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::Instant};

use super::{super::api::Api, access::headers};
use crate::{
    backend::Surroundings,
    base_dir::BaseDir,
    clock::{Clock, Timestamp},
    error::{BackendError, ErrorKind},
    outbound::Call,
    secret::SecretRef,
};

/// How far back a JWT is dated, in seconds: GitHub's clock may be behind.
const BACKDATED: u64 = 60;
/// How long a JWT is valid, in seconds; GitHub takes up to ten minutes.
const JWT_LIFE: u64 = 9 * 60;
/// How long before its end a token is renewed.
const MARGIN: Duration = Duration::from_mins(5);
/// The largest answer with a token, in bytes.
const MOST: usize = 256 * 1024;

/// A GitHub App that is installed where the repository is.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "GithubApp")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The App's id.
    pub id: u64,
    /// The installation's id: the number at the end of its settings page's URL.
    pub installation: u64,
    /// The App's private key, in PEM form as GitHub hands it out.
    pub private_key: SecretRef,
}

/// The App, and its token as long as that is good.
pub(super) struct App {
    id: u64,
    installation: u64,
    key: SecretRef,
    base: BaseDir,
    clock: Arc<dyn Clock>,
    token: Mutex<Option<Token>>,
}

struct Token {
    authorization: HeaderValue,
    renew_at: Timestamp,
}

#[derive(Serialize)]
struct Claims {
    iat: u64,
    exp: u64,
    iss: String,
}

#[derive(Deserialize)]
struct TokenReply {
    token: String,
    expires_at: String,
}

impl App {
    pub(super) fn new(config: &Config, around: Surroundings<'_>) -> Self {
        Self {
            id: config.id,
            installation: config.installation,
            key: config.private_key.clone(),
            base: around.base.clone(),
            clock: Arc::clone(around.clock),
            token: Mutex::default(),
        }
    }

    /// Whether the key can sign.
    ///
    /// # Errors
    /// When it cannot be read, or is none; the text names its source and nothing of it.
    pub(super) fn check(&self) -> Result<(), String> {
        self.jwt().map(drop).map_err(|error| error.message)
    }

    /// What stays when the token changes: who asks.
    pub(super) fn account(&self) -> Arc<str> {
        format!("github-app {} {}", self.id, self.installation).into()
    }

    /// The `Authorization` of the installation: a token that is still good and not the one that was `refused`. Who comes
    /// while one is bought waits for it.
    pub(super) async fn token(
        &self,
        api: &Api,
        refused: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<HeaderValue, BackendError> {
        let late = |_| BackendError::timeout("the App's token did not arrive in time");
        let mut token = tokio::time::timeout_at(deadline, self.token.lock()).await.map_err(late)?;
        if let Some(token) = &*token
            && self.clock.now() < token.renew_at
            && refused != Some(&token.authorization)
        {
            return Ok(token.authorization.clone());
        }
        *token = None;
        let bought = self.buy(api, deadline).await?;
        Ok(token.insert(bought).authorization.clone())
    }

    async fn buy(&self, api: &Api, deadline: Instant) -> Result<Token, BackendError> {
        let url = api.url(&["app", "installations", &self.installation.to_string(), "access_tokens"], &[]);
        let headers = headers(Some(self.jwt()?));
        let call =
            Call { method: Method::POST, headers, account: Some(self.account()), ..Call::get(url, MOST, deadline) };
        let shown = call.to_string();
        let reply = api.send(call).await?;
        let denied = |why: String| Err(BackendError::new(ErrorKind::Denied, why).within(&shown));
        match reply.status.as_u16() {
            201 => {}
            401 => {
                let said = reply.excerpt(120);
                return denied(format!("401: {said}: GitHub does not take the App's key; check `id` and `privateKey`"));
            }
            404 => {
                return denied(format!(
                    "404: App {} has no installation {}; check `id` and `installation`",
                    self.id, self.installation
                ));
            }
            _ => return Err(reply.refusal().within(&shown)),
        }
        // Nothing of this answer is told: it holds the token.
        let bad = |what: &str| BackendError::invalid_output(format!("{shown}: {what}"));
        let bought: TokenReply =
            serde_json::from_slice(&reply.body).map_err(|_| bad("the answer is not a token as GitHub documents it"))?;
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", bought.token))
            .map_err(|_| bad("the token holds characters that no header can carry"))?;
        authorization.set_sensitive(true);
        let ends = humantime::parse_rfc3339_weak(&bought.expires_at).ok();
        let renew_at = ends.and_then(|ends| ends.duration_since(UNIX_EPOCH).ok()?.checked_sub(MARGIN));
        let renew_at = renew_at.and_then(|time| u64::try_from(time.as_millis()).ok());
        let renew_at = renew_at.map(Timestamp).ok_or_else(|| bad("`expires_at` is no time"))?;
        Ok(Token { authorization, renew_at })
    }

    /// A fresh proof of being the App.
    fn jwt(&self) -> Result<HeaderValue, BackendError> {
        let denied = |why: &str| BackendError::new(ErrorKind::Denied, format!("{} {why}", self.key));
        let pem = self.key.read(&self.base).map_err(BackendError::unavailable)?;
        let no_key = "is no RSA private key in PEM form, as GitHub hands it out for an App";
        let key = EncodingKey::from_rsa_pem(pem.expose().as_bytes()).map_err(|_| denied(no_key))?;
        let now = self.clock.now().0 / 1000;
        let claims = Claims { iat: now.saturating_sub(BACKDATED), exp: now + JWT_LIFE, iss: self.id.to_string() };
        let jwt = encode(&Header::new(Algorithm::RS256), &claims, &key).map_err(|_| denied(no_key))?;
        let mut value = HeaderValue::try_from(format!("Bearer {jwt}")).map_err(|_| denied("cannot sign"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("id", &self.id).field("installation", &self.installation).finish_non_exhaustive()
    }
}
