//! The upstream of the miss scenario: `GET /v1/items` answers ten items, the same every time.
//!
//! It deliberately lacks authentication, paging, latency and failures: it stands on the client's
//! core and should take as little of it as possible, so that the figures are the gateway's own.
//!
//! Usage: `upstream 127.0.0.1:4360`

use axum::{
    Router,
    body::Bytes,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};

const NAMES: &str = "abcdefghij";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4360".to_owned());
    let document = Bytes::from(serde_json::to_vec(&document())?);
    let router = Router::new().route("/v1/items", get(move || std::future::ready(answer(document.clone()))));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

fn document() -> Value {
    let items: Vec<Value> =
        NAMES.chars().map(|name| json!({ "name": name, "cluster": format!("https://{name}") })).collect();
    json!({ "items": items })
}

fn answer(body: Bytes) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}
