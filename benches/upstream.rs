//! The upstream of two scenarios.
//!
//! - The miss: `GET /v1/items` always answers the same ten items. It deliberately lacks authentication, paging, latency and
//!   failures: it shares the client's core and should take as little of it as possible, so that the figures are the gateway's
//!   own.
//! - The soak: `GET /v1/items/7` answers ten items that name the 7, about 4 KiB together, and the `turn` of the answer,
//!   which rises. Every 50th request of this kind fails.
//!
//! Usage: `upstream 127.0.0.1:4360`

use std::sync::atomic::{AtomicU64, Ordering};

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};

const NAMES: &str = "abcdefghij";
/// One of so many numbered requests fails.
const FAILS: u64 = 50;
/// The size of the filling of a numbered item, in bytes.
const FILLER: usize = 340;

static TURNS: AtomicU64 = AtomicU64::new(0);

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4360".to_owned());
    let document = Bytes::from(serde_json::to_vec(&document())?);
    let router = Router::new()
        .route("/v1/items", get(move || std::future::ready(answer(document.clone()))))
        .route("/v1/items/{n}", get(async |Path(n): Path<String>| numbered(&n)));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

fn numbered(n: &str) -> Response {
    let turn = TURNS.fetch_add(1, Ordering::Relaxed);
    if turn % FAILS == FAILS - 1 {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let filler = "x".repeat(FILLER);
    let items: Vec<Value> = NAMES
        .chars()
        .map(|name| json!({ "name": format!("{n}-{name}"), "turn": turn.to_string(), "filler": filler }))
        .collect();
    answer(json!({ "items": items }).to_string().into())
}

fn document() -> Value {
    let items: Vec<Value> =
        NAMES.chars().map(|name| json!({ "name": name, "cluster": format!("https://{name}") })).collect();
    json!({ "items": items })
}

fn answer(body: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
