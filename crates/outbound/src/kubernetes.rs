//! A cluster's API server: requests with the token of the gateway's own service account, which is read at each use, or with the login that a
//! document has for another cluster.

use std::{fmt, path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Url;
use tokio::time::Instant;

use crate::{
    Call, ClientError, ClientOptions, ClusterLogin, GivenTls, HttpClient, Identity, Outbound, Reply, Tls, TlsKeys,
};
use domain::{
    error::BackendError,
    file::base_dir::BaseDir,
    secret::{SecretRef, Secrets},
    section::Section,
};

/// The folder in which a pod has its service account's token and the API server's CA.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The API server's URL inside a cluster.
pub fn default_api() -> String {
    "https://kubernetes.default.svc".to_owned()
}

/// The token of a pod's service account.
pub fn default_token() -> SecretRef {
    SecretRef::File(format!("{SERVICE_ACCOUNT}/token").into())
}

/// The file with the API server's CA in a pod.
pub fn default_ca() -> PathBuf {
    format!("{SERVICE_ACCOUNT}/ca.crt").into()
}

/// A cluster's API server.
#[derive(Clone)]
pub struct ApiServer {
    url: Url,
    login: ApiLogin,
    tls: Tls,
    client: Arc<HttpClient>,
}

/// How the gateway logs in to an API server.
#[derive(Debug, Clone)]
pub enum ApiLogin {
    /// By the token of its own service account, which is read at each use.
    ServiceAccount(SecretRef, BaseDir),
    /// By this value of `Authorization`, which is sensitive.
    Header(HeaderValue),
    /// By its client certificate alone.
    Certificate,
    /// By an identity at the cluster's cloud.
    Cloud(CloudLogin),
}

/// The login of an identity at a cluster of its cloud.
#[derive(Debug, Clone)]
pub struct CloudLogin {
    /// The identity.
    pub identity: Arc<dyn Identity>,
    /// The name of the cluster at its cloud.
    pub name: Option<String>,
    /// The role to assume before.
    pub role: Option<String>,
    /// The application that the token is for.
    pub audience: Option<String>,
}

/// How an API server is reached.
#[derive(Debug)]
pub struct ApiAccess<'a> {
    /// Its URL, if that is valid.
    pub url: Option<Url>,
    /// The token of the service account.
    pub token: &'a SecretRef,
    /// The file with its CA.
    pub ca: &'a PathBuf,
    /// The most requests in flight at the same time.
    pub concurrency: usize,
}

/// A request to an API server.
#[derive(Debug)]
pub struct ApiCall<'a> {
    /// The method.
    pub method: Method,
    /// The path, in segments.
    pub path: &'a [&'a str],
    /// The query.
    pub query: &'a [(&'a str, &'a str)],
    /// The content type and the body.
    pub body: Option<(&'static str, Bytes)>,
    /// The largest answer that is read, in bytes.
    pub max_bytes: usize,
    /// When the complete answer must have arrived.
    pub deadline: Instant,
    /// As in [`Call`].
    pub recorded_as: Option<fn(&[u8]) -> Bytes>,
}

impl<'a> ApiCall<'a> {
    /// A `GET` of `path` with `query`.
    #[must_use]
    pub const fn get(
        path: &'a [&'a str],
        query: &'a [(&'a str, &'a str)],
        max_bytes: usize,
        deadline: Instant,
    ) -> Self {
        Self { method: Method::GET, path, query, body: None, max_bytes, deadline, recorded_as: None }
    }
}

impl CloudLogin {
    async fn header(&self, afresh: bool, deadline: Instant) -> Result<HeaderValue, BackendError> {
        let (name, role, audience) = (self.name.as_deref(), self.role.as_deref(), self.audience.as_deref());
        let cluster = ClusterLogin { name, role, audience };
        let token = self.identity.log_in_to_cluster(cluster, afresh, deadline).await?;
        let invalid = |_| BackendError::invalid_output("the token holds characters that no header can carry");
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(invalid)?;
        header.set_sensitive(true);
        Ok(header)
    }
}

impl ApiLogin {
    /// The value of `Authorization`, if there is one. With `afresh`, the one before was refused.
    async fn header(&self, afresh: bool, deadline: Instant) -> Result<Option<HeaderValue>, BackendError> {
        match self {
            Self::ServiceAccount(token, base) => token.header(base, "Bearer ").map(Some),
            Self::Header(header) => Ok(Some(header.clone())),
            Self::Certificate => Ok(None),
            Self::Cloud(cloud) => cloud.header(afresh, deadline).await.map(Some),
        }
    }

