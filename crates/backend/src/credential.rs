//! The credential of a request: a secret that is read at each use, or a token that the gateway requests with a secret.

pub mod github_app;
mod issued;
pub mod oauth2;

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;

use self::issued::{IssuedToken, TokenIssuer};
use super::{BuildContext, Building};
use domain::{
    error::{BackendError, ErrorKind},
    file::base_dir::BaseDir,
    secret::{PLACEHOLDER, SecretRef, Secrets},
};
use outbound::{Call, HttpClient, Identity, Reply, account_of, warn_of_cleartext};

/// The credential for the `Authorization` header: exactly one kind. Use `headers` for a secret in another header.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "HttpCredential")]
#[serde(rename_all = "camelCase")]
pub enum Config {
    /// A token. It is read at each use.
    Bearer(SecretRef),
    /// A user name and a password. The password is read at each use.
    Basic(Basic),
    /// A token from an OAuth 2.0 token server, by the client credentials grant (RFC 6749, section 4.4). The gateway keeps the token for
    /// four fifths of its life, and requests a new one when an upstream refuses it.
    Oauth2(oauth2::Config),
    /// The token of an installation of a GitHub App.
    GithubApp(github_app::Config),
    /// An identity at a cloud: a name from `identities`. AWS's signs each request, Google's and Azure's send a token. The host must stand in the
    /// URL as it is.
    Identity(String),
}

/// A user name and a password.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Basic {
    /// The user name, without a colon.
    pub username: String,
    /// The password.
    pub password: SecretRef,
}

/// A credential, ready to be sent.
#[derive(Debug)]
pub enum Credential {
    /// A token.
    Bearer(SecretRef, BaseDir),
    /// A user name and a password.
    Basic(String, SecretRef, BaseDir),
    /// A token that the gateway requests.
    Issued(Box<IssuedToken>),
    /// An identity at a cloud. It is `None` in a configuration that never meets its sources.
    Identity(Option<Arc<dyn Identity>>),
}

impl Credential {
    /// Checks the configuration without sending a request. Tokens are requested with the client `client`. `destination` is the beginning of
    /// the URL that the credential is for, if no value can change its host.
    pub fn build(
        config: &Config,
        client: Option<&Arc<HttpClient>>,
        destination: Option<&Url>,
        building: &mut Building<'_>,
    ) -> Option<Self> {
        let context = building.context;
        match config {
            Config::Identity(name) => Self::identity(name, destination, &mut building.key("identity")),
            Config::Bearer(token) => Some(Self::bearer(token, &mut building.key("bearer"))),
            Config::Basic(Basic { username, password }) => {
                let mut building = building.key("basic");
                building.key("password").check_secret(password);
                if username.contains(':') {
                    building.key("username").error("a user name cannot hold a colon (RFC 7617)");
                }
                Some(Self::Basic(username.clone(), password.clone(), context.base.clone()))
            }
            Config::Oauth2(config) => {
                let oauth = oauth2::OAuthClient::build(config, client, &mut building.key("oauth2"))?;
                Some(Self::with_issuer(oauth, context))
            }
            Config::GithubApp(config) => {
                let mut building = building.key("githubApp");
                let mut at = building.key("api");
                let api = at.note(github_app::api_url(config.api.as_deref()));
                if let Some(api) = &api {
                    warn_of_cleartext(api, &at.path, at.problems);
                }
                Some(Self::github_app(config, &api?, client?, &mut building))
            }
        }
    }

    /// The identity called `name`, for requests to `destination`.
    fn identity(name: &str, destination: Option<&Url>, building: &mut Building<'_>) -> Option<Self> {
        if building.context.base.is_offline() {
            return Some(Self::Identity(None));
        }
        let identity = building.note(building.context.outbound.identities().named(name))?;
        let Some(destination) = destination else {
            let help = "write the host in the URL as it is, before any `{{`";
            building.error_with_help(
                "an identity goes only to hosts of the configuration, and a value is part of this one",
                help,
            );
            return None;
        };
        building.note(identity.check_url(destination))?;
        Some(Self::Identity(Some(identity)))
    }

    /// The token in the secret `reference`.
    pub(crate) fn bearer(reference: &SecretRef, building: &mut Building<'_>) -> Self {
        building.check_secret(reference);
        Self::Bearer(reference.clone(), building.context.base.clone())
    }

