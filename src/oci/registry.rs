//! Asking a registry for a manifest's digest: `HEAD`, with the token flow where the registry wants it.
//!
//! Three answers, kept apart (invariant I2): the digest, *missing* (a 404 of the registry itself), and
//! everything else, which is an error.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Digest, Reference, challenge::Challenge, credentials::Credential, reference::is_registry};
use crate::{
    base_dir::BaseDir,
    document::excerpt,
    error::{BackendError, ErrorKind},
    outbound::{Call, Line, Outbound, Reply, Terms},
    problem::{Path, Problems},
    secret::Secret,
};

/// Every manifest kind that an image reference may lead to.
const ACCEPT: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                      application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
const DIGEST: &str = "docker-content-digest";
/// The largest manifest that is fetched when a registry names no digest, in bytes.
const MOST: usize = 4 * 1024 * 1024;
/// A token's life when its server names none, in seconds (the distribution project's token specification).
const TOKEN_LIFE: u64 = 60;

/// How one registry is reached.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RegistryConfig {
    /// Speak `http://` instead of `https://`. For a registry on a trusted network only.
    pub plain_http: bool,
    /// A Docker `config.json` with the credential, relative to the configuration file. Without it the
    /// registry is asked anonymously.
    pub docker_config: Option<PathBuf>,
}

/// The registries that are configured, and what is known of each.
#[derive(Debug)]
pub struct Registries {
    line: Option<Arc<Line>>,
    configured: HashMap<String, RegistryConfig>,
    tokens: Mutex<HashMap<(String, String), Token>>,
}

#[derive(Debug, Clone)]
struct Token {
    authorization: HeaderValue,
    renew_at: Instant,
}

#[derive(Deserialize)]
struct TokenReply {
    token: Option<String>,
    access_token: Option<String>,
    expires_in: Option<u64>,
}

impl Registries {
    /// Checks and keeps the `registries` of a configuration.
    pub fn build(
        config: &BTreeMap<String, RegistryConfig>,
        base: &BaseDir,
        outbound: &Outbound,
        path: &Path,
        problems: &mut Problems,
    ) -> Self {
        let mut configured = HashMap::new();
        for (host, registry) in config {
            let path = path.key(host);
            if !is_registry(host) {
                problems.error_with_help(
                    &path,
                    format!("`{host}` is not a registry's host"),
                    "write the host and port as they stand in image references, such as `registry.example.com:5000`",
                );
            }
            let mut registry = registry.clone();
            if let Some(file) = &mut registry.docker_config {
                *file = base.resolve(&*file);
                let path = path.key("dockerConfig");
                if let Some(None) = problems.note(&path, Credential::find(file, host)) {
                    problems.warning(
                        &path,
                        format!("the file holds no user and password for `{host}`, which is then asked anonymously"),
                        "log in to it with `docker login`; credential helpers are not asked",
                    );
                }
            }
            configured.insert(host.clone(), registry);
        }
        let line = problems.note(path, outbound.line(Terms::default()));
        Self { line, configured, tokens: Mutex::default() }
    }

    /// The digest that `reference` stands for now; `None` when the registry says that it has no such
    /// manifest.
    ///
    /// # Errors
    /// When the registry gives no clear answer by `deadline`.
    pub async fn digest(&self, reference: &Reference, deadline: Instant) -> Result<Option<Digest>, BackendError> {
        self.look_up(reference, deadline)
            .await
            .map_err(|error| error.within(format_args!("registry {}", reference.registry)))
    }

    /// A `HEAD` where it tells enough, else a `GET`: `Docker-Content-Digest` is only a SHOULD in the
    /// distribution specification 1.1, and a `HEAD`'s 404 has no body that shows who sent it.
    async fn look_up(&self, reference: &Reference, deadline: Instant) -> Result<Option<Digest>, BackendError> {
        let head = self.ask(Method::HEAD, reference, deadline).await?;
        match head.status {
            StatusCode::OK => {
                if let Some(value) = head.headers.get(DIGEST) {
                    return parse_digest(value).map(Some);
                }
            }
            StatusCode::NOT_FOUND => {}
            _ => return Err(head.refusal()),
        }
        let reply = self.ask(Method::GET, reference, deadline).await?;
        match reply.status {
            StatusCode::OK => vouched_for(&reply).map(Some),
            StatusCode::NOT_FOUND if denies_the_manifest(&reply) => Ok(None),
            StatusCode::NOT_FOUND => Err(BackendError::invalid_output(
                "404 Not Found, but not in the words of a registry that has no such manifest, so it proves nothing; is a \
                 proxy in front of it?",
            )),
            _ => Err(reply.refusal()),
        }
    }

