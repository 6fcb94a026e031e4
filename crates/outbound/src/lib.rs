//! The only way to send HTTP requests. Each request has a deadline and a size limit that holds while the body arrives.
//! There are no redirects, no proxy from the environment, and no decompression. `oci` follows the redirects of registries itself.
//!
//! Destinations are protected. A failed request is sent again at most twice, and the number of requests under way is limited.
//! A destination that fails gets no requests for a while, and neither does an account whose rate limit is used up.
//!
//! Start at [`Outbound`], which makes an [`HttpClient`] for each set of [`ClientOptions`]; [`HttpClient::fetch`] sends a [`Call`] and returns a
//! [`Reply`].
//!
//! - Before sending: `destination` limits requests per host, `breaker` pauses after failures, and `budget` observes the rate limits of
//!   accounts.
//! - Sending: `client` sends one request, `exchange` says what came of it, `retry` decides about another attempt, and `conditional` uses `ETag`s.
//! - Security: `addresses` checks resolved addresses, `link_policy` URLs in replies, `tls` has certificates of files, and `given` those of documents.
//! - For operators: `seen` is the state of destinations, and `counts` and `named` make the metrics.
//! - [`link`] reads `Link` headers, `lifetime` the lifetime of tokens, and `observe` sends a request for a reader who evaluates partial replies.
//!
//! [`kubernetes`] is a cluster's API server, that of the gateway's own cluster or another one.

mod addresses;
mod breaker;
mod budget;
mod call;
mod client;
mod conditional;
mod config;
mod counts;
mod destination;
mod error;
mod exchange;
mod given;
mod identity;
pub mod kubernetes;
mod lifetime;
pub mod link;
mod link_policy;
mod named;
mod observe;
mod reply;
mod retry;
mod seen;
mod tls;

use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    num::NonZeroU32,
    sync::{Arc, Weak},
    time::Duration,
};

use ipnet::IpNet;
use parking_lot::Mutex;
use reqwest::Url;
use tokio::time::{Instant, sleep};
use tower::retry::budget::Budget as _;
use url::Position;

use self::{
    addresses::Addresses,
    breaker::BreakerPass,
    budget::{Budgets, Owner},
    client::Transport,
    conditional::ConditionalCache,
    destination::Destination,
    exchange::{ExchangeFailure, end_of},
    named::Named,
};
pub use self::{
    addresses::is_inner_name,
    breaker::BreakerPosition,
    budget::AccountNow,
    config::{warn_of_cleartext, warn_of_cleartext_to},
    lifetime::ExpiresIn,
    observe::{Ended, Observed},
    seen::DestinationNow,
};
pub use self::{
    addresses::{Inner, Names, SystemNames},
    call::{ANONYMOUS, Call, account_of},
    config::{OutboundConfig, Proxy, ProxyConfig, TlsKeys, fixed_url, is_safe, names_user, stays},
    error::{ClientError, UrlError},
    given::GivenTls,
    identity::{
        AutomaticIdentity, ClusterLogin, Identities, Identity, Login, LoginPlace, NO_IDENTITY, UnknownIdentity,
    },
    link_policy::check_link,
    reply::Reply,
    tls::{ClientCertificate, Tls},
};
use domain::{bounded_cache::Recent, clock::Clock, error::BackendError, replay::Sources, secret::Secrets};
use telemetry::{
    metrics::OutboundMetrics,
    trace::{self, Span, SpanKind},
};

/// How many destinations a client remembers. The least recently used leave first.
const MAX_DESTINATIONS: usize = 10_000;

/// The HTTP clients, shared by all backends.
pub struct Outbound {
    clock: Arc<dyn Clock>,
    addresses: Addresses,
    proxy: Option<Proxy>,
    metrics: Option<OutboundMetrics>,
    named: Arc<Named>,
    sources: Option<Arc<dyn Sources>>,
    identities: Arc<Identities>,
    clients: Mutex<HashMap<ClientOptions, Arc<HttpClient>>>,
    /// Clients with the certificates of documents, by the fingerprints of these.
    given: Mutex<HashMap<[u8; 32], Weak<HttpClient>>>,
}

/// How destinations are reached. Callers with equal options share connections, limits, breakers and kept answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientOptions {
    /// The trusted certificates, and the client certificate.
    pub tls: Tls,
    /// How many requests may be under way to one destination.
    pub concurrency: usize,
    /// How many requests to one destination may begin per second. After a pause, as many may begin at once.
    pub rate: Option<NonZeroU32>,
}

