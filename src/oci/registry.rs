//! One registry: where it is, who we are there, and how it is asked. Source: OCI distribution specification 1.1, and the
//! distribution project's authentication, which all registries speak.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Url;
use tokio::time::Instant;

use super::{
    challenge::Challenge,
    config::Rules,
    credentials::{Credential, Credentials},
    manifest,
    token::{Purpose, Tokens, check_elsewhere, sensitive},
};
use crate::{
    error::{BackendError, ErrorKind},
    outbound::{Call, Line, Reply},
};

/// The largest answer that is read, in bytes.
const MOST: usize = 4 * 1024 * 1024;
/// How often a registry may send us elsewhere for one blob.
const MOST_REDIRECTS: usize = 3;

/// A registry and what is known of it.
#[derive(Debug)]
pub(super) struct Registry {
    /// Its name, as it stands in image references.
    pub name: String,
    /// What it means by its answers.
    pub rules: Rules,
    base: Url,
    line: Arc<Line>,
    credentials: Credentials,
    /// How each scope has to be asked for, since its first refusal.
    challenges: Mutex<HashMap<String, Challenge>>,
    tokens: Tokens,
}

/// One request to a registry.
#[derive(Debug, Clone)]
pub(super) struct Question<'a> {
    /// `HEAD` or `GET`.
    pub method: Method,
    /// The repository that is asked about; empty for the catalogue.
    pub repository: &'a str,
    /// What follows `/v2/<name>/`, or `/v2/` for the catalogue.
    pub path: &'a str,
    /// The query, if there is one.
    pub query: Option<&'a str>,
}

impl Question<'_> {
    /// What a token must allow (token specification, "Requesting a Token").
    fn scope(&self) -> String {
        if self.repository.is_empty() {
            "registry:catalog:*".to_owned()
        } else {
            format!("repository:{}:pull", self.repository)
        }
    }
}

impl Registry {
    /// A registry that has not been asked yet, at `base`.
    pub fn new(name: String, base: Url, line: Arc<Line>, credentials: Credentials, rules: Rules) -> Self {
        Self { name, rules, base, line, credentials, challenges: Mutex::default(), tokens: Tokens::default() }
    }

    /// Asks, with the token flow where the registry wants it. A credential or a token that is refused is renewed once.
    ///
    /// # Errors
    /// When no whole answer arrives by `deadline`; any status is an answer.
    pub async fn ask(&self, question: &Question<'_>, deadline: Instant) -> Result<Reply, BackendError> {
        let repository = question.repository;
        let credential = self.credentials.find(&self.name, repository, false).await?;
        let account = self.account(credential.as_ref());
        let scope = question.scope();
        let known = self.challenges.lock().unwrap_or_else(PoisonError::into_inner).get(&scope).cloned();
        let sent = match &known {
            Some(challenge) => Some(self.authorize(challenge, &scope, credential.clone(), deadline).await?),
            None => None,
        };
        let reply = self.send(question, sent.clone(), &account, deadline).await?;
        let status = reply.status.as_u16();
        // Expired credentials are a 403 without a challenge at ECR, and a 400 at ECR Public.
        if status != 401 && !(sent.is_some() && matches!(status, 400 | 403)) {
            return Ok(reply);
        }
        let challenge = challenge_of(&reply).or(known);
        let challenge = challenge.ok_or_else(|| {
            let why = "401 without a challenge that is understood (Basic or Bearer)";
            BackendError::new(ErrorKind::Denied, why)
        })?;
        let credential = if sent.is_some() {
            if let Some(purpose) = self.purpose(&challenge, &scope)? {
                self.tokens.forget(&purpose, credential.as_ref());
            }
            self.credentials.find(&self.name, repository, true).await?
        } else {
            credential
        };
        let fresh = self.authorize(&challenge, &scope, credential, deadline).await?;
        self.challenges.lock().unwrap_or_else(PoisonError::into_inner).insert(scope, challenge);
        if sent.as_ref() == Some(&fresh) {
            return Ok(reply);
        }
        self.send(question, Some(fresh), &account, deadline).await
    }

