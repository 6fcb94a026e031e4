//! The gateway without its own accept loop. The figures of that loop are divided by this server's.
//!
//! It reads the gateway's configuration and serves the gateway's own router with everything behind it, log lines and metrics
//! included. In cleartext it uses `axum::serve`, which the gateway's loop replaced. With `server.tls` it uses the least loop
//! that tokio-rustls and hyper allow, with the same certificate.
//!
//! It deliberately lacks what the loop is for: limits of connections and times, refusals in the gateway's form, counts of
//! connections, HTTP/2, a drain. It renews nothing and has no admin listener.
//!
//! Usage: `bare gateway.yaml`

use std::{path::Path, sync::Arc};

use anyhow::{Context, anyhow};
use appset_gateway::{
    app::App,
    config::{Loaded, Report},
    http::server,
};
use axum::{Router, body::Body, extract::Request, serve::ListenerExt as _};
use domain::clock::SystemClock;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use launcher::own_program;
use telemetry::log::{self, LogStream};
use tls::ServerTls;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1).context("which configuration? Usage: bare gateway.yaml")?;
    let wrong = |report: Report| anyhow!("{report}");
    let loaded = Loaded::read(Path::new(&file)).map_err(wrong)?;
    let config = loaded.config.as_ref().map_or_else(Default::default, |config| config.log);
    let (app, _) = App::build(loaded, Arc::new(SystemClock), own_program()).map_err(wrong)?;
    let _flush = log::init(config, LogStream::Stdout);
    let app = Arc::new(app);
    let listener = TcpListener::bind(app.setup().server.listen).await?;
    let router = server::router(Arc::clone(&app));
    match &app.tls {
        None => axum::serve(listener.tap_io(|stream| _ = stream.set_nodelay(true)), router).await?,
        Some(tls) => serve_tls(&listener, tls, &router).await?,
    }
    Ok(())
}

/// Serves `router` on each connection after its TLS handshake.
async fn serve_tls(listener: &TcpListener, tls: &ServerTls, router: &Router) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, router) = (TlsAcceptor::from(tls.server()), router.clone());
        tokio::spawn(async move {
            let stream = acceptor.accept(stream).await?;
            let service = service_fn(move |request: Request<Incoming>| router.clone().call(request.map(Body::new)));
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await?;
            anyhow::Ok(())
        });
    }
}
