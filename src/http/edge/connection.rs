//! One connection: handshake, protocol, timeouts and the end.

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

use super::{
    ConnectionInfo, Edge, Limits,
    budget::Budget,
    executor::PollFirst,
    handshake::{Secured, shake},
    received::Received,
    site::Site,
    stream::{ConnectionPhase, ConnectionState, TimedStream},
    streams::Streams,
};
use domain::lifecycle::Phase;

/// How many requests one HTTP/2 connection may have under way; RFC 9113, section 6.5.2, asks for no fewer.
const MAX_STREAMS: u32 = 100;
/// How large a request's head may be, in bytes.
const MAX_HEAD: u32 = 16 * 1024;
/// How many unread bytes an HTTP/2 client may send: the smallest initial window of RFC 9113 (section 6.9.2).
const WINDOW: u32 = 65_535;
/// The memory of a TLS session before the first request, in bytes.
const TLS_BYTES: usize = 16 * 1024;
/// The memory of an HTTP/2 session before the first request, in bytes.
const HTTP2_BYTES: usize = 8 * 1024;
/// How often an HTTP/2 client must show that it is still there.
const PING: Duration = Duration::from_secs(20);

/// A connection, and everything that serving it needs.
pub(crate) struct Watched {
    stream: TcpStream,
    client: ConnectionInfo,
    edge: Edge,
    site: Site,
    phase: watch::Receiver<Phase>,
}

/// When a connection is closed.
struct Stay {
    /// When it reaches its maximum age. It is then closed after its next answer.
    old: Instant,
    limits: Limits,
    phase: watch::Receiver<Phase>,
    drains_in: Phase,
    closes_in: Phase,
}

impl Watched {
    /// A connection that was just accepted.
    pub(crate) fn new(
        (stream, peer): (TcpStream, SocketAddr),
        edge: Edge,
        site: Site,
        phase: watch::Receiver<Phase>,
        (unauthenticated, bodies): (&Arc<Budget>, &Arc<Budget>),
    ) -> Self {
        // A listener on `[::]` sees IPv4 peers as IPv6 addresses; both count as one address.
        let peer = peer.ip().to_canonical();
        let share = Arc::new(unauthenticated.connection());
        let client = ConnectionInfo {
            peer,
            peer_text: peer.to_string().into(),
            certificate: None,
            share,
            bodies: Arc::clone(bodies),
        };
        Self { stream, client, edge, site, phase }
    }

    /// Serves the connection until it ends, times out, or is closed to free memory of the budget of unauthenticated clients.
    pub(crate) async fn serve(self) {
        let metrics = self.edge.metrics.clone();
        let _open = metrics.open();
        let share = Arc::clone(&self.client.share);
        let reason = tokio::select! {
            reason = self.serve_to_end() => reason,
            () = share.crowded_out() => "crowded_out",
        };
        metrics.ended(reason);
    }

    /// Serves the connection to its end, and returns the reason. Each protocol has a boxed future of its own, so that a connection
    /// only pays for the protocol that it speaks.
    async fn serve_to_end(self) -> &'static str {
        let Self { stream, client, edge, site, phase } = self;
        // Answers are small and written at once. Nagle's algorithm would delay them.
        let _ = stream.set_nodelay(true);
        let stay = Stay {
            old: Instant::now() + lifetime(edge.limits.max_age),
            limits: edge.limits,
            phase,
            drains_in: edge.drains_in,
            closes_in: edge.closes_in,
        };
        let Some(tls) = edge.tls.clone() else {
            let stream = Received::new(stream, Arc::clone(&client.share));
            return Box::pin(http1(stream, client, edge, site, stay)).await;
        };
        let shaken = shake(stream, &client.share, tls.server(), &edge.refusals.cleartext);
        let shaken = timeout(edge.limits.handshake, Box::pin(shaken)).await;
        match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(Secured { stream, certificate, is_h2 }) => {
                let client = ConnectionInfo { certificate, ..client };
                client.share.hold(TLS_BYTES);
                if is_h2 {
                    Box::pin(http2(stream, client, edge, site, stay)).await
                } else {
                    Box::pin(http1(stream, client, edge, site, stay)).await
                }
            }
            Err(error) => {
                tracing::debug!(%error, peer = %client.peer, "the TLS handshake failed");
                "no_handshake"
            }
        }
    }
}

