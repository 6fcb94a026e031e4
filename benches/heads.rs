//! The bare lookup: two `HEAD`s at once to a registry, by an HTTP client set up like the gateway's, and nothing else. The
//! gateway's cost of a lookup is divided by this one's.
//!
//! It looks up in two ways.
//!
//! - The loop: `POST /loop?seconds=3&tasks=4` lets so many tasks look up pair after pair. It returns the number of pairs and
//!   the time for one. No request waits for a pair.
//! - The server: `POST /{route}/api/v1/getparams.execute` answers one pair, as the gateway would: the bearer token is
//!   compared, the tag is read from the body, the answer is JSON.
//!
//! It deliberately lacks everything else: a cache, deadlines, single flight, credentials, limits, logs, metrics, a second
//! request after a 404, and helpful errors.
//!
//! Usage: `HEADS_REGISTRY=127.0.0.1:5000 heads 127.0.0.1:4362`

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use axum::{
    Router,
    body::Bytes,
    extract::{Query, State},
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde::Deserialize;
use serde_json::{Value, json};

const AUTHORIZATION_EXPECTED: &[u8] = b"Bearer strong-password";
/// The gateway accepts these too.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
const DIGEST: &str = "docker-content-digest";
/// The tags that harness/registry.py pushes are `feature-branch-1` to `feature-branch-64`.
const TAGS: usize = 64;

struct Heads {
    client: reqwest::Client,
    registry: String,
    turns: AtomicUsize,
}

#[derive(Deserialize)]
struct Run {
    seconds: u64,
    tasks: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4362".to_owned());
    let registry = std::env::var("HEADS_REGISTRY").unwrap_or_else(|_| "127.0.0.1:5000".to_owned());
    let client = reqwest::Client::builder()
        .user_agent("heads")
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(Duration::from_secs(5))
        .pool_idle_timeout(Duration::from_mins(1))
        .tcp_nodelay(true)
        .build()?;
    let state = Arc::new(Heads { client, registry, turns: AtomicUsize::new(0) });
    let router = Router::new()
        .route("/", get(StatusCode::OK))
        .route("/loop", post(looped))
        .route("/{route}/api/v1/getparams.execute", post(served))
        .with_state(state);
    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

impl Heads {
    async fn pair(&self, tag: &str) -> anyhow::Result<(String, String)> {
        tokio::try_join!(self.digest("org/front", tag), self.digest("org/back", tag))
    }

    async fn digest(&self, repository: &str, tag: &str) -> anyhow::Result<String> {
        let url = format!("http://{}/v2/{repository}/manifests/{tag}", self.registry);
        let head = self.client.head(url).header(ACCEPT, MANIFESTS).header(ACCEPT_ENCODING, "identity");
        let reply = head.send().await?;
        ensure!(reply.status() == StatusCode::OK, "{}", reply.status());
        let digest = reply.headers().get(DIGEST).context("no digest")?;
        Ok(digest.to_str()?.to_owned())
    }

    /// Looks up pair after pair, each with another tag than the one before. Returns the time of each.
    async fn pairs(&self, until: Instant) -> anyhow::Result<Vec<Duration>> {
        let mut times = Vec::new();
        let mut began = Instant::now();
        while began < until {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed) % TAGS;
            self.pair(&format!("feature-branch-{}", turn + 1)).await?;
            let now = Instant::now();
            times.push(now - began);
            began = now;
        }
        Ok(times)
    }
}

async fn looped(State(state): State<Arc<Heads>>, Query(run): Query<Run>) -> Result<Response, StatusCode> {
    let began = Instant::now();
    let until = began + Duration::from_secs(run.seconds);
    let tasks: Vec<_> = (0..run.tasks)
        .map(|_| {
            let state = Arc::clone(&state);
            tokio::spawn(async move { state.pairs(until).await })
        })
        .collect();
    let mut times = Vec::new();
    for task in tasks {
        let of_task = task.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
        times.extend(of_task.map_err(|_| StatusCode::BAD_GATEWAY)?);
    }
    let took = began.elapsed();
    times.sort_unstable();
    let percentile = |n: usize| times.get(times.len() * n / 100).map_or(0.0, Duration::as_secs_f64) * 1e6;
    Ok(answer(&json!({
        "requests": times.len(),
        "duration_us": took.as_secs_f64() * 1e6,
        "p50_us": percentile(50),
        "p99_us": percentile(99),
    })))
}

async fn served(State(state): State<Arc<Heads>>, headers: HeaderMap, body: Bytes) -> Result<Response, StatusCode> {
    if headers.get(AUTHORIZATION).map(AsRef::as_ref) != Some(AUTHORIZATION_EXPECTED) {
        return Err(StatusCode::FORBIDDEN);
    }
    let query: Value = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let tag = query["input"]["parameters"]["branch"].as_str().ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
    let (front, back) = state.pair(tag).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(answer(&json!({ "output": { "parameters": [{ "digestFront": front, "digestBack": back }] } })))
}

fn answer(document: &Value) -> Response {
    ([(CONTENT_TYPE, "application/json")], document.to_string()).into_response()
}
