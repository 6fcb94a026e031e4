//! The client credentials grant of `OAuth2` (RFC 6749, section 4.4): a token server issues a token for a client's id and secret.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;
use url::form_urlencoded;

use super::{
    authorization, basic,
    issued::{Token, TokenIssuer},
};
use crate::Building;
use domain::{
    clock::Timestamp,
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    secret::{Secret, SecretRef, Secrets},
};
use outbound::{Call, ExpiresIn, HttpClient, Reply, fixed_url, warn_of_cleartext};

/// The life of a token if the server names none. The specification leaves it open.
const TOKEN_LIFE: Duration = Duration::from_mins(5);
/// The longest life of a token. Longer ones are cut.
const LONGEST_LIFE: Duration = Duration::from_hours(24);
/// The largest answer with a token, in bytes.
const MAX_REPLY_BYTES: usize = 1024 * 1024;

/// The token server, and the client's id and secret.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "Oauth2Credential")]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The token endpoint. The certificates of the backend or gate apply to it too.
    pub(crate) token_url: String,
    /// The client's id.
    pub client_id: String,
    /// The client's secret. It is read for each token.
    pub client_secret: SecretRef,
    /// The scopes of the token. Without this key, the server chooses them.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// Further parameters for the server, such as `audience` or `resource`.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// How the client's id and secret are sent.
    #[serde(default)]
    pub(crate) client_authentication: ClientAuthentication,
}

/// How a client's id and secret are sent (RFC 6749, section 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClientAuthentication {
    /// As `Authorization: Basic`, which every server must accept.
    #[default]
    Basic,
    /// As `client_id` and `client_secret` in the body.
    Body,
}

/// A client, which requests tokens.
#[derive(Debug)]
pub struct OAuthClient {
    url: Url,
    id: String,
    secret: SecretRef,
    base: BaseDir,
    /// The form that is sent, without the client's id and secret.
    form: Vec<(String, String)>,
    authentication: ClientAuthentication,
    client: Arc<HttpClient>,
}

#[derive(Deserialize)]
struct TokenReply {
    access_token: Secret,
    token_type: Option<String>,
    #[serde(default)]
    expires_in: ExpiresIn,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
    error_description: Option<String>,
}

impl OAuthClient {
    /// Checks the URL, the secret and the parameters.
    pub fn build(config: &Config, client: Option<&Arc<HttpClient>>, building: &mut Building<'_>) -> Option<Self> {
        let context = building.context;
        building.key("clientSecret").check_secret(&config.client_secret);
        let mut token_url = building.key("tokenUrl");
        let url = token_url.note(fixed_url(&config.token_url));
        context.outbound.name_destination(url.as_ref());
        if let Some(url) = &url {
            warn_of_cleartext(url, &token_url.path, token_url.problems);
        }
        let own = ["grant_type", "scope", "client_id", "client_secret"];
        for name in config.parameters.keys().filter(|name| own.contains(&name.as_str())) {
            building.key("parameters").key(name).error("it has a key of its own");
        }
        let mut form = vec![("grant_type".to_owned(), "client_credentials".to_owned())];
        if !config.scopes.is_empty() {
            form.push(("scope".to_owned(), config.scopes.join(" ")));
        }
        form.extend(config.parameters.clone());
        Some(Self {
            url: url?,
            id: config.client_id.clone(),
            secret: config.client_secret.clone(),
            base: context.base.clone(),
            form,
            authentication: config.client_authentication,
            client: Arc::clone(client?),
        })
    }

    fn call(&self, secret: &Secret, deadline: Instant) -> Result<Call, BackendError> {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(&self.form);
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        match self.authentication {
            ClientAuthentication::Basic => {
                headers.insert(header::AUTHORIZATION, basic(&encoded(&self.id), &encoded(secret.expose()))?);
            }
            ClientAuthentication::Body => {
                form.append_pair("client_id", &self.id).append_pair("client_secret", secret.expose());
            }
        }
        let body = Some(Bytes::from(form.finish()));
        let account = Some(self.account());
        Ok(Call {
            method: Method::POST,
            headers,
            body,
            account,
            ..Call::get(self.url.clone(), MAX_REPLY_BYTES, deadline)
        })
    }

    fn read(reply: &Reply, now: Timestamp) -> Result<Token, BackendError> {
        if matches!(reply.status.as_u16(), 400 | 401 | 403) && !reply.is_limit() {
            let reason = match serde_json::from_slice::<Refusal>(&reply.body) {
                Ok(Refusal { error, error_description: Some(more) }) => format!("{error}: {more}"),
                Ok(Refusal { error, .. }) => error,
                Err(_) => String::from_utf8_lossy(&reply.body).into_owned(),
            };
            let message = format!(
                "no token ({}): {}; check `clientId`, `clientSecret`, `scopes` and `clientAuthentication`",
                reply.status,
                reply.secrets.excerpt(reason.as_bytes(), 200)
            );
            return Err(BackendError::new(ErrorKind::Denied, message));
        }
        if !reply.status.is_success() {
            return Err(reply.refusal());
        }
        // No error quotes this answer, since it holds the token.
        let bad = |what: &str| BackendError::invalid_output(what.to_owned());
        let answer: TokenReply = serde_json::from_slice(&reply.body)
            .map_err(|_| bad("the answer is not a token as RFC 6749 has it, with `access_token`"))?;
        if answer.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(bad("the token is not a bearer token"));
        }
        if answer.access_token.expose().is_empty() {
            return Err(bad("the token is empty"));
        }
        let life = answer.expires_in.time().map_err(bad)?.unwrap_or(TOKEN_LIFE);
        let lasts = life.min(LONGEST_LIFE).mul_f64(0.8);
        Ok(Token { authorization: authorization("Bearer", answer.access_token.expose())?, renew_at: now.plus(lasts) })
    }
}

/// `text` in the encoding of a form.
fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

#[async_trait]
impl TokenIssuer for OAuthClient {
    async fn issue(&self, now: Timestamp, deadline: Instant) -> Result<Token, BackendError> {
        let secret = self.secret.read(&self.base).map_err(BackendError::unavailable)?;
        let call = self.call(&secret, deadline)?;
        let shown = format!("token server: {call}");
        let mut reply = self.client.fetch(call).await.map_err(|error| error.within("token server"))?;
        // The secret may be part of the request's body, and an answer may repeat it. It is noted before any excerpt of the answer,
        // which could cut it in half.
        reply.secrets.push(encoded(secret.expose()).into());
        reply.secrets.push(secret);
        Self::read(&reply, now).map_err(|error| reply.secrets.clean(&error).within(shown))
    }

    fn account(&self) -> Arc<str> {
        // Tokens with other scopes or parameters may get other answers, so these are part of the account.
        let purpose = form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.form).finish();
        format!("oauth2 {} {} {purpose}", self.url, self.id).into()
    }

    fn secrets(&self) -> Secrets {
        self.secret.read(&self.base).into_iter().collect()
    }
}
