//! One registry: its host, the credential for it, and how it is asked. Source: OCI distribution specification 1.1, and the
//! distribution project's authentication, which all registries support.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, header};
use parking_lot::Mutex;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    challenge::Challenge,
    credentials::{Credentials, RegistryCredential},
    manifest,
    token::{Purpose, RegistryTokens, TokenPass, sensitive},
};
use crate::{
    bounded_cache::Recent,
    clients::outbound::{Call, HttpClient, Reply, check_link},
    domain::error::{BackendError, ErrorKind},
};

/// The largest answer, in bytes.
const MAX_REPLY_BYTES: usize = 4 * 1024 * 1024;
/// How many redirects are followed for one blob.
const MAX_REDIRECTS: usize = 3;
/// For how many repositories the challenge is remembered.
const MAX_CHALLENGES: usize = 10_000;

/// Whether a 404 to a `HEAD` is accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Confirm404 {
    /// A `GET` must confirm it with a registry's error body.
    #[default]
    Get,
    /// It is accepted if the header `Docker-Distribution-Api-Version` shows that the registry itself sent it. That saves one
    /// request for each missing tag.
    Head,
}

/// What a registry's answers mean.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RegistryRules {
    pub(crate) confirm_404: Confirm404,
    pub(crate) denied_means_missing: bool,
}

/// A registry, and what is known of it.
#[derive(Debug)]
pub(super) struct Registry {
    /// Its name in image references.
    pub(crate) name: String,
    /// What its answers mean.
    pub(crate) rules: RegistryRules,
    base: Url,
    client: Arc<HttpClient>,
    credentials: Credentials,
    /// The challenge for each scope, since its first 401.
    challenges: Recent<String, Challenge>,
    tokens: RegistryTokens,
    /// Whether it has a referrers API.
    pub(super) referrers_api: ReferrersApi,
}

/// What is known of a registry's referrers API.
#[derive(Debug, Default)]
pub(super) struct ReferrersApi(Mutex<Option<Instant>>);

impl ReferrersApi {
    /// Whether it is remembered that there is none.
    pub(super) fn is_lacking(&self) -> bool {
        self.0.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Remembers for the time `lasts` that there is none.
    pub(super) fn lacks_for(&self, lasts: Duration) {
        *self.0.lock() = Some(Instant::now() + lasts);
    }

    /// Forgets that.
    pub(super) fn forget(&self) {
        *self.0.lock() = None;
    }
}

/// One request to a registry.
#[derive(Debug, Clone)]
pub(super) struct RegistryRequest<'a> {
    /// `HEAD` or `GET`.
    pub(crate) method: Method,
    /// The repository. Empty for the catalogue.
    pub(crate) repository: &'a str,
    /// The path after `/v2/<name>/`, or after `/v2/` for the catalogue.
    pub(crate) path: &'a str,
    /// The query, if there is one.
    pub(crate) query: Option<&'a str>,
}

impl RegistryRequest<'_> {
    /// The rights that a token needs (token specification, "Requesting a Token").
    fn scope(&self) -> String {
        if self.repository.is_empty() {
            "registry:catalog:*".to_owned()
        } else {
            format!("repository:{}:pull", self.repository)
        }
    }
}

impl Registry {
    /// A registry at `base` that has not been asked yet.
    pub(crate) fn new(
        name: String,
        base: Url,
        client: Arc<HttpClient>,
        credentials: Credentials,
        rules: RegistryRules,
    ) -> Self {
        let challenges = Recent::new(MAX_CHALLENGES);
        let (tokens, referrers_api) = (RegistryTokens::default(), ReferrersApi::default());
        Self { name, rules, base, client, credentials, challenges, tokens, referrers_api }
    }

