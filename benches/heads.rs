//! The bare lookup: two `HEAD`s at once to a registry, by an HTTP client set up like the gateway's, and nothing else. The
//! gateway's cost of a lookup is divided by this one's.
//!
//! `POST /{route}/api/v1/getparams.execute` answers one pair, as the gateway would: the bearer token is compared, the tag is
//! read from the body, the answer is JSON.
//!
//! It deliberately lacks everything else: a cache, deadlines, single flight, credentials, limits, logs, metrics, a second
//! request after a 404, and helpful errors.
//!
//! Usage: `HEADS_REGISTRY=127.0.0.1:5000 heads 127.0.0.1:4362`

use std::{sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{
        HeaderMap, StatusCode,
        header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};

const AUTHORIZATION_EXPECTED: &[u8] = b"Bearer strong-password";
/// The gateway accepts these too.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, \
                         application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
const DIGEST: &str = "docker-content-digest";

struct Heads {
    client: reqwest::Client,
    registry: String,
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
    let state = Arc::new(Heads { client, registry });
    let router = Router::new()
        .route("/", get(StatusCode::OK))
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
