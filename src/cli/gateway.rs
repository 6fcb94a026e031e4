//! The client of a running gateway's admin listener.

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::ConfigFile;
use crate::config::{Loaded, ServerConfig};
use auth::Role;
use domain::{
    clock::SystemClock,
    secret::{Secret, SecretRef},
    visible::visible,
};
use outbound::{Call, ClientOptions, Outbound, Tls};

/// How long the gateway may take. A release runs the backend.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The largest answer that is read, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// How a command finds the gateway: the first part of the help of each command that asks one.
pub(crate) const HELP: &str = "\
The gateway is the one of the configuration: its address is `server.admin`, and the token is the first one with `role: admin` that \
has a `file` or `env`. --admin and --token-file override both, for a gateway elsewhere. With `server.adminTls` the certificate must \
have the address's name (`localhost` on the same machine); --admin-ca names its certificate authority if the system does not trust it.";

/// Selects a running gateway.
#[derive(Debug, Args)]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    pub(super) file: ConfigFile,
}

impl GatewayArgs {
    /// Whether the admin listener is named, instead of that of the configuration.
    pub(crate) const fn names_admin(&self) -> bool {
        self.admin.admin.is_some()
    }

    /// The gateway.
    ///
    /// # Errors
    /// When its address or its token is not known.
    pub(crate) fn find(&self) -> anyhow::Result<Gateway> {
        Gateway::find(&self.admin, &self.file.path)
    }
}

/// Selects a gateway other than the configuration's.
#[derive(Debug, Args)]
#[command(next_help_heading = "Gateway")]
struct AdminArgs {
    /// The admin listener's URL or address, such as `http://localhost:4356`.
    #[arg(long, global = true, value_name = "URL", env = "APPSET_GATEWAY_ADMIN", value_parser = parse_admin)]
    admin: Option<Url>,
    #[command(flatten)]
    token: TokenArgs,
}

/// Selects a token other than the configuration's.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Gateway")]
pub(crate) struct TokenArgs {
    /// A file with a token that has the role `admin`.
    #[arg(long, global = true, value_name = "FILE", env = "APPSET_GATEWAY_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// A PEM file with the certificate authority of the admin listener's certificate (`server.adminTls`).
    #[arg(long, global = true, value_name = "FILE", env = "APPSET_GATEWAY_ADMIN_CA")]
    admin_ca: Option<PathBuf>,
}

pub(crate) fn parse_admin(text: &str) -> Result<Url, String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&url).map_err(|error| error.to_string())?;
    if matches!(url.scheme(), "http" | "https") {
        Ok(url)
    } else {
        Err("a URL begins with http:// or https://".to_owned())
    }
}

/// A running gateway.
pub(crate) struct Gateway {
    admin: Url,
    token: Secret,
    ca: Option<PathBuf>,
}

impl Gateway {
    /// The gateway that `arguments` name, or else the one of the configuration file `path`.
    fn find(arguments: &AdminArgs, path: &Path) -> anyhow::Result<Self> {
        Self::open(arguments.admin.as_ref(), &arguments.token, path)
    }

    /// The gateway at `admin`, or else that of the configuration file `path`.
    pub(crate) fn open(admin: Option<&Url>, token: &TokenArgs, path: &Path) -> anyhow::Result<Self> {
        let (from_file, ca) = (token.token_file.clone().map(SecretRef::File), token.admin_ca.clone());
        let (admin, token) = match (admin, from_file) {
            (Some(admin), Some(token)) => (admin.clone(), token.read(&domain::file::base_dir::BaseDir::default())),
            (admin, token) => {
                // A running gateway keeps the previous configuration, and an operator wants to see it now.
                let advice = "to ask a running gateway without this file, give --admin and --token-file";
                let loaded = Loaded::read(path).map_err(|report| anyhow::anyhow!("{report}{advice}"))?;
                let config = loaded.config.as_ref().with_context(|| format!("{} cannot be used", path.display()))?;
                let own = own_url(&config.server);
                let mut tokens = config.auth.tokens.iter().filter(|token| token.role == Role::Admin);
                let own_token = tokens.find_map(|token| match (&token.file, &token.env) {
                    (Some(file), _) => Some(SecretRef::File(file.clone())),
                    (None, Some(name)) => Some(SecretRef::Env(name.clone())),
                    (None, None) => None,
                });
                let is_given = token.is_some();
                let Some(token) = token.or(own_token) else {
                    bail!(
                        "{} has no token with `role: admin` and a `file` or `env`; name one there, or give --token-file",
                        path.display()
                    )
                };
                let base = if is_given { &domain::file::base_dir::BaseDir::default() } else { &loaded.base };
                (admin.cloned().map_or(own, Ok)?, token.read(base))
            }
        };
        Ok(Self { admin, token: token.map_err(anyhow::Error::msg)?, ca })
    }

    /// `GET` of `path` below `/admin`, with `query`.
    pub(crate) async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Value> {
        self.call(Method::GET, self.url(path, query)?, None).await
    }

