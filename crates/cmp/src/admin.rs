//! Probes and metrics, over HTTP/1.1.

use std::{convert::Infallible, fmt::Write as _, io, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpListener, sync::watch};

use crate::{
    metrics::Metrics,
    served::Served,
    transport::{listener::shown_address, pause_after},
    trees::Trees,
};

/// A number that is read when it is shown.
pub(crate) struct Gauge {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it counts.
    pub(crate) help: &'static str,
    /// Labels, with braces or empty, and values.
    pub(crate) values: Vec<(String, u64)>,
}

/// What a server shows beyond its counters.
pub(crate) trait Pages: Send + Sync + 'static {
    /// What is counted now.
    fn gauges(&self) -> Vec<Gauge>;

    /// What `/status` says, if there is that page.
    fn status(&self) -> Option<serde_json::Value> {
        None
    }
}

/// The pages of a server of plugins.
pub(crate) struct PluginPages {
    /// The plugins.
    pub(crate) plugins: Vec<Arc<Served>>,
    /// The trees.
    pub(crate) trees: Arc<Trees>,
}

impl Pages for PluginPages {
    fn gauges(&self) -> Vec<Gauge> {
        let loads: Vec<(String, (usize, usize))> = self
            .plugins
            .iter()
            .map(|plugin| (format!("{{plugin={:?}}}", plugin.plugin().full_name()), plugin.load()))
            .collect();
        let of = |pick: fn((usize, usize)) -> usize| -> Vec<(String, u64)> {
            loads.iter().map(|(labels, load)| (labels.clone(), pick(*load) as u64)).collect()
        };
        let (trees, bytes) = self.trees.size();
        let one = |value| vec![(String::new(), value)];
        vec![
            Gauge { name: "cmp_gateway_running", help: "Programs that run.", values: of(|load| load.0) },
            Gauge {
                name: "cmp_gateway_queued",
                help: "Calls that wait for a place to run.",
                values: of(|load| load.1),
            },
            Gauge { name: "cmp_gateway_trees", help: "Trees on the disk.", values: one(trees as u64) },
            Gauge { name: "cmp_gateway_trees_bytes", help: "Their bytes.", values: one(bytes) },
        ]
    }
}

/// What is served.
struct View {
    metrics: Arc<Metrics>,
    is_ending: watch::Receiver<bool>,
    pages: Arc<dyn Pages>,
}

/// Begins to serve at `address`.
///
/// # Errors
/// When it cannot be listened at.
pub(crate) async fn listen(
    address: SocketAddr,
    metrics: Arc<Metrics>,
    is_ending: watch::Receiver<bool>,
    pages: Arc<dyn Pages>,
) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = shown_address(&listener, address), "serving probes and metrics");
    tokio::spawn(serve(listener, Arc::new(View { metrics, is_ending, pages })));
    Ok(())
}

/// Serves `/livez`, `/readyz`, `/healthz`, `/metrics` and `/status`.
async fn serve(listener: TcpListener, view: Arc<View>) {
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
            "/status" => match self.pages.status() {
                Some(status) => (StatusCode::OK, format!("{status}\n").into_bytes()),
                None => (StatusCode::NOT_FOUND, b"only a relay has a status\n".to_vec()),
            },
            _ => (StatusCode::NOT_FOUND, b"/livez /readyz /metrics\n".to_vec()),
        };
        let mut response = Response::new(Full::new(text.into()));
        *response.status_mut() = status;
        response
    }

    /// The counters, and what is counted now.
    fn metrics(&self) -> Vec<u8> {
        let mut text = String::from_utf8_lossy(&self.metrics.text()).into_owned();
        for Gauge { name, help, values } in self.pages.gauges() {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for (labels, value) in values {
                let _ = writeln!(text, "{name}{labels} {value}");
            }
        }
        text.into_bytes()
    }
}
