//! Sends one request and reads its whole answer.

use std::{net::IpAddr, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::BytesMut;
use parking_lot::Mutex;
use reqwest::{NoProxy, redirect, retry};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::{
    Call, Reply,
    addresses::{Addresses, RefusedAddress, is_below, is_inner_name},
    config::Proxy,
    error::ClientError,
    exchange::{ExchangeFailure, FailureKind, recorded, replayed},
    given::{GivenTls, Renamed},
    tls::{LoadedCertificates, Tls},
};
use domain::{
    error::BackendError,
    replay::{HttpReply, Sources},
    secret::{Secret, SecretError, Secrets},
};
use telemetry::trace;

/// How long a connection may take to open, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take to begin.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);

/// Hosts that are never reached through a proxy.
const NEVER_PROXIED: &str = "localhost,127.0.0.0/8,::1";
/// How often files and secrets are checked for changes.
const RENEWED_EVERY: Duration = Duration::from_secs(30);

/// The client of `reqwest`, and the settings from which it is built.
#[derive(Debug)]
pub(crate) struct Transport {
    tls: Tls,
    proxy: Option<Proxy>,
    addresses: Addresses,
    /// Replies in place of the network, or notes of replies.
    sources: Option<Arc<dyn Sources>>,
    /// Certificates in place of files, and the name to connect as.
    given: Option<(GivenTls, Option<Renamed>)>,
    made: Mutex<Made>,
}

#[derive(Debug)]
struct Made {
    certificates: LoadedCertificates,
    password: Option<Secret>,
    read_at: Instant,
    /// Built at their first use, because reading the system's certificates takes longer than all else at the start.
    client: Option<reqwest::Client>,
    /// For URLs that come from answers.
    led: Option<reqwest::Client>,
}

impl Made {
    const fn client(&mut self, is_led: bool) -> &mut Option<reqwest::Client> {
        if is_led { &mut self.led } else { &mut self.client }
    }
}

impl Transport {
    /// A client that reaches `addresses`, through `proxy` if there is one. `sources` may reply in place of the network.
    ///
    /// # Errors
    /// When the certificates of `tls` cannot be used. The text names the file.
    pub(crate) fn new(
        tls: Tls,
        proxy: Option<Proxy>,
        addresses: Addresses,
        sources: Option<Arc<dyn Sources>>,
    ) -> Result<Self, ClientError> {
        let is_offline = sources.as_ref().is_some_and(|sources| sources.is_offline());
        let certificates = if is_offline { LoadedCertificates::default() } else { LoadedCertificates::read(&tls)? };
        let made = Made { certificates, password: None, read_at: Instant::now(), client: None, led: None };
        Ok(Self { tls, proxy, addresses, sources, given: None, made: Mutex::new(made) })
    }

    /// The same client with the certificates of `given`.
    ///
    /// # Errors
    /// When they cannot be used, or a proxy would have to resolve another name than that of the server. The text names them.
    pub(crate) fn with_given(mut self, given: GivenTls) -> Result<Self, ClientError> {
        let renamed = given.renamed(&self.addresses);
        if renamed.is_some() && self.proxy.is_some() {
            return Err(ClientError::RenamedByProxy);
        }
        if !self.is_offline() {
            self.made.get_mut().certificates = LoadedCertificates::of(&given)?;
        }
        self.tls.is_checked = given.is_checked;
        self.given = Some((given, renamed));
        Ok(self)
    }

    /// Whether the configuration allows `address`.
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        self.addresses.allow(address)
    }

    /// Whether the network is never used.
    pub(crate) fn is_offline(&self) -> bool {
        self.sources.as_ref().is_some_and(|sources| sources.is_offline())
    }

    /// The client with the current content of its files, and the header for the proxy. `is_led` is that of the call.
    pub(super) fn ready(&self, is_led: bool) -> Result<(reqwest::Client, Option<Secret>), BackendError> {
        // Locked while the client is built, so that the first callers do not each build one.
        let mut made = self.made.lock();
        if made.client(is_led).is_some() && self.may_be_renewed() && made.read_at.elapsed() >= RENEWED_EVERY {
            made.read_at = Instant::now();
            match self.material() {
                Ok((certificates, password)) => {
                    let same_password = |old: &Secret, new: &Secret| old.expose() == new.expose();
                    let is_same = made.certificates.is_same(&certificates)
                        && made.password.iter().zip(&password).all(|(old, new)| same_password(old, new));
                    if !is_same {
                        (made.client, made.led) = (None, None);
                    }
                    (made.certificates, made.password) = (certificates, password);
                }
                Err(why) => tracing::warn!(%why, "the certificates in use stay in use"),
            }
        }
        if let Some(client) = made.client(is_led).clone() {
            return Ok((client, self.shown(&made)));
        }
        if made.password.is_none() {
            made.password = self.password().map_err(BackendError::unavailable)?;
        }
        let client = self
            .build(&made, is_led)
            .map_err(|error| BackendError::unavailable(format!("cannot set up the HTTP client: {}", cause(&error))))?;
        *made.client(is_led) = Some(client.clone());
        Ok((client, self.shown(&made)))
    }

    /// The header for the proxy, a secret that the proxy or a server could repeat in an answer.
    fn shown(&self, made: &Made) -> Option<Secret> {
        let ((username, _), password) = self.proxy.as_ref()?.credential.as_ref().zip(made.password.as_ref())?;
        let pair = Zeroizing::new(format!("{username}:{}", password.expose()));
        Some(Secret::from(format!("Basic {}", STANDARD.encode(&*pair))))
    }

    fn may_be_renewed(&self) -> bool {
        self.tls.has_files() || self.proxy.as_ref().is_some_and(|proxy| proxy.credential.is_some())
    }

    fn material(&self) -> Result<(LoadedCertificates, Option<Secret>), ClientError> {
        Ok((LoadedCertificates::read(&self.tls)?, self.password()?))
    }

    fn password(&self) -> Result<Option<Secret>, SecretError> {
        let Some(Proxy { credential: Some((_, password)), base, .. }) = &self.proxy else { return Ok(None) };
        password.read(base).map(Some)
    }

    fn build(&self, made: &Made, is_led: bool) -> reqwest::Result<reqwest::Client> {
        let addresses = if is_led { self.addresses.led() } else { self.addresses.clone() };
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("appset-gateway/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            // This module retries by itself. Retries of `reqwest` would also copy each request.
            .retry(retry::never())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(Duration::from_mins(1))
            .tcp_nodelay(true)
            .tls_danger_accept_invalid_certs(!self.tls.is_checked);
        let trusted = made.certificates.trusted().iter().cloned();
        // The CA of a document is that of one server, and no other may sign for it.
        let is_only = self.given.as_ref().is_some_and(|(given, _)| given.ca.is_some() && given.is_checked);
        builder = if is_only { builder.tls_certs_only(trusted) } else { builder.tls_certs_merge(trusted) };
        builder = match &self.given {
            Some((_, Some(renamed))) => builder.dns_resolver(renamed.clone()),
            _ => builder.dns_resolver(addresses),
        };
        if let Some(identity) = made.certificates.identity() {
            builder = builder.identity(identity.clone());
        }
        if let Some(proxy) = &self.proxy {
            let except = proxy.except.join(",");
            let mut through = reqwest::Proxy::all(proxy.url.clone())?
                .no_proxy(NoProxy::from_string(&format!("{NEVER_PROXIED},{except}")));
            if let Some(((username, _), password)) = proxy.credential.as_ref().zip(made.password.as_ref()) {
                through = through.basic_auth(username, password.expose());
            }
            builder = builder.proxy(through);
        }
        builder.build()
    }

    /// Sends `call` once and reads the whole answer.
    ///
    /// # Errors
    /// When the client cannot be built.
    pub(crate) async fn exchange(
        &self,
        call: &Call,
        secrets: &Secrets,
    ) -> Result<Result<Reply, ExchangeFailure>, BackendError> {
        if let Some(reply) = self.sources.as_ref().and_then(|sources| sources.reply(&call.method, &call.url)) {
            return Ok(replayed(reply, call, secrets));
        }
        if let Err(error) = self.addresses.check_literal(&call.url) {
            return Ok(Err(ExchangeFailure { kind: FailureKind::Refused, message: error.to_string() }));
        }
        if call.is_led && self.is_hidden_by_proxy(&call.url) {
            let message =
                "an answer leads to this inner name, whose address only the proxy would learn, so no request is sent"
                    .to_owned();
            return Ok(Err(ExchangeFailure { kind: FailureKind::Refused, message }));
        }
        let (client, shown) = self.ready(call.is_led)?;
        let with_proxy = shown.map(|shown| {
            let mut all = secrets.clone();
            all.push(shown);
            all
        });
        let secrets = with_proxy.as_ref().unwrap_or(secrets);
        let exchanged = self.exchange_by(&client, call, secrets).await;
        if let Some(sources) = &self.sources
            && let Some(reply) = recorded(&exchanged)
        {
            let reply = match (reply, call.recorded_as) {
                (Ok(reply), Some(shown)) => Ok(HttpReply { body: shown(&reply.body), ..reply }),
                (reply, _) => reply,
            };
            sources.note_reply(&call.method, &call.url, reply, secrets);
        }
        Ok(exchanged)
    }

    /// Whether `url` names a host of an inner network that would be reached through the proxy, which resolves names by itself.
    fn is_hidden_by_proxy(&self, url: &reqwest::Url) -> bool {
        let Some(proxy) = &self.proxy else { return false };
        let except: Vec<&str> = proxy.except.iter().map(String::as_str).collect();
        url.domain()
            .is_some_and(|name| (is_inner_name(name) || is_below(name, &["localhost"])) && !is_below(name, &except))
    }

    async fn exchange_by(
        &self,
        client: &reqwest::Client,
        call: &Call,
        secrets: &Secrets,
    ) -> Result<Reply, ExchangeFailure> {
        let head_by = call.deadline.min(Instant::now() + HEAD_TIMEOUT);
        let mut request = reqwest::Request::new(call.method.clone(), self.connected_as(&call.url));
        request.headers_mut().clone_from(&call.headers);
        // Trace headers are added last, so they are not part of the account or of the key of conditional requests. A configured header
        // of this name wins.
        if !call.headers.contains_key(trace::HEADER)
            && let Some(value) = trace::current().and_then(|span| span.context().to_header())
        {
            request.headers_mut().insert(trace::HEADER, value);
        }
        *request.body_mut() = call.body.clone().map(reqwest::Body::from);
        let sent = timeout_at(head_by, client.execute(request)).await.map_err(|_| {
            let message = if head_by == call.deadline {
                "no whole answer in time".to_owned()
            } else {
                format!("no answer began within {} s", HEAD_TIMEOUT.as_secs())
            };
            ExchangeFailure { kind: FailureKind::Timeout, message }
        })?;
        let mut response = sent.map_err(|error| self.failure(&error))?;
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        // A growing buffer doubles, so up to half may stay empty. Memory pages that are never written cost nothing.
        let announced = response.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let mut body = BytesMut::with_capacity(announced.min(call.max_bytes));
        loop {
            let chunk = timeout_at(call.deadline, response.chunk())
                .await
                .map_err(|_| ExchangeFailure {
                    kind: FailureKind::Timeout,
                    message: "no whole answer in time".to_owned(),
                })?
                .map_err(|error| self.failure(&error))?;
            let Some(chunk) = chunk else { break };
            if body.len() + chunk.len() > call.max_bytes {
                let message = format!("the answer is larger than {} bytes", call.max_bytes);
                return Err(ExchangeFailure { kind: FailureKind::TooLarge, message });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status, headers, body: body.freeze(), secrets: secrets.clone(), retry_after: None, attempts: 1 })
    }

    /// `url` with the name to connect as in place of its host.
    fn connected_as(&self, url: &reqwest::Url) -> reqwest::Url {
        let mut url = url.clone();
        if let Some((_, Some(renamed))) = &self.given {
            // A name that no URL can have was refused before.
            let _ = url.set_host(Some(&renamed.name));
        }
        url
    }

    pub(super) fn failure(&self, error: &reqwest::Error) -> ExchangeFailure {
        let why = cause(error);
        if error.is_timeout() {
            return ExchangeFailure { kind: FailureKind::Timeout, message: format!("timed out: {why}") };
        }
        if let Some(refused) = find::<RefusedAddress>(error) {
            return ExchangeFailure { kind: FailureKind::Refused, message: refused.to_string() };
        }
        if matches!(find(error), Some(rustls::Error::InvalidCertificate(_))) {
            let advice = match &self.tls.ca {
                Some(file) => format!("neither the system nor the CA file {} verifies it", file.display()),
                None if let Some((given, _)) = &self.given => {
                    format!("{} of its Secret does not verify it", given.names[0])
                }
                None => "if a private CA signed it, name that CA's file as `ca`".to_owned(),
            };
            let message = format!("cannot connect: its certificate is not trusted ({why}); {advice}");
            return ExchangeFailure { kind: FailureKind::Untrusted, message };
        }
        if matches!(find(error), Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType))) {
            let message = "cannot connect: the server does not speak TLS. If it speaks plain HTTP, write `http://` in the URL, or \
                           `plainHttp: true` for a registry";
            return ExchangeFailure { kind: FailureKind::Untrusted, message: message.to_owned() };
        }
        let (kind, message) = if error.is_connect() {
            (FailureKind::Connect, "cannot connect")
        } else if error.is_body() || error.is_decode() {
            (FailureKind::Broken, "the answer broke off")
        } else {
            (FailureKind::Broken, "the request failed")
        };
        let through = match &self.proxy {
            Some(proxy) if kind == FailureKind::Connect => {
                format!(
                    " (all but what `outbound.proxy.except` names goes through the proxy {})",
                    proxy.url.origin().ascii_serialization()
                )
            }
            _ => String::new(),
        };
        ExchangeFailure { kind, message: format!("{message}: {why}{through}") }
    }
}

/// The cause of `error` that is a `T`.
fn find<T: std::error::Error + 'static>(error: &reqwest::Error) -> Option<&T> {
    causes(error).find_map(|mut cause| {
        // The source of an I/O error skips the error that it wraps.
        while let Some(within) = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
            cause = within;
        }
        cause.downcast_ref()
    })
}

fn causes<'a>(error: &'a reqwest::Error) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    let first: &'a (dyn std::error::Error + 'static) = error;
    std::iter::successors(Some(first), |error| error.source())
}

/// The innermost cause, which names the failure. The layers above repeat the URL.
fn cause(error: &reqwest::Error) -> String {
    causes(error).last().map(ToString::to_string).unwrap_or_default()
}
