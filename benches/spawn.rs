//! The bare start of programs: what one-shot scripts of `appset-gateway` are divided by.
//!
//! `POST /{route}/api/v1/getparams.execute` runs the route's command by `tokio::process`, feeds it the body and answers with
//! the list that it prints. The token is compared; that is all.
//!
//! It deliberately lacks everything else: a work folder, limits, an end of what the program leaves behind, deadlines, errors
//! that tell anything, logs, metrics and a cache.
//!
//! Usage: `SPAWN_COMMANDS='{"cat": ["/bin/cat", "list.json"]}' spawn 127.0.0.1:4363`

use std::{collections::HashMap, process::Stdio, sync::Arc};

use anyhow::Context;
use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{
        HeaderMap, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE},
    },
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command};

const AUTHORIZATION_EXPECTED: &[u8] = b"Bearer strong-password";

type Commands = HashMap<String, Vec<String>>;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4363".to_owned());
    let commands: Commands = serde_json::from_str(&std::env::var("SPAWN_COMMANDS")?)?;
    let router = Router::new()
        .route("/", get(StatusCode::OK))
        .route("/{route}/api/v1/getparams.execute", post(served))
        .with_state(Arc::new(commands));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

async fn served(
    State(commands): State<Arc<Commands>>,
    Path(route): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, StatusCode> {
    if headers.get(AUTHORIZATION).map(AsRef::as_ref) != Some(AUTHORIZATION_EXPECTED) {
        return Err(StatusCode::FORBIDDEN);
    }
    let command = commands.get(&route).ok_or(StatusCode::NOT_FOUND)?;
    let list = run(command, &body).await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let answer = json!({ "output": { "parameters": list } });
    Ok(([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response())
}

async fn run(command: &[String], input: &[u8]) -> anyhow::Result<Value> {
    let (program, arguments) = command.split_first().context("an empty command")?;
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(input).await;
    }
    let output = child.wait_with_output().await?;
    anyhow::ensure!(output.status.success(), "{}", output.status);
    Ok(serde_json::from_slice(&output.stdout)?)
}
