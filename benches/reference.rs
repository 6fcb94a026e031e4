//! The bare reference server. The gateway's performance figures are divided by this server's.
//!
//! It does the least that a plugin with a cache can do on the same stack, and gives the same
//! answers to the same requests: axum routes the request, the bearer token is compared, the body
//! is parsed by `serde_json`, the canonical text of the input is looked up in a moka cache, and the
//! bytes found there are the answer. The route `miss` asks the upstream named by `REFERENCE_UPSTREAM` and keeps nothing.
//!
//! It deliberately lacks everything else: configuration, logs, metrics, request ids, deadlines,
//! single flight, graceful shutdown, a token comparison in constant time, and errors that Argo CD
//! could show. It is a yardstick, not a server for anyone.
//!
//! Usage: `reference 127.0.0.1:4355`

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::{DefaultBodyLimit, Path, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::post,
};
use moka::sync::Cache;
use serde_json::{Value, json};

const AUTHORIZATION_EXPECTED: &[u8] = b"Bearer strong-password";
const BODY_LIMIT: usize = 1024 * 1024;
const CACHE_ENTRIES: u64 = 100_000;

const DIGEST_FRONT: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const DIGEST_BACK: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

struct Reference {
    answers: Cache<String, Bytes>,
    upstream: Option<Upstream>,
}

struct Upstream {
    client: reqwest::Client,
    url: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4355".to_owned());
    let state = Arc::new(Reference { answers: Cache::new(CACHE_ENTRIES), upstream: Upstream::from_environment()? });
    let router = Router::new()
        .route("/api/v1/getparams.execute", post(cached))
        .route("/{route}/api/v1/getparams.execute", post(routed))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(state);
    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

impl Upstream {
    /// The client is built only if it is needed: its trust store costs start time and memory.
    fn from_environment() -> anyhow::Result<Option<Self>> {
        let Ok(url) = std::env::var("REFERENCE_UPSTREAM") else {
            return Ok(None);
        };
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build()?;
        Ok(Some(Self { client, url }))
    }

    async fn parameters(&self, n: &str) -> anyhow::Result<Vec<Value>> {
        let url = format!("{}?n={n}", self.url);
        let body = self.client.get(url).send().await?.error_for_status()?.bytes().await?;
        let document: Value = serde_json::from_slice(&body)?;
        let items =
            document["items"].as_array().ok_or_else(|| anyhow::anyhow!("the upstream's document has no items"))?;
        Ok(items.iter().map(|item| json!({ "name": item["name"], "server": item["cluster"] })).collect())
    }
}

async fn cached(State(state): State<Arc<Reference>>, headers: HeaderMap, body: Bytes) -> Result<Response, StatusCode> {
    let input = authorized_input(&headers, &body)?;
    let key = canonical(input);
    if let Some(found) = state.answers.get(&key) {
        return Ok(answer(found));
    }
    let parameters = [json!({ "digestFront": DIGEST_FRONT, "digestBack": DIGEST_BACK })];
    let built = encode(&parameters)?;
    state.answers.insert(key, built.clone());
    Ok(answer(built))
}

async fn routed(
    State(state): State<Arc<Reference>>,
    Path(route): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, StatusCode> {
    let input = authorized_input(&headers, &body)?;
    let upstream = state.upstream.as_ref().filter(|_| route == "miss").ok_or(StatusCode::NOT_FOUND)?;
    let n = input["parameters"]["n"].as_str().ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
    let parameters = upstream.parameters(n).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    Ok(answer(encode(&parameters)?))
}

fn authorized_input(headers: &HeaderMap, body: &[u8]) -> Result<Value, StatusCode> {
    let token = headers.get(AUTHORIZATION).map(AsRef::as_ref);
    if token != Some(AUTHORIZATION_EXPECTED) {
        return Err(StatusCode::FORBIDDEN);
    }
    let mut query: Value = serde_json::from_slice(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(query["input"].take())
}

fn canonical(mut input: Value) -> String {
    input.sort_all_objects();
    input.to_string()
}

fn encode(parameters: &[Value]) -> Result<Bytes, StatusCode> {
    serde_json::to_vec(&json!({ "output": { "parameters": parameters } }))
        .map(Bytes::from)
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn answer(body: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
