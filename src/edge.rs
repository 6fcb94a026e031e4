//! The accept loop: connections in, a router behind, and an end that finishes what was started.
//! Cleartext HTTP/1.1 only.

use std::{io, pin::pin, time::Duration};

use axum::{Router, body::Body, extract::Request};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};
use tower::Service;

/// How long a request's head may take to arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before accepting again when descriptors have run out.
const BREATH: Duration = Duration::from_millis(100);

/// Serves `router` on `listener` until `shutdown` ends, then stops accepting and finishes the requests
/// under way within `finish`. Whether all of them were finished.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()>,
    finish: Duration,
) -> bool {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).pipeline_flush(true);
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut shutdown => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                rest_after(&error).await;
                continue;
            }
        };
        // Answers are small and written at once; without this the kernel could hold one back.
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        let service = service_fn(move |request: Request<Incoming>| router.clone().call(request.map(Body::new)));
        let connection = graceful.watch(http.serve_connection(TokioIo::new(stream), service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }
    drop(listener);
    timeout(finish, graceful.shutdown()).await.is_ok()
}

/// Errors of one connection that was gone before it was accepted are of no interest; others are, and
/// trying again at once would only burn a core.
async fn rest_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "cannot accept connections");
        sleep(BREATH).await;
    }
}
