//! One registry: its host, the credential for it, and the requests to it. Source: OCI distribution specification 1.1, and the
//! distribution project's authentication, which all registries support.

mod authorized;
mod redirected;

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
    token::{RegistryTokens, TokenPass},
};
use domain::{bounded_cache::Recent, error::BackendError};
use outbound::{Call, HttpClient, Reply};

/// The largest answer, in bytes.
const MAX_REPLY_BYTES: usize = 4 * 1024 * 1024;
/// How long finding out which account is used may take.
const ACCOUNT_WAIT: Duration = Duration::from_secs(2);
/// For how many repositories the challenge is remembered.
const MAX_CHALLENGES: usize = 10_000;

/// Whether a 404 to a `HEAD` is accepted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Confirm404 {
    /// A `GET` must confirm it with a registry's error body.
    #[default]
    Get,
    /// It is accepted if the header `Docker-Distribution-Api-Version` shows that the registry itself sent it. That saves one
    /// request for each missing tag.
    Head,
}

/// How a registry's answers are read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RegistryRules {
    pub(crate) confirm_404: Confirm404,
    pub(crate) denied_means_missing: bool,
}

/// A registry, and the state that is remembered for it.
#[derive(Debug)]
pub(super) struct Registry {
    /// Its name in image references.
    pub name: String,
    /// How its answers are read.
    pub rules: RegistryRules,
    base: Url,
    client: Arc<HttpClient>,
    credentials: Credentials,
    /// The challenge for each scope, since its first 401.
    challenges: Recent<String, Challenge>,
    tokens: RegistryTokens,
    /// Whether it has a referrers API.
    pub(super) referrers_api: ReferrersApi,
}

/// Whether a registry lacks the referrers API.
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
    pub method: Method,
    /// The repository. Empty for the catalogue.
    pub repository: &'a str,
    /// The path after `/v2/<name>/`, or after `/v2/` for the catalogue.
    pub path: &'a str,
    /// The query, if there is one.
    pub query: Option<&'a str>,
    /// The URL, if the registry itself named it. Path and query then do not count.
    pub url: Option<&'a Url>,
}

impl RegistryRequest<'_> {
    /// The path of the catalogue of repositories.
    pub(super) const CATALOGUE: &'static str = "_catalog";

    /// Whether it is for the catalogue of repositories.
    fn is_catalogue(&self) -> bool {
        self.repository.is_empty() && self.path == Self::CATALOGUE
    }

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
    /// A registry at `base`, to which no request has been sent yet.
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

    /// Gets the credential that a request needs.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn log_in(&self, deadline: Instant) -> Result<(), BackendError> {
        self.credentials.find(&self.name, "", false, deadline).await.map(drop)
    }

    /// Whether little is left of the registry's rate limit.
    pub(crate) async fn is_low(&self, repository: &str) -> bool {
        let soon = Instant::now() + ACCOUNT_WAIT;
        let credential = self.credentials.find(&self.name, repository, false, soon).await.ok().flatten();
        self.client.is_low(&self.base, &self.account(credential.as_ref()))
    }

    /// The URL of a request.
    pub(crate) fn url(&self, request: &RegistryRequest<'_>) -> Result<Url, BackendError> {
        let RegistryRequest { repository, path, .. } = request;
        if let Some(url) = request.url {
            return Ok(url.clone());
        }
        let path = if repository.is_empty() { format!("v2/{path}") } else { format!("v2/{repository}/{path}") };
        let mut url = self
            .base
            .join(&path)
            .map_err(|error| BackendError::invalid_input(format!("{}{path}: {error}", self.base)))?;
        url.set_query(request.query);
        Ok(url)
    }

    async fn send(
        &self,
        request: &RegistryRequest<'_>,
        pass: Option<&TokenPass>,
        credential: Option<&RegistryCredential>,
        deadline: Instant,
    ) -> Result<Reply, BackendError> {
        let mut headers = HeaderMap::new();
        if request.path.starts_with("manifests/") {
            headers.insert(header::ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        } else if request.path.starts_with("referrers/") {
            headers.insert(header::ACCEPT, HeaderValue::from_static(manifest::INDEX));
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(pass.map(|pass| (header::AUTHORIZATION, pass.authorization.clone())));
        let (method, account) = (request.method.clone(), Some(self.account(credential)));
        let url = self.url(request)?;
        let call = Call::get(url, MAX_REPLY_BYTES, deadline).led_from(&self.base);
        self.client.fetch(Call { method, headers, account, ..call }).await
    }

    /// Whose rate limit counts for requests with `credential`.
    fn account(&self, credential: Option<&RegistryCredential>) -> Arc<str> {
        let of_identity = self.credentials.account();
        let user = match credential {
            Some(_) if of_identity.is_some() => of_identity.as_deref().unwrap_or_default(),
            Some(RegistryCredential::Password { username, .. }) => username.as_str(),
            Some(RegistryCredential::Identity(_)) => "<identity>",
            None => "<anonymous>",
        };
        format!("{} {user}", self.name).into()
    }
}
