//! A cluster's API server: requests with the token of the gateway's own service account, which is read at each use.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use reqwest::Url;
use tokio::time::Instant;

use crate::{Call, ClientError, ClientOptions, HttpClient, Outbound, Reply, Tls, TlsKeys};
use domain::{error::BackendError, file::base_dir::BaseDir, secret::SecretRef, section::Section};

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
    token: SecretRef,
    base: BaseDir,
    tls: Tls,
    client: Arc<HttpClient>,
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
    /// The most requests under way at once.
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
        Some(Self { url: url?, token: token.clone(), base: section.base.clone(), tls, client: client? })
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
        self.token.file(&self.base)
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
        let mut headers = HeaderMap::from_iter([(header::ACCEPT, json)]);
        let mut whole = Call { method: call.method, ..Call::get(url, call.max_bytes, call.deadline) };
        if let Some((kind, body)) = call.body {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            whole.body = Some(body);
        }
        let shown = whole.to_string();
        match self.token.header(&self.base, "Bearer ") {
            Ok(token) => headers.insert(header::AUTHORIZATION, token),
            Err(error) => return (shown, Err(error)),
        };
        // The token is replaced from time to time, the account is the same.
        let account = Some("service account".into());
        let reply = self.client.fetch(Call { headers, account, ..whole }).await;
        (shown, reply)
    }
}