    /// Sends a request, and buys a token if the registry wants one. A remembered credential or token that is refused is renewed
    /// once.
    ///
    /// # Errors
    /// When no whole answer arrives by `deadline`. Any status is an answer.
    pub(crate) async fn ask(&self, question: &RegistryRequest<'_>, deadline: Instant) -> Result<Reply, BackendError> {
        let (repository, scope) = (question.repository, question.scope());
        let mut credential = self.credentials.find(&self.name, repository, false).await?;
        let known = self.challenges.get(&scope);
        let (challenge, pass, reply) = if let Some(challenge) = known {
            let pass = self.open(&challenge, question, &mut credential, deadline).await;
            // The token server may have moved. The next request goes without a token, and learns the new challenge.
            let pass = pass.inspect_err(|_| _ = self.challenges.remove(&scope))?;
            let reply = self.send(question, Some(&pass), credential.as_ref(), deadline).await?;
            (challenge, pass, reply)
        } else {
            let reply = self.send(question, None, credential.as_ref(), deadline).await?;
            if reply.status.as_u16() != 401 {
                return Ok(reply);
            }
            let challenge = challenge_of(&reply).ok_or_else(|| {
                let why = "401 without a challenge that is understood (Basic or Bearer)";
                BackendError::new(ErrorKind::Denied, why)
            })?;
            let pass = self.open(&challenge, question, &mut credential, deadline).await?;
            self.challenges.insert(scope.clone(), challenge.clone());
            let reply = self.send(question, Some(&pass), credential.as_ref(), deadline).await?;
            (challenge, pass, reply)
        };
        // An expired credential is a 403 without a challenge at ECR, and a 400 at ECR Public.
        if !matches!(reply.status.as_u16(), 400 | 401 | 403) {
            return Ok(reply);
        }
        let next = challenge_of(&reply).unwrap_or_else(|| challenge.clone());
        let now = self.credentials.find(&self.name, repository, true).await?;
        if !pass.was_kept && next == challenge && fingerprint(now.as_ref()) == fingerprint(credential.as_ref()) {
            return Ok(reply);
        }
        if let Some(purpose) = self.purpose(&challenge, &scope)? {
            self.tokens.forget(&purpose, credential.as_ref(), &pass.authorization);
        }
        let fresh = self.authorize(&next, &scope, now.as_ref(), deadline).await?;
        self.challenges.insert(scope, next);
        if fresh.authorization == pass.authorization {
            return Ok(reply);
        }
        self.send(question, Some(&fresh), now.as_ref(), deadline).await
    }

    /// The content of `digest` in the repository. Many registries redirect to another store, which does not get the credential.
    ///
    /// # Errors
    /// When it is not read by `deadline`.
    pub(crate) async fn blob(&self, repository: &str, digest: &str, deadline: Instant) -> Result<Reply, BackendError> {
        let path = format!("blobs/{digest}");
        let question = RegistryRequest { method: Method::GET, repository, path: &path, query: None };
        let mut reply = self.ask(&question, deadline).await?;
        let mut from = self.url(&question)?;
        for _ in 0..MAX_REDIRECTS {
            if !matches!(reply.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                break;
            }
            let location = reply.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
            let wrong = |why: &str| BackendError::invalid_output(format!("it redirects for {digest}: {why}"));
            let to = location.and_then(|location| from.join(location).ok()).ok_or_else(|| wrong("to no URL"))?;
            check_link(&to, &self.base).map_err(|why| wrong(&format!("its URL {why}")))?;
            from = to.clone();
            let account = Some(Arc::from("anonymous"));
            reply = self.client.fetch(Call { account, ..Call::get(to, MAX_REPLY_BYTES, deadline) }).await?;
        }
        if reply.status.as_u16() == 200 { Ok(reply) } else { Err(reply.refusal()) }
    }

    /// Whether little is left of the registry's rate limit.
    pub(crate) async fn is_low(&self, repository: &str) -> bool {
        let credential = self.credentials.find(&self.name, repository, false).await.ok().flatten();
        self.client.is_low(&self.base, &self.account(credential.as_ref()))
    }

