//! From a request to a call, and from its result to an answer.

use std::{fmt, sync::Arc};

use http::{Request, Response};
use hyper::body::Incoming;
use prometheus::IntGauge;
use tokio::{
    sync::watch,
    time::{Duration, Instant, timeout_at},
};

use crate::{
    exchange::{self, credentials::CREDENTIALS},
    grpc::{
        reader::MessageReader,
        reply::{self, ReplyBody},
        status::{Code, Status},
        timeout,
    },
    health::{self, HealthMethod},
    reflection,
};
use telemetry::trace::{Record, Span, Tracer};

/// The service of plugins.
const PLUGIN: &str = "/plugin.ConfigManagementPluginService/";
/// Its methods.
const METHODS: [&str; 6] = [
    "GenerateManifest",
    "MatchRepository",
    "GetParametersAnnouncement",
    "CheckPluginConfiguration",
    // Of the exchange with a relay.
    "Describe",
    "Put",
];
/// How long before the caller's deadline an answer is sent, as argocd-cmp-server does it.
const EARLY: Duration = Duration::from_millis(100);
/// How long a client without a deadline may take to send what nobody needs.
const DRAINING: Duration = Duration::from_mins(10);

/// What answers the calls of one plugin: the plugin itself, or a relay.
pub(crate) trait Answers: fmt::Debug + Send + Sync + 'static {
    /// The plugin's name, as its socket is called.
    fn name(&self) -> String;

    /// Begins the spans of calls.
    fn tracer(&self) -> &Tracer;

    /// Counts the calls that are under way.
    fn under_way(&self) -> &IntGauge;

    /// A call of `method` has ended.
    fn called(&self, method: &str, status: Option<&Status>);

    /// `Credentials` of the exchange, which is open as long as the client wants.
    fn credentials(&self, messages: MessageReader) -> impl Future<Output = Response<ReplyBody>> + Send {
        drop(messages);
        async { reply::failure(&unimplemented("Credentials")) }
    }

    /// The answer of a call.
    fn call(
        &self,
        method: Method<'_>,
        messages: &mut MessageReader,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Response<ReplyBody>, Status>> + Send;
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method<'a> {
    /// A method of Argo CD's service.
    Plugin(&'a str),
    /// A method of the exchange with a relay.
    Relay(&'a str),
}

impl<'a> Method<'a> {
    fn at(path: &'a str) -> Option<Self> {
        let of_plugin = path.strip_prefix(PLUGIN).map(Self::Plugin);
        of_plugin.or_else(|| path.strip_prefix(exchange::SERVICE).map(Self::Relay))
    }

    /// The service, for spans.
    fn service(self) -> &'static str {
        match self {
            Self::Plugin(_) => PLUGIN.trim_matches('/'),
            Self::Relay(_) => exchange::SERVICE.trim_matches('/'),
        }
    }

    /// The method's name.
    pub(crate) const fn name(self) -> &'a str {
        match self {
            Self::Plugin(name) | Self::Relay(name) => name,
        }
    }
}

/// Answers the calls of one socket.
#[derive(Debug)]
pub(crate) struct Service<A> {
    plugin: Arc<A>,
    /// How many calls are under way.
    calls: watch::Sender<usize>,
    /// Whether the server is ending.
    is_ending: watch::Receiver<bool>,
}

/// A call that is under way.
struct OpenCall(watch::Sender<usize>);

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.send_modify(|calls| *calls -= 1);
    }
}

/// A call that a gauge counts.
struct Counted(IntGauge);

impl Counted {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl<A> Clone for Service<A> {
    fn clone(&self) -> Self {
        Self { plugin: Arc::clone(&self.plugin), calls: self.calls.clone(), is_ending: self.is_ending.clone() }
    }
}

impl<A: Answers> Service<A> {
    /// Calls of `plugin`, counted in `calls`, of a server that ends when `is_ending`.
    pub(crate) fn new(plugin: Arc<A>, calls: watch::Sender<usize>, is_ending: watch::Receiver<bool>) -> Self {
        Self { plugin, calls, is_ending }
    }