async fn http1<S>(stream: S, client: ConnectionInfo, edge: Edge, site: Site, stay: Stay) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let state = Arc::new(ConnectionState::new(edge.limits, Arc::clone(&client.share)));
    let stream = TimedStream::new(stream, Arc::clone(&state), Arc::clone(&edge.refusals));
    let is_last = Arc::new(AtomicBool::new(false));
    let (service_state, service_is_last) = (Arc::clone(&state), Arc::clone(&is_last));
    let service = service_fn(move |request: Request<Incoming>| {
        service_state.enter(ConnectionPhase::Answering);
        let (state, is_last) = (Arc::clone(&service_state), Arc::clone(&service_is_last));
        let answer = answer(&site, &client, request);
        async move {
            let mut answer = answer.await;
            state.answered(answer.as_ref().map_or(0, size));
            if is_last.load(Ordering::Relaxed)
                && let Ok(answer) = &mut answer
            {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    });
    // hyper's own timer is off: `Stay::watch` has one timer for all timeouts of the connection.
    let http = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(MAX_HEAD as usize)
        .max_buf_size(MAX_HEAD as usize)
        .serve_connection(TokioIo::new(stream), service);
    // The last answer says `Connection: close`. A client that is cut off between two requests may just have sent the next one.
    let announce_end = || {
        is_last.store(true, Ordering::Relaxed);
        false
    };
    stay.watch(http, || state.deadline(), announce_end).await
}

async fn http2<S>(stream: S, client: ConnectionInfo, edge: Edge, site: Site, stay: Stay) -> &'static str
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let streams = Arc::new(Streams::new(edge.limits, Arc::clone(&client.share)));
    client.share.hold(HTTP2_BYTES);
    let service_streams = Arc::clone(&streams);
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut stream, answer) = (service_streams.begin(request.headers()), answer(&site, &client, request));
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
    // GOAWAY lets requests under way finish, and the client may repeat later ones elsewhere. It waits for the first request, so that
    // each connection gets at least one answer.
    stay.watch(http, || streams.deadline(), || streams.is_used()).await
}

/// The answer of `site` to a request of `client`.
fn answer(
    site: &Site,
    client: &ConnectionInfo,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response, Infallible>> + use<> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(client.clone());
    site.answer(request)
}

/// The size of an answer's body, in bytes.
fn size(answer: &Response) -> usize {
    usize::try_from(answer.body().size_hint().lower()).unwrap_or(usize::MAX)
}

impl Stay {
    /// Runs `http` until it ends or times out, and returns the reason. `deadline` is the step that the connection waits for, and its end. When
    /// the connection is to end, `announce_end` is called; it returns whether the graceful shutdown may start now.
    async fn watch<C>(
        self,
        http: C,
        deadline: impl Fn() -> (ConnectionPhase, Option<Instant>),
        announce_end: impl Fn() -> bool,
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
                // Before `http` is polled, because the answer that it writes may be the last one.
                if !is_last && (is_draining && announce_end() || is_closing) {
                    is_last = true;
                    http.as_mut().graceful_shutdown();
                }
                if let Poll::Ready(ended) = http.as_mut().poll(cx) {
                    return Poll::Ready(end_reason(ended));
                }
                let (waits_for, end) = deadline();
                if let Some(end) = end
                    && end < timer.deadline()
                {
                    timer.as_mut().reset(end);
                }
                if timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                let now = Instant::now();
                if end.is_some_and(|end| end <= now) {
                    return Poll::Ready(timeout_reason(waits_for));
                }
                is_draining |= old <= now;
                let next = end.unwrap_or(now + limits.idle);
                timer.as_mut().reset(if is_draining { next } else { next.min(old) });
            }
        })
        .await
    }
}

/// The reason why hyper ended a connection.
fn end_reason(ended: hyper::Result<()>) -> &'static str {
    match ended {
        Ok(()) => "well",
        Err(error) if error.is_parse() => "malformed",
        Err(error) => {
            tracing::debug!(%error, "a connection ended early");
            "broken"
        }
    }
}

/// The reason when a connection times out.
const fn timeout_reason(waits_for: ConnectionPhase) -> &'static str {
    match waits_for {
        ConnectionPhase::Idle => "idle",
        ConnectionPhase::Head => "slow_head",
        ConnectionPhase::Sending | ConnectionPhase::Answering => "slow_reader",
    }
}

/// The maximum age, spread by 10 %, so that connections that began together do not end together.
fn lifetime(max_age: Duration) -> Duration {
    max_age.mul_f64(fastrand::f64().mul_add(0.1, 0.9))
}
