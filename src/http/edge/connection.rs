//! One connection, from its first byte to its last.

use std::{
    convert::Infallible,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::Request,
    response::Response,
};
use futures_util::FutureExt as _;
use http::{HeaderValue, header};
use http_body_util::BodyExt as _;
use hyper::{
    body::Incoming,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tower::Service;

use super::{
    Client, Edge, Limits,
    executor::PollFirst,
    handshake::{Secured, shake},
    received::Received,
    strangers::Strangers,
    stream::{ConnectionPhase, ConnectionState, TimedStream},
    streams::Streams,
};
use crate::domain::lifecycle::Phase;

/// How many requests one HTTP/2 connection may have under way; RFC 9113, section 6.5.2, asks for no fewer.
const MAX_STREAMS: u32 = 100;
/// How large a request's head may be, in bytes.
const MAX_HEAD: u32 = 16 * 1024;
/// How many bytes an HTTP/2 client may send that were not read yet: as few as RFC 9113 allows to begin with (section 6.9.2).
const WINDOW: u32 = 65_535;
/// What TLS and HTTP/2 cost a connection besides, before a request, in bytes.
const TLS: usize = 16 * 1024;
const HTTP2: usize = 8 * 1024;
/// How often an HTTP/2 client is asked whether it is still there.
const PING: Duration = Duration::from_secs(20);

/// A connection, and what it is served with.
pub(crate) struct Watched {
    stream: TcpStream,
    client: Client,
    edge: Edge,
    router: Router,
    phase: watch::Receiver<Phase>,
}

/// How long a connection stays.
struct Stay {
    /// From when on it is to end after an answer.
    old: Instant,
    limits: Limits,
    phase: watch::Receiver<Phase>,
    drains_in: Phase,
    closes_in: Phase,
}

impl Watched {
    /// A connection that was accepted now.
    pub(crate) fn new(
        (stream, peer): (TcpStream, SocketAddr),
        edge: Edge,
        router: Router,
        phase: watch::Receiver<Phase>,
        strangers: &Arc<Strangers>,
    ) -> Self {
        // One address in either spelling, as a listener on `[::]` sees IPv4 peers.
        let peer = peer.ip().to_canonical();
        let stranger = Arc::new(strangers.enter());
        let client = Client { peer, peer_text: peer.to_string().into(), certificate: None, stranger };
        Self { stream, client, edge, router, phase }
    }

    /// Serves it until it ends, somebody took too long, or it is a stranger's and must make room for others.
    pub(crate) async fn serve(self) {
        let metrics = self.edge.metrics.clone();
        let _open = metrics.open();
        let stranger = Arc::clone(&self.client.stranger);
        let how = tokio::select! {
            how = self.serve_to_end() => how,
            () = stranger.crowded_out() => "crowded_out",
        };
        metrics.ended(how);
    }

    /// Each protocol has a future of its own size, so that a connection costs no more than the one that it speaks.
    async fn serve_to_end(self) -> &'static str {
        let Self { stream, client, edge, router, phase } = self;
        // Answers are small and written at once; without this the kernel could hold one back.
        let _ = stream.set_nodelay(true);
        let stay = Stay {
            old: Instant::now() + lifetime(edge.limits.max_age),
            limits: edge.limits,
            phase,
            drains_in: edge.drains_in,
            closes_in: edge.closes_in,
        };
        let Some(tls) = edge.tls.clone() else {
            let stream = Received::new(stream, Arc::clone(&client.stranger));
            return Box::pin(http1(stream, client, edge, router, stay)).await;
        };
        let shaken = shake(stream, &client.stranger, tls.server(), &edge.refusals.cleartext);
        let shaken = timeout(edge.limits.handshake, Box::pin(shaken)).await;
        match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(Secured { stream, certificate, is_h2 }) => {
                let client = Client { certificate, ..client };
                client.stranger.hold(TLS);
                if is_h2 {
                    Box::pin(http2(stream, client, edge, router, stay)).await
                } else {
                    Box::pin(http1(stream, client, edge, router, stay)).await
                }
            }
            Err(error) => {
                tracing::debug!(%error, peer = %client.peer, "no TLS connection came about");
                "no_handshake"
            }
        }
    }
}