    async fn ask(&self, method: Method, reference: &Reference, deadline: Instant) -> Result<Reply, BackendError> {
        let known = self.token(reference);
        let reply = self.send(method.clone(), reference, known, deadline).await?;
        if reply.status != StatusCode::UNAUTHORIZED {
            return Ok(reply);
        }
        let authorization = self.authorize(&reply, reference, deadline).await?;
        self.send(method, reference, Some(authorization), deadline).await
    }

    async fn send(
        &self,
        method: Method,
        reference: &Reference,
        authorization: Option<HeaderValue>,
        deadline: Instant,
    ) -> Result<Reply, BackendError> {
        let scheme = if self.is_plain(&reference.registry) { "http" } else { "https" };
        let host = if reference.registry == "docker.io" { "registry-1.docker.io" } else { &reference.registry };
        let url = format!("{scheme}://{host}/v2/{}/manifests/{}", reference.repository, reference.selector());
        let url = Url::parse(&url).map_err(|error| BackendError::invalid_input(format!("{url}: {error}")))?;
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static(ACCEPT));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(authorization.map(|value| (header::AUTHORIZATION, value)));
        self.fetch(Call { method, headers, ..Call::get(url, MOST, deadline) }).await
    }

    /// What to send after the refusal `refused`: parsed from that very answer, as the scope depends on it.
    async fn authorize(
        &self,
        refused: &Reply,
        reference: &Reference,
        deadline: Instant,
    ) -> Result<HeaderValue, BackendError> {
        let denied =
            |why: String| BackendError::new(ErrorKind::Denied, format!("registry {}: {why}", reference.registry));
        let challenge = refused
            .headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .find_map(|value| Challenge::parse(value.to_str().ok()?))
            .ok_or_else(|| denied("401 without a challenge that is understood (Basic or Bearer)".into()))?;
        let credential = self.credential(&reference.registry)?;
        match challenge {
            Challenge::Basic => {
                let credential = credential.ok_or_else(|| {
                    denied("it wants a user name and password; set `dockerConfig` for it under `registries`".into())
                })?;
                let value = sensitive(credential.basic().expose())?;
                self.keep(reference, value.clone(), Duration::from_secs(TOKEN_LIFE));
                Ok(value)
            }
            Challenge::Bearer { realm, service, scope } => {
                let url = self.token_url(&realm, service.as_deref(), scope.as_deref(), reference).map_err(denied)?;
                let (token, life) = self.fetch_token(url, credential.as_ref(), deadline).await?;
                let value = sensitive(&format!("Bearer {token}"))?;
                self.keep(reference, value.clone(), life);
                Ok(value)
            }
        }
    }

    /// The token server's URL. The realm comes from the registry's answer and may receive our
    /// credential, so it must be https, unless the registry itself is configured as plain http.
    fn token_url(
        &self,
        realm: &str,
        service: Option<&str>,
        scope: Option<&str>,
        reference: &Reference,
    ) -> Result<Url, String> {
        let mut url = Url::parse(realm).map_err(|error| format!("its token realm is not a URL: {error}"))?;
        let is_allowed = url.scheme() == "https" || (url.scheme() == "http" && self.is_plain(&reference.registry));
        if !is_allowed || url.host().is_none() || !url.username().is_empty() {
            return Err(format!("its token realm `{}` is not https", url.scheme()));
        }
        let scope = scope.map_or_else(|| format!("repository:{}:pull", reference.repository), str::to_owned);
        url.query_pairs_mut().extend_pairs(service.map(|service| ("service", service))).append_pair("scope", &scope);
        Ok(url)
    }

    async fn fetch_token(
        &self,
        url: Url,
        credential: Option<&Credential>,
        deadline: Instant,
    ) -> Result<(String, Duration), BackendError> {
        let mut headers = HeaderMap::new();
        if let Some(credential) = credential {
            headers.insert(header::AUTHORIZATION, sensitive(credential.basic().expose())?);
        }
        let call = Call { headers, ..Call::get(url, MOST, deadline) };
        let reply = self.fetch(call).await.map_err(|error| error.within("token server"))?;
        if reply.status != StatusCode::OK {
            return Err(reply.refusal().within("token server"));
        }
        let wrong = || BackendError::invalid_output("token server: its answer holds no token");
        let parsed: TokenReply = serde_json::from_slice(&reply.body).map_err(|_| wrong())?;
        let token = parsed.token.or(parsed.access_token).filter(|token| !token.is_empty()).ok_or_else(wrong)?;
        let life = parsed.expires_in.unwrap_or(TOKEN_LIFE).clamp(1, 3600);
        Ok((token, Duration::from_secs(life)))
    }

    async fn fetch(&self, call: Call) -> Result<Reply, BackendError> {
        let line = self.line.as_ref().ok_or_else(|| BackendError::unavailable("there is no way out"))?;
        line.fetch(call).await
    }

    fn credential(&self, registry: &str) -> Result<Option<Credential>, BackendError> {
        let file = self.configured.get(registry).and_then(|config| config.docker_config.as_deref());
        file.map_or(Ok(None), |file| Credential::find(file, registry))
    }

    fn is_plain(&self, registry: &str) -> bool {
        self.configured.get(registry).is_some_and(|config| config.plain_http)
    }

    fn token(&self, reference: &Reference) -> Option<HeaderValue> {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (reference.registry.clone(), reference.repository.clone());
        if tokens.get(&key).is_some_and(|token| token.renew_at <= Instant::now()) {
            tokens.remove(&key);
        }
        tokens.get(&key).map(|token| token.authorization.clone())
    }

    /// Keeps what opened `reference`'s repository for 80 % of its life.
    fn keep(&self, reference: &Reference, authorization: HeaderValue, life: Duration) {
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        tokens.retain(|_, token| token.renew_at > now);
        let key = (reference.registry.clone(), reference.repository.clone());
        tokens.insert(key, Token { authorization, renew_at: now + life.mul_f64(0.8) });
    }
}

