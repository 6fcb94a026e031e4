//! From a request to a call, and from its result to an answer.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::{
    sync::watch,
    time::{Duration, Instant, timeout_at},
};

use crate::{
    grpc::{
        message::Empty,
        reader::MessageReader,
        reply::{self, ReplyBody},
        status::{Code, Status},
        timeout,
    },
    health::{self, HealthMethod},
    reflection,
    served::Served,
};
use telemetry::trace::{Record, Span};

/// The service of plugins.
const PLUGIN: &str = "/plugin.ConfigManagementPluginService/";
/// Its methods.
const METHODS: [&str; 4] =
    ["GenerateManifest", "MatchRepository", "GetParametersAnnouncement", "CheckPluginConfiguration"];
/// How long before the caller's deadline an answer is sent, as argocd-cmp-server does it.
const EARLY: Duration = Duration::from_millis(100);
/// How long a client without a deadline may take to send what nobody needs.
const DRAINING: Duration = Duration::from_mins(10);

/// Answers the calls of one socket.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    plugin: Arc<Served>,
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

impl Service {
    /// Calls of `plugin`, counted in `calls`, of a server that ends when `is_ending`.
    pub(crate) fn new(plugin: Arc<Served>, calls: watch::Sender<usize>, is_ending: watch::Receiver<bool>) -> Self {
        Self { plugin, calls, is_ending }
    }

    /// Answers `request`, within a span if it is a call of a plugin.
    pub(crate) async fn answer(self, request: Request<Incoming>) -> Response<ReplyBody> {
        let Some(method) = request.uri().path().strip_prefix(PLUGIN).map(known) else {
            return self.answer_within(request, &Span::default()).await;
        };
        let service = PLUGIN.trim_matches('/');
        let span = self.plugin.tracer().request(request.headers(), || format!("{service}/{method}"));
        span.note(|record| {
            record.set("rpc.system", "grpc");
            record.set("rpc.service", service);
            record.set("rpc.method", method);
            record.set("cmp_gateway.plugin", self.plugin.plugin().full_name());
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
        let method = path.strip_prefix(PLUGIN);
        let until = deadline.unwrap_or(began + DRAINING);
        let result = match method {
            Some(method) => self.call(method, &mut messages, deadline).await,
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
        if let Some(method) = method {
            self.plugin.called(known(method), status);
            span.note(|record| ended(record, status));
            let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            match status {
                None => tracing::info!(method, took_ms, "call"),
                Some(status) => tracing::warn!(method, took_ms, code = ?status.code, error = %status, "call failed"),
            }
        }
        result.unwrap_or_else(|status| reply::failure(&status))
    }

    async fn call(
        &self,
        method: &str,
        messages: &mut MessageReader,
        deadline: Option<Instant>,
    ) -> Result<Response<ReplyBody>, Status> {
        let plugin = &self.plugin;
        let answering = async {
            Ok(match method {
                "GenerateManifest" => reply::answer(&plugin.generate(messages, deadline).await?),
                "MatchRepository" => reply::answer(&plugin.match_repository(messages, deadline).await?),
                "GetParametersAnnouncement" => reply::answer(&plugin.parameters(messages, deadline).await?),
                "CheckPluginConfiguration" => {
                    messages.next::<Empty>().await?;
                    reply::answer(&plugin.check_configuration())
                }
                method => return Err(unimplemented(method)),
            })
        };
        // A failed `MatchRepository` reads as "not this plugin's": it ends in time by itself, with a verdict.
        let Some(deadline) = deadline.filter(|_| method != "MatchRepository") else { return answering.await };
        timeout_at(deadline, answering).await.unwrap_or_else(|_| {
            let message = format!("{method} was not done at the caller's deadline");
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

fn unimplemented(path: &str) -> Status {
    Status { code: Code::Unimplemented, message: format!("unknown method {path}") }
}