    /// Answers `request`, within a span if it is a call of a plugin.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Response<ReplyBody> {
        let Some((service, method)) =
            Method::at(request.uri().path()).map(|method| (method.service(), known(method.name())))
        else {
            return self.answer_within(request, &Span::default()).await;
        };
        let span = self.plugin.tracer().request(request.headers(), || format!("{service}/{method}"));
        span.note(|record| {
            record.set("rpc.system", "grpc");
            record.set("rpc.service", service);
            record.set("rpc.method", method);
            record.set("cmp_gateway.plugin", self.plugin.name());
        });
        span.instrument(self.answer_within(request, &span)).await
    }

    /// The answer comes when the client has sent everything: Argo CD reports an earlier one as `EOF`.
    async fn answer_within(self, request: Request<Incoming>, span: &Span) -> Response<ReplyBody> {
        self.calls.send_modify(|calls| *calls += 1);
        let _open = OpenCall(self.calls.clone());
        let began = Instant::now();
        let time = request.headers().get("grpc-timeout").and_then(|value| timeout::parse(value.to_str().ok()?));
        let deadline = time.map(|time| began + time.saturating_sub(EARLY));
        let (head, body) = request.into_parts();
        let mut messages = MessageReader::new(body);
        let path = head.uri.path();
        if reflection::is_path(path) {
            return reflection::serve(messages);
        }
        let method = Method::at(path);
        if path == CREDENTIALS {
            return self.plugin.credentials(messages).await;
        }
        let until = deadline.unwrap_or(began + DRAINING);
        let result = match method {
            Some(method) => {
                let _counted = Counted::new(self.plugin.under_way());
                self.call(method, &mut messages, deadline).await
            }
            None => match health::method(path) {
                Some(HealthMethod::Check) => health::check(&mut messages, &self.is_ending, until).await,
                Some(HealthMethod::List) => Ok(health::list(&self.is_ending)),
                Some(HealthMethod::Watch) => return health::watch(messages, self.is_ending.clone(), until).await,
                // Such a client may wait for an answer before it goes on.
                None => return reply::failure(&unimplemented(path)),
            },
        };
        // A deadline that has passed leaves the client's stream to the client.
        let _ = timeout_at(until, messages.drain()).await;
        let status = result.as_ref().err();
        if let Some(method) = method.map(Method::name) {
            self.plugin.called(known(method), status);
            span.note(|record| ended(record, status));
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            match status {
                // Relays ask again and again.
                None if method == "Describe" => tracing::debug!(method, took_ms, "call"),
                None => tracing::info!(method, took_ms, "call"),
                // Expected before a tree is sent.
                Some(status) if status.code == Code::FailedPrecondition => {
                    tracing::debug!(method, took_ms, error = %status, "call");
                }
                Some(status) => tracing::warn!(method, took_ms, code = ?status.code, error = %status, "call failed"),
            }
        }
        result.unwrap_or_else(|status| reply::failure(&status))
    }

    async fn call(
        &self,
        method: Method<'_>,
        messages: &mut MessageReader,
        deadline: Option<Instant>,
    ) -> Result<Response<ReplyBody>, Status> {
        let answering = self.plugin.call(method, messages, deadline);
        // A failed `MatchRepository` reads as "not this plugin's": it ends in time by itself, with a verdict.
        let Some(deadline) = deadline.filter(|_| method.name() != "MatchRepository") else { return answering.await };
        timeout_at(deadline, answering).await.unwrap_or_else(|_| {
            let message = format!("{} was not done at the caller's deadline", method.name());
            Err(Status { code: Code::DeadlineExceeded, message })
        })
    }
}

/// One of the methods' names. Anything else would make a new row of the metrics.
fn known(method: &str) -> &'static str {
    METHODS.into_iter().find(|known| *known == method).unwrap_or("other")
}

/// Notes how a call ended.
fn ended(record: &mut Record, status: Option<&Status>) {
    record.set("rpc.grpc.status_code", status.map_or(0, |status| status.code as i32));
    if let Some(status) = status {
        record.fail(format!("{:?}", status.code));
    }
}

/// There is no such method.
pub(crate) fn unimplemented(path: &str) -> Status {
    Status { code: Code::Unimplemented, message: format!("unknown method {path}") }
}