/// Whether a registry says, and says nothing else than, that there is no such manifest: by the error body
/// of the distribution specification 1.1, "Error Codes". `NOT_FOUND` is Harbor's word. A 404 by itself proves
/// nothing: proxies send it too.
fn denies_the_manifest(reply: &Reply) -> bool {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Code>,
    }
    #[derive(Deserialize)]
    struct Code {
        code: String,
    }
    let denies = |error: &Code| matches!(&*error.code, "MANIFEST_UNKNOWN" | "NAME_UNKNOWN" | "NOT_FOUND");
    serde_json::from_slice::<Errors>(&reply.body)
        .is_ok_and(|body| !body.errors.is_empty() && body.errors.iter().all(denies))
}

/// The digest of a manifest that was fetched whole, which a sign-in page or a cut body is not.
fn vouched_for(reply: &Reply) -> Result<Digest, BackendError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Manifest {
        schema_version: u32,
    }
    let wrong = |why: String| BackendError::invalid_output(format!("it answered {}, but {why}", reply.status));
    let kind = reply.headers.get(header::CONTENT_TYPE).map_or_else(Default::default, HeaderValue::as_bytes);
    let kind = String::from_utf8_lossy(kind);
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !ACCEPT.split(", ").any(|known| known.eq_ignore_ascii_case(essence)) {
        return Err(wrong(format!(
            "`{}` is not a manifest's content type: {}",
            excerpt(kind.as_bytes(), 80),
            reply.excerpt(120)
        )));
    }
    let parsed =
        serde_json::from_slice::<Manifest>(&reply.body).map_err(|error| wrong(format!("no manifest: {error}")))?;
    if parsed.schema_version != 2 {
        return Err(wrong(format!("a manifest of version {}, not 2", parsed.schema_version)));
    }
    let digest = Digest::of(&reply.body);
    match reply.headers.get(DIGEST).map(parse_digest).transpose()? {
        Some(told) if told != digest => {
            Err(wrong(format!("the body's digest is {digest}, not the {told} of its header")))
        }
        _ => Ok(digest),
    }
}

fn parse_digest(value: &HeaderValue) -> Result<Digest, BackendError> {
    let text = excerpt(value.as_bytes(), 200);
    Digest::parse(&text).map_err(|error| BackendError::invalid_output(format!("Docker-Content-Digest: {error}")))
}

fn sensitive(value: &str) -> Result<HeaderValue, BackendError> {
    let secret = Secret::from(value.to_owned());
    let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| {
        BackendError::new(ErrorKind::Denied, "the credential holds characters that no header can carry")
    })?;
    value.set_sensitive(true);
    Ok(value)
}
