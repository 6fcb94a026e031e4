//! The admin listener: probes, metrics, and what operators see and do. No probe depends on an upstream: one that did
//! would restart a healthy gateway, and its cache with it, because something else is ill.

mod answers;
mod config;
mod held;

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use axum::{
    Router,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{StatusCode, Uri, header};
use serde_json::Value;

use super::{
    admit,
    completion::Completion,
    discard,
    error::{ApiError, Code},
    of_stranger, peer, read, wrong_method,
};
use crate::{
    app::App,
    auth::Role,
    domain::{clock::Timestamp, lifecycle::Phase},
    engine::{answer::admin_ops::Operator, guard::Decision},
    http::edge::{Edge, Limits},
    telemetry::trace,
};

/// What whoever may not do what it asks for is told.
const NO_ADMIN: &str = "this needs a token with `role: admin`, see `auth`";

/// How much memory connections may hold together on which nobody has authenticated yet, in bytes.
const STRANGERS: usize = 8 * 1024 * 1024;

/// What a connection of the admin listener is served with: as on the main one, but in cleartext, and with less for strangers.
#[must_use]
pub fn edge(app: &App) -> Edge {
    let edge = super::edge(app);
    let limits = Limits { strangers: STRANGERS, ..edge.limits };
    // Probes are answered until the end, so that they see the drain.
    Edge { tls: None, limits, drains_in: Phase::Ended, closes_in: Phase::Ended, ..edge }
}

/// What is remembered.
const ANSWERS: &str = "/admin/answers";
const INVALIDATE: &str = "/admin/answers/invalidate";
/// Which configuration is in use.
const CONFIG: &str = "/admin/config";
/// What is held.
const HELD: &str = "/admin/held";
const RELEASE: &str = "/admin/held/{id}/release";
const REJECT: &str = "/admin/held/{id}/reject";

/// The router of the admin listener.
pub fn router(app: Arc<App>) -> Router {
    let decide = |template, decision: Decision| {
        post(move |State(app): State<Arc<App>>, id: Result<Path<String>, PathRejection>, request: Request| {
            let id = id.map_or_else(|_| String::new(), |Path(id)| id);
            authorized(app, template, request, async move |app: Arc<App>, asked: Asked| {
                held::decide(app, &id, decision, &asked.by).await
            })
        })
        .fallback(post_only)
    };
    Router::new()
        .route("/livez", get(livez).fallback(wrong_method))
        .route("/readyz", get(readyz).fallback(wrong_method))
        .route("/metrics", get(metrics).fallback(wrong_method))
        .route(ANSWERS, get(list_answers).fallback(wrong_method))
        .route(INVALIDATE, post(invalidate).fallback(post_only))
        .route(CONFIG, get(tell_config).fallback(wrong_method))
        .route(HELD, get(list_held).fallback(wrong_method))
        .route(RELEASE, decide(RELEASE, Decision::Released))
        .route(REJECT, decide(REJECT, Decision::Rejected))
        .fallback(unknown_path)
        .with_state(app)
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.lifecycle.phase() >= Phase::Draining {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response()
    } else {
        "ok\n".into_response()
    }
}

async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response {
    app.observe();
    match app.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => Completion::start(app, &request, None)
            .refuse(ApiError::new(Code::Internal, format!("the metrics cannot be written: {error}"))),
    }
}

async fn list_answers(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, ANSWERS, request, async |app, asked| answers::list(app, &asked.uri).await).await
}

async fn invalidate(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, INVALIDATE, request, async |app, asked| answers::invalidate(app, &asked.body, asked.by).await).await
}

async fn tell_config(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, CONFIG, request, async |app, _| Ok(config::tell(&app))).await
}

async fn list_held(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, HELD, request, async |app, _| Ok(held::list(&app))).await
}

/// What an operator asks for.
struct Asked {
    uri: Uri,
    body: Bytes,
    by: Operator,
}

/// Does `work` for a caller whose token has the role `admin`.
async fn authorized<F>(
    app: Arc<App>,
    template: &'static str,
    request: Request,
    work: impl FnOnce(Arc<App>, Asked) -> F,
) -> Response
where
    F: Future<Output = Result<Value, ApiError>>,
{
    let mut completion = Completion::start(Arc::clone(&app), &request, Some(template));
    let (head, body) = request.into_parts();
    let setup = app.setup();
    let mut by = Operator { caller: String::new(), request_id: completion.request_id().to_owned() };
    let refusal = match setup.auth.authenticate(&head.headers, peer(&head.extensions)).await {
        Ok(caller) => {
            admit(&head.extensions);
            let is_admin = caller.role == Role::Admin;
            by.caller.clone_from(&caller.name);
            completion.caller = Some(caller);
            (!is_admin).then(|| ApiError::new(Code::Forbidden, NO_ADMIN))
        }
        Err(refused) => Some(of_stranger(&setup.auth, &head.extensions, refused, NO_ADMIN)),
    };
    if let Some(refusal) = refusal {
        drop(head);
        discard(body).await;
        return completion.refuse(refusal);
    }
    let steps = async {
        let body = read(body).await?;
        work(app, Asked { uri: head.uri, body, by }).await
    };
    let place = completion.place();
    match trace::at(place, AssertUnwindSafe(steps).catch_unwind()).await {
        Ok(Ok(told)) => completion.tell(&told),
        Ok(Err(error)) => completion.refuse(error),
        Err(_) => completion.refuse(ApiError::new(Code::Internal, "the gateway failed; its log says where")),
    }
}

/// Runs what reads files, off the threads that serve.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::new(Code::Internal, format!("the gateway failed: {error}")))
}

async fn unknown_path(State(app): State<Arc<App>>, request: Request) -> Response {
    let completion = Completion::start(app, &request, None);
    discard(request.into_body()).await;
    let message = "there is nothing at this path; the admin listener has /livez, /readyz, /metrics, /admin/answers, \
                   /admin/config and /admin/held";
    completion.refuse(ApiError::new(Code::NotFound, message))
}

async fn post_only(State(app): State<Arc<App>>, request: Request) -> Response {
    let completion = Completion::start(app, &request, None);
    discard(request.into_body()).await;
    completion.refuse(ApiError::new(Code::MethodNotAllowed, "this path answers POST only").allow("POST"))
}

/// A time as people and programs read it.
fn rfc3339(time: Timestamp) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(time.0)).to_string()
}
