//! Tokens. They are bought at the server that a registry's challenge names, and kept for four fifths of their life. One
//! purchase serves all who wait. Source: the distribution project's "Token Authentication Specification" and "`OAuth2` Token
//! Authentication".

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, header};
use parking_lot::Mutex;
use reqwest::Url;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use url::form_urlencoded;

use super::credentials::RegistryCredential;
use domain::{
    error::{BackendError, ErrorKind},
    secret::Secret,
};
use flight::{FlightGuard, Flights, wait::wait};
use outbound::{Call, ExpiresIn, HttpClient, check_link};

/// A token's life if its server names none (the token specification).
const TOKEN_LIFE: Duration = Duration::from_mins(1);
/// The shortest and the longest life of a token. Others are cut.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);
const LONGEST_LIFE: Duration = Duration::from_hours(1);
/// The largest answer of a token server, in bytes.
const MAX_REPLY_BYTES: usize = 1024 * 1024;

/// The purpose of a token, and the server that issues it.
#[derive(Debug, Clone)]
pub struct Purpose {
    /// The token server.
    pub realm: Url,
    /// The service that the token is for.
    pub service: Option<String>,
    /// The rights of the token.
    pub scope: String,
    /// Whether the server is another host than the registry that names it.
    is_elsewhere: bool,
}

/// The tokens of one registry.
#[derive(Debug, Default)]
pub(super) struct RegistryTokens {
    kept: Arc<Mutex<HashMap<TokenKey, Token>>>,
    flights: Flights<TokenKey, (), Result<HeaderValue, BackendError>>,
}

type TokenKey = [u8; 32];

#[derive(Debug, Clone)]
struct Token {
    authorization: HeaderValue,
    renew_at: Instant,
}

/// The authorization for a request.
#[derive(Debug, Clone)]
pub(super) struct TokenPass {
    /// The header.
    pub authorization: HeaderValue,
    /// Whether it was bought for an earlier request. It may have been revoked since.
    pub(crate) was_kept: bool,
}

/// Why no request may go to the token server that a registry names.
#[derive(Debug, thiserror::Error)]
pub enum RealmError {
    /// Its realm is not a URL.
    #[error("its token realm is not a URL: {0}")]
    Syntax(#[from] url::ParseError),
    /// The realm is less safe than the registry itself.
    #[error("its token realm {0}")]
    Refused(String),
}

impl From<RealmError> for String {
    fn from(error: RealmError) -> Self {
        error.to_string()
    }
}

#[derive(Deserialize)]
struct TokenReply {
    token: Option<Secret>,
    access_token: Option<Secret>,
    #[serde(default)]
    expires_in: ExpiresIn,
}

impl Purpose {
    /// Reads a challenge. The realm comes from a registry's answer and may receive the credential. So it must use https and
    /// have no inner address, unless it is the registry's own host.
    ///
    /// # Errors
    /// When no request may go to the realm.
    pub fn check(
        realm: &str,
        service: Option<String>,
        scope: String,
        registry: &Url,
        allows: impl Fn(IpAddr) -> bool,
    ) -> Result<Self, RealmError> {
        let realm = Url::parse(realm)?;
        check_link(&realm, registry, allows).map_err(RealmError::Refused)?;
        let is_elsewhere = realm.host() != registry.host();
        Ok(Self { realm, service, scope, is_elsewhere })
    }

    fn key(&self, credential: Option<&RegistryCredential>) -> TokenKey {
        let mut hash = Sha256::new();
        for part in [self.realm.as_str(), self.service.as_deref().unwrap_or_default(), &self.scope] {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        hash.update(credential.map(RegistryCredential::fingerprint).unwrap_or_default());
        hash.finalize().into()
    }
}

impl RegistryTokens {
    /// A valid token. Buys one if there is none, on the rate limit of `account`.
    ///
    /// # Errors
    /// When the token server sells none.
    pub(crate) async fn get(
        &self,
        purpose: Purpose,
        credential: Option<RegistryCredential>,
        account: Option<Arc<str>>,
        client: &Arc<HttpClient>,
        deadline: Instant,
    ) -> Result<TokenPass, BackendError> {
        let key = purpose.key(credential.as_ref());
        let kept = || kept(&self.kept, &key);
        if let Some(authorization) = kept() {
            return Ok(TokenPass { authorization, was_kept: true });
        }
        let fetch = || {
            let (client, keep) = (Arc::clone(client), Arc::clone(&self.kept));
            let (purpose, credential, account) = (purpose.clone(), credential.clone(), account.clone());
            let work = move |seat: FlightGuard<_, _, _>| async move {
                let bought = buy(&purpose, credential.as_ref(), account, &client, deadline).await;
                let bought = bought.map_err(|error| error.within("token server"));
                seat.finish(|_| {
                    let (authorization, lasts) = bought?;
                    let mut keep = keep.lock();
                    let now = Instant::now();
                    keep.retain(|_, token| token.renew_at > now);
                    // Some time before its end, so that a token does not end while a request is on its way.
                    let token = Token { authorization: authorization.clone(), renew_at: now + lasts.mul_f64(0.8) };
                    keep.insert(key, token);
                    Ok(authorization)
                })
            };
            self.flights.join(key, || kept().map(Ok), || (), work)
        };
        Ok(TokenPass { authorization: wait(fetch, deadline).await?, was_kept: false })
    }

