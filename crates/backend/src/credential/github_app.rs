//! A GitHub App. Its key signs a short-lived JWT, and GitHub returns a token for one installation in exchange.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use async_trait::async_trait;
use http::{HeaderMap, HeaderValue, Method, header};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    authorization,
    issued::{Token, TokenIssuer},
};
use crate::BuildContext;
use domain::{
    clock::Timestamp,
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    secret::{SecretRef, Secrets},
};
use outbound::{Call, HttpClient, UrlError, fixed_url};

/// GitHub's own API.
const GITHUB: &str = "https://api.github.com";
/// How far back the start of a JWT is dated, in seconds. GitHub's clock may be behind.
const BACKDATED: u64 = 60;
/// How long a JWT is valid, in seconds. GitHub accepts at most ten minutes.
const JWT_LIFE: u64 = 9 * 60;
/// How long before its expiry a token is renewed.
const MARGIN: Duration = Duration::from_mins(5);
/// The largest answer with a token, in bytes.
const MAX_REPLY_BYTES: usize = 256 * 1024;

/// A GitHub App that is installed at the owner of the repository.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "GithubApp")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The App's id.
    pub id: u64,
    /// The installation's id: the number at the end of its settings page's URL.
    pub installation: u64,
    /// The App's private key: the PEM file that GitHub generates.
    pub private_key: SecretRef,
    /// The API of a GitHub Enterprise Server: `https://ghe.example.com/api/v3`. In a gate, use the gate's own key instead.
    pub api: Option<String>,
}

/// The App, which requests tokens for its installation.
pub struct GithubApp {
    id: u64,
    installation: u64,
    key: SecretRef,
    base: BaseDir,
    /// The URL that issues tokens.
    url: Url,
    client: Arc<HttpClient>,
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

impl GithubApp {
    /// The App of `config`. It requests tokens from `api` with the client `client`.
    pub fn new(config: &Config, api: &Url, client: &Arc<HttpClient>, context: BuildContext<'_>) -> Self {
        let mut url = api.clone();
        context.outbound.name_destination(Some(api));
        if let Ok(mut path) = url.path_segments_mut() {
            let installation = config.installation.to_string();
            path.pop_if_empty().extend(["app", "installations", &installation, "access_tokens"]);
        }
        Self {
            id: config.id,
            installation: config.installation,
            key: config.private_key.clone(),
            base: context.base.clone(),
            url,
            client: Arc::clone(client),
        }
    }

    /// Checks that the key can sign.
    ///
    /// # Errors
    /// When the key cannot be read, or is not an RSA private key. The text names the source of the key and does not quote it.
    pub fn check(&self) -> Result<(), BackendError> {
        self.jwt(Timestamp(0)).map(drop)
    }

    /// A new JWT that proves at `now` that the gateway is the App.
    fn jwt(&self, now: Timestamp) -> Result<HeaderValue, BackendError> {
        let denied = |why: &str| BackendError::new(ErrorKind::Denied, format!("{} {why}", self.key));
        let pem = self.key.read(&self.base).map_err(BackendError::unavailable)?;
        if self.base.is_offline() {
            return authorization("Bearer", pem.expose());
        }
        let no_key = "is not an RSA private key in PEM form, as GitHub generates it for an App";
        let key = EncodingKey::from_rsa_pem(pem.expose().as_bytes()).map_err(|_| denied(no_key))?;
        let now = now.0 / 1000;
        let claims = Claims { iat: now.saturating_sub(BACKDATED), exp: now + JWT_LIFE, iss: self.id.to_string() };
        let jwt = encode(&Header::new(Algorithm::RS256), &claims, &key).map_err(|_| denied(no_key))?;
        authorization("Bearer", jwt)
    }
}

#[async_trait]
impl TokenIssuer for GithubApp {
    async fn issue(&self, now: Timestamp, deadline: Instant) -> Result<Token, BackendError> {
        let mut headers = headers();
        headers.insert(header::AUTHORIZATION, self.jwt(now)?);
        let account = Some(self.account());
        let call =
            Call { method: Method::POST, headers, account, ..Call::get(self.url.clone(), MAX_REPLY_BYTES, deadline) };
        let shown = call.to_string();
        let reply = self.client.fetch(call).await?;
        let denied = |why: String| Err(BackendError::new(ErrorKind::Denied, why).within(&shown));
        match reply.status.as_u16() {
            201 => {}
            401 => {
                let reason = reply.excerpt(120);
                return denied(format!(
                    "401: {reason}: GitHub does not take the App's key; check `id` and `privateKey`"
                ));
            }
            404 => {
                return denied(format!(
                    "404: App {} has no installation {}; check `id` and `installation`",
                    self.id, self.installation
                ));
            }
            _ => return Err(reply.refusal().within(&shown)),
        }
        // No error quotes this answer, since it holds the token.
        let bad = |what: &str| BackendError::invalid_output(format!("{shown}: {what}"));
        let answer: TokenReply =
            serde_json::from_slice(&reply.body).map_err(|_| bad("the answer is not a token as GitHub documents it"))?;
        let authorization = authorization("Bearer", &answer.token).map_err(|error| error.within(&shown))?;
        let ends = humantime::parse_rfc3339_weak(&answer.expires_at).ok();
        let renew_at = ends.and_then(|ends| ends.duration_since(UNIX_EPOCH).ok()?.checked_sub(MARGIN));
        let renew_at = renew_at.and_then(|time| u64::try_from(time.as_millis()).ok());
        let renew_at = renew_at.map(Timestamp).ok_or_else(|| bad("`expires_at` is not a time"))?;
        Ok(Token { authorization, renew_at })
    }

    fn account(&self) -> Arc<str> {
        format!("github-app {} {}", self.id, self.installation).into()
    }

    fn secrets(&self) -> Secrets {
        self.key.read(&self.base).into_iter().collect()
    }
}

/// The headers of every request to GitHub.
#[must_use]
pub fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/vnd.github+json"));
    headers.insert("x-github-api-version", HeaderValue::from_static("2022-11-28"));
    headers
}

/// The URL `api` of the configuration, or that of GitHub's own API.
///
/// # Errors
/// When `api` is not a URL of a host.
pub(crate) fn api_url(api: Option<&str>) -> Result<Url, UrlError> {
    fixed_url(api.unwrap_or(GITHUB))
}

impl fmt::Debug for GithubApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("id", &self.id).field("installation", &self.installation).finish_non_exhaustive()
    }
}