    /// The content that `digest` names in the repository, wherever the registry keeps it: many send us to a store elsewhere,
    /// which gets no credential of ours.
    ///
    /// # Errors
    /// When it cannot be had by `deadline`.
    pub async fn blob(&self, repository: &str, digest: &str, deadline: Instant) -> Result<Reply, BackendError> {
        let path = format!("blobs/{digest}");
        let question = Question { method: Method::GET, repository, path: &path, query: None };
        let mut reply = self.ask(&question, deadline).await?;
        let mut from = self.url(&question)?;
        for _ in 0..MOST_REDIRECTS {
            if !matches!(reply.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                break;
            }
            let location = reply.headers.get(header::LOCATION).and_then(|value| value.to_str().ok());
            let wrong = |why: &str| BackendError::invalid_output(format!("it sends us elsewhere for {digest}: {why}"));
            let to = location.and_then(|location| from.join(location).ok()).ok_or_else(|| wrong("to no URL"))?;
            check_elsewhere(&to, &self.base).map_err(|why| wrong(&format!("its URL {why}")))?;
            from = to.clone();
            let account = Some(Arc::from("anonymous"));
            reply = self.line.fetch(Call { account, ..Call::get(to, MOST, deadline) }).await?;
        }
        if reply.status.as_u16() == 200 { Ok(reply) } else { Err(reply.refusal()) }
    }

    /// Whether little is left of what the registry allows us.
    pub async fn is_low(&self, repository: &str) -> bool {
        let credential = self.credentials.find(&self.name, repository, false).await.ok().flatten();
        self.line.is_low(&self.base, &self.account(credential.as_ref()))
    }

    /// The URL of a question.
    pub fn url(&self, question: &Question<'_>) -> Result<Url, BackendError> {
        let Question { repository, path, .. } = question;
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
        question: &Question<'_>,
        authorization: Option<HeaderValue>,
        account: &Arc<str>,
        deadline: Instant,
    ) -> Result<Reply, BackendError> {
        let mut headers = HeaderMap::new();
        if question.path.starts_with("manifests/") {
            headers.insert(header::ACCEPT, HeaderValue::from_static(manifest::ACCEPT));
        }
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(authorization.map(|value| (header::AUTHORIZATION, value)));
        let (method, account) = (question.method.clone(), Some(Arc::clone(account)));
        let url = self.url(question)?;
        self.line.fetch(Call { method, headers, account, ..Call::get(url, MOST, deadline) }).await
    }

    /// What to send for `challenge`.
    async fn authorize(
        &self,
        challenge: &Challenge,
        scope: &str,
        credential: Option<Credential>,
        deadline: Instant,
    ) -> Result<HeaderValue, BackendError> {
        let denied = |why: String| BackendError::new(ErrorKind::Denied, why);
        let Some(purpose) = self.purpose(challenge, scope)? else {
            let basic = credential.as_ref().and_then(Credential::basic).ok_or_else(|| {
                denied("it wants a user name and password; set `dockerConfig` for it under `registries`".to_owned())
            })?;
            return sensitive(basic.expose());
        };
        self.tokens.get(purpose, credential, &self.line, deadline).await
    }

    /// What a token is to be bought for; `None` where none is wanted.
    fn purpose(&self, challenge: &Challenge, scope: &str) -> Result<Option<Purpose>, BackendError> {
        let Challenge::Bearer { realm, service, scope: told } = challenge else { return Ok(None) };
        let scope = told.clone().unwrap_or_else(|| scope.to_owned());
        let purpose = Purpose::check(realm, service.clone(), scope, &self.base);
        purpose.map(Some).map_err(|why| BackendError::new(ErrorKind::Denied, why))
    }

    fn account(&self, credential: Option<&Credential>) -> Arc<str> {
        let user = match credential {
            Some(Credential::Password { username, .. }) => username.as_str(),
            Some(Credential::Identity(_)) => "<identity>",
            None => "<anonymous>",
        };
        Arc::from(format!("{} {user}", self.name))
    }
}

/// What `reply` asks for: parsed from that very answer, as the scope depends on it.
fn challenge_of(reply: &Reply) -> Option<Challenge> {
    reply.headers.get_all(header::WWW_AUTHENTICATE).iter().find_map(|value| Challenge::parse(value.to_str().ok()?))
}