    /// Drops the token for `purpose`, unless it is already another one than `refused`.
    pub(crate) fn forget(&self, purpose: &Purpose, credential: Option<&RegistryCredential>, refused: &HeaderValue) {
        let mut kept = self.kept.lock();
        let key = purpose.key(credential);
        if kept.get(&key).is_some_and(|token| token.authorization == *refused) {
            kept.remove(&key);
        }
    }
}

fn kept(kept: &Mutex<HashMap<TokenKey, Token>>, key: &TokenKey) -> Option<HeaderValue> {
    let kept = kept.lock();
    let token = kept.get(key).filter(|token| token.renew_at > Instant::now())?;
    Some(token.authorization.clone())
}

async fn buy(
    purpose: &Purpose,
    credential: Option<&RegistryCredential>,
    account: Option<Arc<str>>,
    client: &HttpClient,
    deadline: Instant,
) -> Result<(HeaderValue, Duration), BackendError> {
    let call = Call::get(purpose.realm.clone(), MAX_REPLY_BYTES, deadline);
    let call = Call { is_led: purpose.is_elsewhere, account, ..call };
    let service = purpose.service.iter().map(|service| ("service", service.as_str()));
    let mut secret = None;
    let call = match credential {
        Some(RegistryCredential::Identity(token)) => {
            let with = [("grant_type", "refresh_token"), ("client_id", "appset-gateway")];
            let form =
                service.chain([("scope", &*purpose.scope)]).chain(with).chain([("refresh_token", token.expose())]);
            let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            secret = Some(token.clone());
            let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
            Call { method: Method::POST, headers, body: Some(body.into()), ..call }
        }
        Some(RegistryCredential::Password { .. }) | None => {
            let mut call = call;
            // Several scopes are several parameters here, and one parameter above.
            let scopes = purpose.scope.split_ascii_whitespace().map(|scope| ("scope", scope));
            call.url.query_pairs_mut().extend_pairs(service).extend_pairs(scopes);
            if let Some(basic) = credential.and_then(RegistryCredential::basic) {
                call.headers.insert(header::AUTHORIZATION, sensitive(basic.expose())?);
            }
            call
        }
    };
    let mut reply = client.fetch(call).await?;
    if let Some(secret) = secret {
        reply.secrets.push(secret);
    }
    // OAuth 2.0's `invalid_grant` is a 400, as is an expired credential at ECR Public.
    if reply.status.as_u16() == 400 && credential.is_some() {
        let why = format!("it refuses the credential (400): {}", reply.excerpt(200));
        return Err(BackendError::new(ErrorKind::Denied, why));
    }
    if reply.status.as_u16() != 200 {
        return Err(reply.refusal());
    }
    let wrong = || BackendError::invalid_output("its answer holds no token");
    let token_reply: TokenReply = serde_json::from_slice(&reply.body).map_err(|_| wrong())?;
    let mut all = [token_reply.token, token_reply.access_token].into_iter().flatten();
    let token = all.find(|token| !token.expose().is_empty()).ok_or_else(wrong)?;
    let lasts = token_reply.expires_in.time().map_err(BackendError::invalid_output)?;
    let lasts = lasts.unwrap_or(TOKEN_LIFE).clamp(SHORTEST_LIFE, LONGEST_LIFE);
    Ok((sensitive(&format!("Bearer {}", token.expose()))?, lasts))
}

/// `value` as a header that is never printed.
///
/// # Errors
/// When no header can carry it.
pub(super) fn sensitive(value: &str) -> Result<HeaderValue, BackendError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| {
        BackendError::new(ErrorKind::Denied, "the credential holds characters that no header can carry")
    })?;
    value.set_sensitive(true);
    Ok(value)
}