async fn http1<S>(stream: S, client: Client, edge: Edge, router: Router, stay: Stay) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let state = Arc::new(ConnectionState::new(edge.limits, Arc::clone(&client.stranger)));
    let stream = TimedStream::new(stream, Arc::clone(&state), Arc::clone(&edge.refusals));
    let is_last = Arc::new(AtomicBool::new(false));
    let (turns, last) = (Arc::clone(&state), Arc::clone(&is_last));
    let service = service_fn(move |request: Request<Incoming>| {
        turns.turn(ConnectionPhase::Ours);
        let (turns, last) = (Arc::clone(&turns), Arc::clone(&last));
        let answer = answer(&router, &client, request);
        async move {
            let mut answer = answer.await;
            turns.answered(answer.as_ref().map_or(0, size));
            if last.load(Ordering::Relaxed)
                && let Ok(answer) = &mut answer
            {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    });
    // Who takes how long is decided here, by one timer that is looked at when it is due.
    let http = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(MAX_HEAD as usize)
        .max_buf_size(MAX_HEAD as usize)
        .serve_connection(TokioIo::new(stream), service);
    // A client is told with an answer that it is the last one: one that is cut off between two could have sent its next request.
    let leave = || {
        is_last.store(true, Ordering::Relaxed);
        false
    };
    stay.watch(http, || state.ends(), leave).await
}

async fn http2<S>(stream: S, client: Client, edge: Edge, router: Router, stay: Stay) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = Arc::new(Streams::new(edge.limits, Arc::clone(&client.stranger)));
    client.stranger.hold(HTTP2);
    let begun = Arc::clone(&streams);
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut stream, answer) = (begun.begin(request.headers()), answer(&router, &client, request));
        async move {
            let answer = answer.await;
            stream.answered(answer.as_ref().map_or(0, size));
            answer.map(|answer| answer.map(|body| body.map_err(stream.held_by())))
        }
    });
    let http = http2::Builder::new(PollFirst)
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_header_list_size(MAX_HEAD)
        .keep_alive_interval(PING)
        .keep_alive_timeout(edge.limits.patience)
        .serve_connection(TokioIo::new(stream), service);
    // What it has under way is finished, and what it sent meanwhile it may send again; but one request it shall have been answered.
    stay.watch(http, || streams.ends(), || streams.is_used()).await
}

/// The answer of `router` to a request of `client`.
fn answer(
    router: &Router,
    client: &Client,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response, Infallible>> + use<> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(client.clone());
    router.clone().call(request)
}

/// How large the body of an answer is, in bytes.
fn size(answer: &Response) -> usize {
    usize::try_from(answer.body().size_hint().lower()).unwrap_or(usize::MAX)
}

impl Stay {
    /// Lets `http` run until it ends, or somebody took too long, which is the case at the time that `ends` tells. Once it is to end after an
    /// answer, `leave` sees to that, or says that it can be shut down.
    async fn watch<C>(
        self,
        http: C,
        ends: impl Fn() -> (ConnectionPhase, Option<Instant>),
        leave: impl Fn() -> bool,
    ) -> &'static str
    where
        C: GracefulConnection<Error = hyper::Error>,
    {
        let Self { old, limits, phase, drains_in, closes_in } = self;
        let until = |wanted: Phase| {
            let mut phase = phase.clone();
            async move { drop(phase.wait_for(|phase| *phase >= wanted).await) }
        };
        let (mut draining, mut closing) = (pin!(until(drains_in).fuse()), pin!(until(closes_in).fuse()));
        let mut http = pin!(http);
        let mut timer = pin!(sleep_until(old.min(Instant::now() + limits.patience)));
        let (mut is_draining, mut is_closing, mut is_last) = (false, false, false);
        poll_fn(|cx| {
            loop {
                is_draining |= draining.as_mut().poll(cx).is_ready();
                is_closing |= closing.as_mut().poll(cx).is_ready();
                // Before an answer is made: it is to say so.
                if !is_last && (is_draining && leave() || is_closing) {
                    is_last = true;
                    http.as_mut().graceful_shutdown();
                }
                if let Poll::Ready(ended) = http.as_mut().poll(cx) {
                    return Poll::Ready(name_of(ended));
                }
                let (turn, end) = ends();
                if let Some(end) = end.filter(|end| *end < timer.deadline()) {
                    timer.as_mut().reset(end);
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let now = Instant::now();
                if end.is_some_and(|end| end <= now) {
                    return Poll::Ready(late(turn));
                }
                is_draining |= old <= now;
                let next = end.unwrap_or(now + limits.idle);
                timer.as_mut().reset(if is_draining { next } else { next.min(old) });
            }
        })
        .await
    }
}

/// How a connection ended that hyper is through with.
fn name_of(ended: hyper::Result<()>) -> &'static str {
    match ended {
        Ok(()) => "well",
        Err(error) if error.is_parse() => "malformed",
        Err(error) => {
            tracing::debug!(%error, "a connection ended early");
            "broken"
        }
    }
}

/// How a connection ends of which somebody took too long.
const fn late(turn: ConnectionPhase) -> &'static str {
    match turn {
        ConnectionPhase::Idle => "idle",
        ConnectionPhase::Head => "slow_head",
        ConnectionPhase::Taking | ConnectionPhase::Ours => "slow_reader",
    }
}

/// An age, spread a little, so that connections that began together do not end together.
fn lifetime(max_age: Duration) -> Duration {
    max_age.mul_f64(fastrand::f64().mul_add(0.1, 0.9))
}
