//! The bare start of programs. The figures of the gateway's one-shot scripts are divided by this server's.
//!
//! `POST /{route}/api/v1/getparams.execute` runs the route's command by `tokio::process`, writes the body to its stdin and
//! answers with the list that it prints. The command of the route `worker` is started once, and asked in lines of JSON, one
//! question at a time. The token is compared, and nothing else is checked.
//!
//! It deliberately lacks everything else: a work folder, limits, cleaning up after programs, deadlines, helpful errors, logs,
//! metrics and a cache.
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
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::Mutex,
};

const AUTHORIZATION_EXPECTED: &[u8] = b"Bearer strong-password";

/// The route whose program stays.
const WORKER: &str = "worker";

type Commands = HashMap<String, Vec<String>>;

struct Spawn {
    commands: Commands,
    worker: Mutex<Option<Worker>>,
}

struct Worker {
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:4363".to_owned());
    let commands: Commands = serde_json::from_str(&std::env::var("SPAWN_COMMANDS")?)?;
    let router = Router::new()
        .route("/", get(StatusCode::OK))
        .route("/{route}/api/v1/getparams.execute", post(served))
        .with_state(Arc::new(Spawn { commands, worker: Mutex::default() }));
    let listener = tokio::net::TcpListener::bind(&address).await?;
    axum::serve(listener, router).await?;
    Ok(())
}

async fn served(
    State(spawn): State<Arc<Spawn>>,
    Path(route): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, StatusCode> {
    if headers.get(AUTHORIZATION).map(AsRef::as_ref) != Some(AUTHORIZATION_EXPECTED) {
        return Err(StatusCode::FORBIDDEN);
    }
    let command = spawn.commands.get(&route).ok_or(StatusCode::NOT_FOUND)?;
    let list = if route == WORKER { spawn.ask(command, &body).await } else { run(command, &body).await };
    let list = list.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let answer = json!({ "output": { "parameters": list } });
    Ok(([(CONTENT_TYPE, "application/json")], answer.to_string()).into_response())
}

impl Spawn {
    async fn ask(&self, command: &[String], body: &[u8]) -> anyhow::Result<Value> {
        let mut worker = self.worker.lock().await;
        if worker.is_none() {
            let (program, arguments) = command.split_first().context("an empty command")?;
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn()?;
            let (stdin, stdout) = (child.stdin.take().context("no stdin")?, child.stdout.take().context("no stdout")?);
            *worker = Some(Worker { stdin, stdout: BufReader::new(stdout).lines(), _child: child });
        }
        let worker = worker.as_mut().context("no worker")?;
        let request: Value = serde_json::from_slice(body)?;
        worker.stdin.write_all(format!("{}\n", json!({ "id": 1, "request": request })).as_bytes()).await?;
        let line = worker.stdout.next_line().await?.context("it has ended")?;
        let mut answer: Value = serde_json::from_str(&line)?;
        Ok(answer["output"].take())
    }
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