    /// The account for rate limits, where the credential changes and the account does not.
    fn account(&self) -> Option<Arc<str>> {
        match self {
            Self::ServiceAccount(..) => Some("service account".into()),
            Self::Cloud(cloud) => Some(cloud.identity.account()),
            Self::Header(_) | Self::Certificate => None,
        }
    }

    /// The secrets that are sent, as they are now.
    fn secrets(&self) -> Secrets {
        match self {
            Self::ServiceAccount(token, base) => token.read(base).into_iter().collect(),
            Self::Header(header) => {
                Secrets::of_headers(&HeaderMap::from_iter([(header::AUTHORIZATION, header.clone())]))
            }
            Self::Certificate => Secrets::default(),
            Self::Cloud(cloud) => cloud.identity.secrets(),
        }
    }
}

impl ApiServer {
    /// The server that `access` describes. Sends nothing. Problems are noted at the keys `token` and `ca` of `section`.
    pub fn build(access: ApiAccess<'_>, outbound: &Outbound, section: &mut Section<'_>) -> Option<Self> {
        let ApiAccess { url, token, ca, concurrency } = access;
        token.check(section.base, &section.path.key("token"), section.problems);
        let is_plain = url.as_ref().is_some_and(|url| url.scheme() == "http");
        let keys = TlsKeys { ca: Some(ca).filter(|_| !is_plain), ..TlsKeys::default() };
        let tls = keys.build(is_plain, section);
        let options = ClientOptions { tls: tls.clone(), concurrency, ..ClientOptions::default() };
        let client = section.problems.note_secret(&tls.at(&section.path), outbound.client(options));
        outbound.name_destination(url.as_ref());
        let login = ApiLogin::ServiceAccount(token.clone(), section.base.clone());
        Some(Self { url: url?, login, tls, client: client? })
    }

    /// The server at `url`, with the certificates and the login of a document.
    ///
    /// # Errors
    /// When the certificates cannot be used. The text names them.
    pub fn given(url: Url, tls: GivenTls, login: ApiLogin, outbound: &Outbound) -> Result<Self, ClientError> {
        Ok(Self { url, login, tls: Tls::default(), client: outbound.client_given(tls)? })
    }

    /// The same server with other connections, limits and breakers.
    ///
    /// # Errors
    /// When the CA cannot be read.
    pub fn with_concurrency(&self, concurrency: usize, outbound: &Outbound) -> Result<Self, ClientError> {
        let options = ClientOptions { tls: self.tls.clone(), concurrency, ..ClientOptions::default() };
        Ok(Self { client: outbound.client(options)?, ..self.clone() })
    }

    /// The file with the token.
    pub fn token_file(&self) -> Option<PathBuf> {
        if let ApiLogin::ServiceAccount(token, base) = &self.login { token.file(base) } else { None }
    }

    /// The secrets that are sent to it, as they are now.
    pub fn secrets(&self) -> Secrets {
        self.login.secrets()
    }

    /// Its URL.
    pub const fn url(&self) -> &Url {
        &self.url
    }

    /// The request as messages show it, and its answer with any status.
    pub async fn send(&self, call: ApiCall<'_>) -> (String, Result<Reply, BackendError>) {
        let mut url = self.url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(call.path);
        }
        if !call.query.is_empty() {
            url.query_pairs_mut().extend_pairs(call.query);
        }
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(header::ACCEPT, json)]);
        let mut whole = Call { method: call.method, headers, ..Call::get(url, call.max_bytes, call.deadline) };
        if let Some((kind, body)) = call.body {
            whole.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            whole.body = Some(body);
        }
        (whole.account, whole.recorded_as) = (self.login.account(), call.recorded_as);
        let shown = whole.to_string();
        let reply = self.send_logged_in(whole).await;
        (shown, reply)
    }

    async fn send_logged_in(&self, mut call: Call) -> Result<Reply, BackendError> {
        if let Some(value) = self.login.header(false, call.deadline).await? {
            call.headers.insert(header::AUTHORIZATION, value);
        }
        let again = if let ApiLogin::Cloud(_) = self.login { Some(call.clone()) } else { None };
        let reply = self.client.fetch(call).await?;
        let Some(mut call) = again.filter(|_| reply.status.as_u16() == 401) else { return Ok(reply) };
        // The session behind the token may have ended before its time.
        match self.login.header(true, call.deadline).await? {
            Some(renewed) if call.headers.get(header::AUTHORIZATION) != Some(&renewed) => {
                call.headers.insert(header::AUTHORIZATION, renewed);
                self.client.fetch(call).await
            }
            _ => Ok(reply),
        }
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}