/// An HTTP client with certain options. A destination is a scheme, a host and a port.
pub struct HttpClient {
    options: ClientOptions,
    clock: Arc<dyn Clock>,
    client: Transport,
    destinations: Recent<Arc<str>, Arc<Destination>>,
    budgets: Budgets,
    conditional: ConditionalCache,
    metrics: Option<OutboundMetrics>,
    named: Arc<Named>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { tls: Tls::default(), concurrency: 8, rate: None }
    }
}

impl Outbound {
    /// Starts without clients. `clock` measures backoffs and pauses.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let addresses = Addresses::new(Arc::new(SystemNames), &[], None);
        Self {
            clock,
            addresses,
            proxy: None,
            metrics: None,
            named: Arc::default(),
            sources: None,
            identities: Arc::default(),
            clients: Mutex::default(),
            given: Mutex::default(),
        }
    }

    /// Looks names up with `names`, may also reach the `allowed` networks, and uses `proxy`.
    #[must_use]
    pub fn reaching(self, names: Arc<dyn Names>, allowed: &[IpNet], proxy: Option<Proxy>) -> Self {
        let addresses = Addresses::new(names, allowed, proxy.as_ref().and_then(|proxy| proxy.url.host_str()));
        Self { addresses, proxy, ..self }
    }

    /// May also ask the metadata addresses of clouds, without a proxy. For identities, and for nothing that a URL of a user reaches.
    #[must_use]
    pub fn for_metadata(clock: Arc<dyn Clock>) -> Self {
        let new = Self::new(clock);
        Self { addresses: new.addresses.with_metadata(), ..new }
    }

    /// Counts requests in `metrics`.
    #[must_use]
    pub fn counted(self, metrics: OutboundMetrics) -> Self {
        Self { metrics: Some(metrics), ..self }
    }

    /// Takes replies from `sources`, or notes them there.
    #[must_use]
    pub fn with_sources(self, sources: Option<Arc<dyn Sources>>) -> Self {
        Self { sources, ..self }
    }

    /// Has these identities for registries and backends that name them.
    #[must_use]
    pub fn with_identities(self, identities: Identities) -> Self {
        Self { identities: Arc::new(identities), ..self }
    }

    /// The identities at clouds.
    pub fn identities(&self) -> &Identities {
        &self.identities
    }

    /// Counts the destination of `url`, a URL from the configuration, under its own name in metrics. All other
    /// destinations, such as those of templates, count as one.
    pub fn name_destination(&self, url: Option<&Url>) {
        let Some(url) = url else { return };
        let name = self.named.add(url);
        if let Some(metrics) = &self.metrics {
            metrics.begin(name);
        }
    }

    /// The client for `options`. Equal options share one client.
    ///
    /// # Errors
    /// When the certificates cannot be read. The text names the file.
    pub fn client(&self, options: ClientOptions) -> Result<Arc<HttpClient>, ClientError> {
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&options) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(self.client_over(self.transport(options.tls.clone())?, options.clone()));
        clients.insert(options, Arc::clone(&client));
        Ok(client)
    }

    fn transport(&self, tls: Tls) -> Result<Transport, ClientError> {
        Transport::new(tls, self.proxy.clone(), self.addresses.clone(), self.sources.clone())
    }

    fn client_over(&self, transport: Transport, options: ClientOptions) -> HttpClient {
        HttpClient {
            client: transport,
            options,
            clock: Arc::clone(&self.clock),
            destinations: Recent::new(MAX_DESTINATIONS),
            budgets: Budgets::default(),
            conditional: ConditionalCache::default(),
            metrics: self.metrics.clone(),
            named: Arc::clone(&self.named),
        }
    }
}

/// The state of a call between its attempts.
struct RetryState<'a> {
    call: &'a Call,
    secrets: Secrets,
    owner: Owner,
    destination: Arc<Destination>,
    pass: Option<BreakerPass>,
    attempts: u32,
    /// How long the last attempt took.
    took: Duration,
}

/// The result of one attempt.
type Outcome = Result<Reply, ExchangeFailure>;