    /// The URL of a request.
    pub(crate) fn url(&self, question: &RegistryRequest<'_>) -> Result<Url, BackendError> {
        let RegistryRequest { repository, path, .. } = question;
        let path = if repository.is_empty() { format!("v2/{path}") } else { format!("v2/{repository}/{path}") };
        let mut url = self
            .base
            .join(&path)
            .map_err(|error| BackendError::invalid_input(format!("{}{path}: {error}", self.base)))?;
        url.set_query(question.query);
        Ok(url)
    }

    async fn send(
        &self,
        question: &RegistryRequest<'_>,
        pass: Option<&TokenPass>,
        credential: Option<&RegistryCredential>,
        deadline: Instant,
    ) -> Result<Reply, BackendError> {
        let mut headers = HeaderMap::new();
        if question.path.starts_with("manifests/") {
            headers.insert(header::ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        } else if question.path.starts_with("referrers/") {
            headers.insert(header::ACCEPT, HeaderValue::from_static(manifest::INDEX));
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(pass.map(|pass| (header::AUTHORIZATION, pass.authorization.clone())));
        let (method, account) = (question.method.clone(), Some(self.account(credential)));
        let url = self.url(question)?;
        self.client.fetch(Call { method, headers, account, ..Call::get(url, MAX_REPLY_BYTES, deadline) }).await
    }

    /// The header for `challenge`. If `credential` is refused, its source is read again, and the new credential replaces it.
    async fn open(
        &self,
        challenge: &Challenge,
        question: &RegistryRequest<'_>,
        credential: &mut Option<RegistryCredential>,
        deadline: Instant,
    ) -> Result<TokenPass, BackendError> {
        let scope = question.scope();
        let refusal = match self.authorize(challenge, &scope, credential.as_ref(), deadline).await {
            Err(error) if error.kind == ErrorKind::Denied => error,
            result => return result,
        };
        let now = self.credentials.find(&self.name, question.repository, true).await?;
        if fingerprint(now.as_ref()) == fingerprint(credential.as_ref()) {
            return Err(refusal);
        }
        *credential = now;
        self.authorize(challenge, &scope, credential.as_ref(), deadline).await
    }

    /// The header for `challenge` with `credential`.
    async fn authorize(
        &self,
        challenge: &Challenge,
        scope: &str,
        credential: Option<&RegistryCredential>,
        deadline: Instant,
    ) -> Result<TokenPass, BackendError> {
        let denied = |why: String| BackendError::new(ErrorKind::Denied, why);
        let Some(purpose) = self.purpose(challenge, scope)? else {
            let basic = credential.and_then(RegistryCredential::basic).ok_or_else(|| {
                denied("it wants a user name and password; set `dockerConfig` for it under `registries`".to_owned())
            })?;
            return Ok(TokenPass { authorization: sensitive(basic.expose())?, was_kept: false });
        };
        self.tokens.get(purpose, credential.cloned(), &self.client, deadline).await
    }

    /// The token to buy. `None` where no token is wanted.
    fn purpose(&self, challenge: &Challenge, scope: &str) -> Result<Option<Purpose>, BackendError> {
        let Challenge::Bearer { realm, service, scope: stated } = challenge else { return Ok(None) };
        let scope = stated.clone().unwrap_or_else(|| scope.to_owned());
        let purpose = Purpose::check(realm, service.clone(), scope, &self.base);
        purpose.map(Some).map_err(|why| BackendError::new(ErrorKind::Denied, why))
    }

    fn account(&self, credential: Option<&RegistryCredential>) -> Arc<str> {
        let user = match credential {
            Some(RegistryCredential::Password { username, .. }) => username.as_str(),
            Some(RegistryCredential::Identity(_)) => "<identity>",
            None => "<anonymous>",
        };
        format!("{} {user}", self.name).into()
    }
}

fn fingerprint(credential: Option<&RegistryCredential>) -> Option<[u8; 32]> {
    credential.map(RegistryCredential::fingerprint)
}

/// The challenge in `reply`. It is read from each answer, since the scope depends on it.
fn challenge_of(reply: &Reply) -> Option<Challenge> {
    reply.headers.get_all(header::WWW_AUTHENTICATE).iter().find_map(|value| Challenge::parse(value.to_str().ok()?))
}