    /// `GET` of the view that a gateway of this version has at `path` below `/admin`, with `query`.
    ///
    /// # Errors
    /// When there is no answer, or the gateway has no such path, as one of another version.
    pub(crate) async fn get_known(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Value> {
        let url = self.url(path, query)?;
        let (status, answer) = self.fetch(Method::GET, url.clone(), HeaderMap::new(), None).await?;
        if status == StatusCode::NOT_FOUND {
            bail!(
                "{} has no {}: it is not an admin listener, or its gateway is of another version than {}, which this is",
                self.admin,
                url.path(),
                env!("CARGO_PKG_VERSION")
            );
        }
        answer_of(status, answer)
    }

    /// `POST` of `body` to `path` below `/admin`, with `query`.
    pub(crate) async fn post(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        self.call(Method::POST, self.url(path, query)?, body).await
    }

    /// `POST` of the bytes `body` to `path` below `/admin`, with more `headers`.
    pub(crate) async fn post_bytes(&self, path: &[&str], headers: HeaderMap, body: Bytes) -> anyhow::Result<Value> {
        self.send(Method::POST, self.url(path, &[])?, headers, Some(body)).await
    }

    fn url(&self, path: &[&str], query: &[(&str, &str)]) -> anyhow::Result<Url> {
        let mut url = self.admin.clone();
        let mut segments =
            url.path_segments_mut().map_err(|()| anyhow::anyhow!("{} cannot have a path", self.admin))?;
        segments.pop_if_empty().push("admin").extend(path);
        drop(segments);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    async fn call(&self, method: Method, url: Url, body: Option<&Value>) -> anyhow::Result<Value> {
        self.send(method, url, HeaderMap::new(), body.map(|body| body.to_string().into())).await
    }

    async fn send(&self, method: Method, url: Url, headers: HeaderMap, body: Option<Bytes>) -> anyhow::Result<Value> {
        let (status, answer) = self.fetch(method, url, headers, body).await?;
        answer_of(status, answer)
    }

    async fn fetch(
        &self,
        method: Method,
        url: Url,
        mut headers: HeaderMap,
        body: Option<Bytes>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let mut authorization = HeaderValue::try_from(format!("Bearer {}", self.token.expose()))
            .context("the token holds characters that no header can carry")?;
        authorization.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, authorization);
        let deadline = Instant::now() + TIMEOUT;
        let call = Call { method, headers, body, may_repeat: false, ..Call::get(url, MAX_ANSWER_BYTES, deadline) };
        let tls = Tls { ca: self.ca.clone(), ..Tls::default() };
        let options = ClientOptions { tls, ..ClientOptions::default() };
        let client = Outbound::new(Arc::new(SystemClock)).client(options).map_err(anyhow::Error::msg)?;
        let reply = client.fetch(call).await?;
        let answer: Value = serde_json::from_slice(&reply.body)
            .with_context(|| format!("{} answered {} without JSON", self.admin, reply.status))?;
        Ok((reply.status, answer))
    }
}

/// Where the admin listener of a gateway with these settings is on this machine. A certificate has names rather than addresses.
fn own_url(server: &ServerConfig) -> Result<Url, url::ParseError> {
    let mut address = server.admin;
    if address.ip().is_unspecified() {
        address.set_ip(IpAddr::from([127, 0, 0, 1]));
    }
    match (server.admin_tls.is_some(), address.ip().is_loopback()) {
        (false, _) => Url::parse(&format!("http://{address}")),
        (true, true) => Url::parse(&format!("https://localhost:{}", address.port())),
        (true, false) => Url::parse(&format!("https://{address}")),
    }
}

/// `answer`, unless it is an error by `status`.
fn answer_of(status: StatusCode, answer: Value) -> anyhow::Result<Value> {
    if !status.is_success() {
        let message = answer["message"].as_str().unwrap_or("the gateway failed without a message");
        bail!("{}", visible(message));
    }
    Ok(answer)
}

/// `reply` as a view of this version.
pub(crate) fn view<V: DeserializeOwned>(reply: Value) -> anyhow::Result<V> {
    let version = env!("CARGO_PKG_VERSION");
    serde_json::from_value(reply)
        .with_context(|| format!("the gateway is of another version than {version}, which this is"))
}

/// The text under `name` in `entry`, escaped for a terminal.
pub(crate) fn text(entry: &Value, name: &str) -> String {
    visible(entry[name].as_str().unwrap_or_default())
}

/// The ApplicationSets that requested `entry`, as the end of a line. Empty if none is known.
pub(crate) fn requested_by(entry: &Value) -> String {
    let names = requesters(entry);
    if names.is_empty() { names } else { format!(", requested by {names}") }
}

/// The ApplicationSets that requested `entry`, escaped for a terminal. Empty if none is known.
pub(crate) fn requesters(entry: &Value) -> String {
    let names = entry["requesters"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let names: Vec<String> = names.map(visible).collect();
    names.join(", ")
}