    /// Tokens of the GitHub App `config`, which are requested from `api` with the client `client`.
    pub(crate) fn github_app(
        config: &github_app::Config,
        api: &Url,
        client: &Arc<HttpClient>,
        building: &mut Building<'_>,
    ) -> Self {
        let app = github_app::GithubApp::new(config, api, client, building.context);
        building.problems.note_secret(&building.path.key("privateKey"), app.check());
        Self::with_issuer(app, building.context)
    }

    /// A credential with tokens from `issuer`.
    fn with_issuer(issuer: impl TokenIssuer + 'static, context: BuildContext<'_>) -> Self {
        Self::Issued(Box::new(IssuedToken::new(Box::new(issuer), context.clock)))
    }

    /// Sends `call` with this credential. If the upstream refuses a requested token, a new token is requested and tried once.
    ///
    /// # Errors
    /// When there is no credential, or no complete answer arrives.
    pub async fn send(&self, client: &HttpClient, call: Call) -> Result<Reply, BackendError> {
        if let Self::Identity(Some(identity)) = self {
            return send_as(&**identity, client, call).await;
        }
        let Self::Issued(issued) = self else {
            return client.fetch(with(call, self.secret()?)).await;
        };
        let call = Call { account: Some(issued.account()), ..call };
        let token = issued.token(None, call.deadline).await?;
        let reply = client.fetch(with(call.clone(), token.clone())).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        // The token was revoked, or the clocks differ.
        let renewed = issued.token(Some(&token), call.deadline).await?;
        client.fetch(with(call, renewed)).await
    }

    /// The account for rate limits; `None` while the secret cannot be read.
    #[must_use]
    pub fn account(&self) -> Option<Arc<str>> {
        match self {
            Self::Issued(issued) => Some(issued.account()),
            Self::Identity(Some(identity)) => Some(identity.account()),
            _ => Some(account_of(&HeaderMap::from_iter([(header::AUTHORIZATION, self.secret().ok()?)]))),
        }
    }

    /// The secrets that an answer could repeat.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        match self {
            Self::Bearer(reference, base) | Self::Basic(_, reference, base) => {
                reference.read(base).into_iter().collect()
            }
            Self::Issued(issued) => issued.secrets(),
            Self::Identity(identity) => identity.as_ref().map(|identity| identity.secrets()).unwrap_or_default(),
        }
    }

    /// The header with a secret of the configuration.
    fn secret(&self) -> Result<HeaderValue, BackendError> {
        match self {
            Self::Bearer(reference, base) => reference.header(base, "Bearer "),
            Self::Basic(username, password, base) => {
                let secret = password.read(base).map_err(BackendError::unavailable)?;
                basic(username, secret.expose())
            }
            Self::Identity(None) => authorization("Bearer", PLACEHOLDER),
            Self::Issued(_) | Self::Identity(Some(_)) => {
                Err(BackendError::new(ErrorKind::Denied, "this credential is a token that the gateway requests"))
            }
        }
    }
}

/// Sends `call` as `identity`. If the upstream reports that a credential has ended, it is renewed and tried once.
async fn send_as(identity: &dyn Identity, client: &HttpClient, call: Call) -> Result<Reply, BackendError> {
    let call = Call { account: Some(identity.account()), ..call };
    let named = |error: BackendError| error.within("identity");
    let reply = client.fetch(identity.authorize(call.clone(), false).await.map_err(named)?).await?;
    if !identity.is_ended(&reply) {
        return Ok(reply);
    }
    client.fetch(identity.authorize(call, true).await.map_err(named)?).await
}

/// `Basic` with `username` and `password` (RFC 7617).
///
/// # Errors
/// Never in practice: base64 is always the value of a header.
fn basic(username: &str, password: &str) -> Result<HeaderValue, BackendError> {
    let pair = STANDARD.encode(format!("{username}:{password}"));
    authorization("Basic", &pair)
}

/// The header value `<scheme> <token>`, marked as sensitive.
///
/// # Errors
/// When no header can carry the token. The error does not quote it.
fn authorization(scheme: &str, token: impl fmt::Display) -> Result<HeaderValue, BackendError> {
    let mut value = HeaderValue::try_from(format!("{scheme} {token}"))
        .map_err(|_| BackendError::invalid_output("the token holds characters that no header can carry"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn with(mut call: Call, authorization: HeaderValue) -> Call {
    call.headers.insert(header::AUTHORIZATION, authorization);
    call
}
