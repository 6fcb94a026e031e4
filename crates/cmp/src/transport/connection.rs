//! One connection, spoken by hyper.

use std::{convert::Infallible, io, time::Duration};

use http::{Request, Response};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::grpc::reply::ReplyBody;

/// How much a client may send ahead on a stream, and on a connection, in bytes.
const WINDOW: u32 = 1024 * 1024;
/// How many streams a client may reset before they are handled. Each call of Argo CD may run into its deadline; hyper ends a connection
/// that has more.
const MAX_RESETS: usize = 10_000;
/// The largest fields of a request, in bytes.
const MAX_FIELDS: u32 = 64 * 1024;

/// How often a silent client on another machine is asked whether it is there, and how long it may take to answer.
const ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// On this machine: the kernel ends its connections with it.
    Local,
    /// On another one, which may vanish without a word.
    Remote,
}

/// Serves `stream` until the client closes it. hyper sends its SETTINGS at once, answers pings, and sends no GOAWAY by itself: a client
/// may use the connection as long as it wants.
///
/// # Errors
/// When the client breaks the protocol.
pub(crate) async fn serve<S, F>(
    stream: S,
    peer: Peer,
    answer: impl Fn(Request<Incoming>) -> F,
) -> Result<(), hyper::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Response<ReplyBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answering = answer(request);
        async move { Ok::<_, Infallible>(answering.await) }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(4 * WINDOW)
        .max_header_list_size(MAX_FIELDS)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_RESETS)
        .timer(TokioTimer::new())
        .keep_alive_interval((peer == Peer::Remote).then_some(ALIVE.0))
        .keep_alive_timeout(ALIVE.1)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

/// Waits after `accept` failed: at the limit of open files it fails at once, again and again.
pub(crate) async fn pause_after(error: &io::Error) {
    tracing::error!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
