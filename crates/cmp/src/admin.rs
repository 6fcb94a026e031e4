//! Probes and metrics, over HTTP/1.1.

use std::{convert::Infallible, fmt::Write as _, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::watch};

use crate::{metrics::Metrics, served::Served, transport::pause_after, trees::Trees};

/// What the pages are about.
#[derive(Debug)]
pub(crate) struct View {
    /// The counters.
    pub(crate) metrics: Arc<Metrics>,
    /// The plugins.
    pub(crate) plugins: Vec<Arc<Served>>,
    /// The trees.
    pub(crate) trees: Arc<Trees>,
    /// Whether the process is about to end.
    pub(crate) is_ending: watch::Receiver<bool>,
}

/// Serves `/livez`, `/readyz`, `/healthz` and `/metrics`.
pub(crate) async fn serve(listener: TcpListener, view: Arc<View>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let view = Arc::clone(&view);
                let service = service_fn(move |request| {
                    let answer = view.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let serving = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(serving);
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

impl View {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, text) = match request.uri().path() {
            _ if !is_read => (StatusCode::METHOD_NOT_ALLOWED, Vec::new()),
            "/readyz" if *self.is_ending.borrow() => (StatusCode::SERVICE_UNAVAILABLE, b"ending\n".to_vec()),
            "/livez" | "/healthz" | "/readyz" => (StatusCode::OK, b"ok\n".to_vec()),
            "/metrics" => (StatusCode::OK, self.metrics()),
            _ => (StatusCode::NOT_FOUND, b"/livez /readyz /metrics\n".to_vec()),
        };
        let mut response = Response::new(Full::new(text.into()));
        *response.status_mut() = status;
        response
    }

    /// The counters, and what is counted now.
    fn metrics(&self) -> Vec<u8> {
        let mut text = String::from_utf8_lossy(&self.metrics.text()).into_owned();
        let mut gauge = |name: &str, help: &str, values: Vec<(String, u64)>| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        };
        let loads: Vec<(String, (usize, usize))> = self
            .plugins
            .iter()
            .map(|plugin| (format!("{{plugin={:?}}}", plugin.plugin().full_name()), plugin.load()))
            .collect();
        let of = |pick: fn((usize, usize)) -> usize| -> Vec<(String, u64)> {
            loads.iter().map(|(labels, load)| (labels.clone(), pick(*load) as u64)).collect()
        };
        let (trees, bytes) = self.trees.size();
        gauge("cmp_gateway_running", "Programs that run.", of(|load| load.0));
        gauge("cmp_gateway_queued", "Calls that wait for a place to run.", of(|load| load.1));
        gauge("cmp_gateway_trees", "Trees on the disk.", vec![(String::new(), trees as u64)]);
        gauge("cmp_gateway_trees_bytes", "Their bytes.", vec![(String::new(), bytes)]);
        text.into_bytes()
    }
}