impl HttpClient {
    /// Whether `outbound.allowAddresses` has `address`.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        self.client.allows(address)
    }

    /// Whether, by the replies of the destination of `url`, less than a tenth of the rate limit of `account` is left. Without a
    /// credential, the account is [`ANONYMOUS`].
    #[must_use]
    pub fn is_low(&self, url: &Url, account: &str) -> bool {
        self.budgets.is_low(&(origin(url), account.into()), self.clock.now())
    }

    /// Sends `call` and reads the whole answer. Tries again if that may help and there is time.
    ///
    /// # Errors
    /// When no whole answer arrives in time, or the destination gets no requests now. The message names the method and the
    /// URL, without the query.
    pub async fn fetch(&self, mut call: Call) -> Result<Reply, BackendError> {
        let account = call.account();
        let request = self.conditional.prepare(&mut call, &account);
        let reply = self.send_with_retries(&call, account).await.and_then(|reply| match request {
            Some(request) => self.conditional.complete(&request, reply),
            None => Ok(reply),
        });
        reply.map_err(|error| error.within(&call))
    }

    async fn send_with_retries(&self, call: &Call, account: Arc<str>) -> Result<Reply, BackendError> {
        let origin = origin(&call.url);
        let destination =
            self.destinations.get_or_insert_with(Arc::clone(&origin), || Arc::new(Destination::new(&self.options)));
        let (secrets, owner) = (Secrets::of_headers(&call.headers), (origin, account));
        let took = Duration::ZERO;
        let mut state = RetryState { call, secrets, owner, destination, pass: None, attempts: 0, took };
        let first = self.attempt(&mut state).await;
        if let (Some(metrics), Err(error)) = (&self.metrics, &first) {
            metrics.spared(self.named.of(&call.url), counts::spared(error));
        }
        let mut outcome = first?;
        // A budget of retries for all calls to the destination: when most calls fail, retries would multiply the load.
        state.destination.retries.deposit();
        while let Some(wait) = state.wait(&outcome) {
            if !state.destination.retries.withdraw() {
                break;
            }
            sleep(if self.client.is_offline() { Duration::ZERO } else { wait }).await;
            // Another call may have opened the breaker meanwhile. Then the last outcome is final.
            let Ok(next) = self.attempt(&mut state).await else { break };
            outcome = next;
        }
        if let Some(pass) = state.pass {
            pass.end(end_of(&outcome), self.clock.now());
        }
        match outcome {
            Ok(reply) => Ok(Reply { attempts: state.attempts, ..reply }),
            Err(failure) => Err(failure.into_error()),
        }
    }

    /// Sends the request once, as soon as the limits of the destination allow it.
    async fn attempt(&self, state: &mut RetryState<'_>) -> Result<Outcome, BackendError> {
        let destination = Arc::clone(&state.destination);
        // Checked before the wait, which could be useless, and again after it, because the state may have changed.
        self.check(state)?;
        let _permit = destination.acquire(state.call.deadline).await?;
        self.check(state)?;
        if state.pass.is_none() {
            state.pass = Some(destination.breaker.enter(self.clock.now())?);
        }
        state.attempts += 1;
        let began = Instant::now();
        let span = state.span();
        let mut outcome = span.instrument(self.client.exchange(state.call, &state.secrets)).await?;
        state.took = began.elapsed();
        span.note(|record| counts::note(&outcome, record));
        if let Ok(reply) = &mut outcome {
            self.budgets.learn(&state.owner, reply, self.clock.now());
        }
        destination.note(seen::exchange(&outcome, state.took, self.clock.now()));
        if let Some(metrics) = &self.metrics {
            metrics.sent(self.named.of(&state.call.url), counts::sent(&outcome), state.took);
        }
        Ok(outcome)
    }

    fn check(&self, state: &RetryState<'_>) -> Result<(), BackendError> {
        let now = self.clock.now();
        self.budgets.check(&state.owner, now)?;
        state.destination.breaker.check(now)
    }
}

impl RetryState<'_> {
    /// The span of an attempt. It does not name path and query, which may hold values.
    fn span(&self) -> Span {
        let span = trace::begin(SpanKind::Client, || self.call.method.to_string());
        span.note(|record| {
            let url = &self.call.url;
            record.set("http.request.method", self.call.method.to_string());
            record.set("server.address", url.host_str().unwrap_or_default().to_owned());
            record.set("server.port", url.port_or_known_default().unwrap_or_default());
            if self.attempts > 1 {
                record.set("http.request.resend_count", usize::try_from(self.attempts - 1).unwrap_or(usize::MAX));
            }
        });
        span
    }

    /// How long to wait before another attempt. `None` when `outcome` is final.
    fn wait(&self, outcome: &Outcome) -> Option<Duration> {
        // A probe of the breaker sends only one request.
        let is_probe = self.pass.as_ref().is_some_and(BreakerPass::is_probe);
        if is_probe || !self.call.may_repeat {
            return None;
        }
        let left = self.call.deadline.saturating_duration_since(Instant::now());
        retry::wait(outcome, self.attempts, self.took, left, fastrand::f64())
    }
}

/// The scheme, host and port of `url`.
fn origin(url: &Url) -> Arc<str> {
    format!("{}://{}", url.scheme(), &url[Position::BeforeHost..Position::BeforePath]).into()
}

impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbound").finish_non_exhaustive()
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("options", &self.options).finish_non_exhaustive()
    }
}
