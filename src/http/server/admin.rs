//! The admin listener: probes, metrics, and the endpoints for operators. No probe depends on an upstream, because a failing upstream must not
//! restart a healthy gateway with its cache.

mod answers;
pub(crate) mod explain;
mod held;
mod hooks;
mod origin;
mod page;
mod questions;
mod shadow;
mod views;

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Router,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use futures_util::FutureExt;
use http::{HeaderMap, Method, StatusCode, Uri, header, request::Parts};
use serde::Serialize;
use serde_json::Value;

use super::{
    ReadBody, Sender, admit,
    completion::Completion,
    discard,
    error::{ApiError, Code},
    peer, read, refusal_of, wants_tls, wrong_method,
};
use crate::{
    app::App,
    http::edge::{Edge, Limits, Refusals},
    overview,
};
use auth::{Caller, Role};
use domain::{document::exact, lifecycle::Phase};
use engine::{guard::Decision, operators::Operator};
use telemetry::trace;

/// The message for callers without the role `admin`.
const NO_ADMIN: &str = "this needs a token with `role: admin`, see `auth`";
/// The message for callers that may not read either.
const NO_VIEWER: &str = "this needs a token with `role: admin` or `role: viewer`, see `auth`";

/// How many bytes all connections together may hold that are not authenticated yet.
const UNAUTHENTICATED: usize = 8 * 1024 * 1024;

/// The edge of the admin listener: as on the main listener, but with a certificate of its own and a smaller budget for unauthenticated clients.
#[must_use]
pub fn edge(app: &App) -> Edge {
    let edge = super::edge(app);
    let limits = Limits { unauthenticated: UNAUTHENTICATED, ..edge.limits };
    let refusals = Refusals { cleartext: wants_tls("server.adminTls"), ..Refusals::clone(&edge.refusals) };
    let (tls, refusals) = (app.admin_tls.clone(), Arc::new(refusals));
    // Probes are answered until the end, so that they see the drain.
    Edge { tls, limits, refusals, drains_in: Phase::Ended, closes_in: Phase::Ended, ..edge }
}

/// The present problems.
const STATUS: &str = "/admin/status";
/// The routes, and the answers that each serves.
const ROUTES: &str = "/admin/routes";
/// The destinations of the gateway's own requests.
const SOURCES: &str = "/admin/sources";
/// The last deliveries of hooks.
const EVENTS: &str = "/admin/events";
/// A source's result for a question now, and the answer to Argo CD.
const EXPLAIN: &str = "/admin/explain";
/// The remembered answers.
const ANSWERS: &str = "/admin/answers";
/// One of them, with its parameter sets.
const ANSWER: &str = "/admin/answers/{id}";
const INVALIDATE: &str = "/admin/answers/invalidate";
/// The configuration in use.
const CONFIG: &str = "/admin/config";
/// The held answers.
const HELD: &str = "/admin/held";
const RELEASE: &str = "/admin/held/{id}/release";
const REJECT: &str = "/admin/held/{id}/reject";

/// The paths that change nothing although they take a `POST`.
const READS_BY_POST: [&str; 2] = [EXPLAIN, CONCERNS];
/// The questions that an event would concern.
const CONCERNS: &str = "/admin/hooks/{name}/concerns";

/// The last questions, with their answers.
const QUESTIONS: &str = "/admin/questions";
/// The comparisons of routes with their shadows.
const SHADOW: &str = "/admin/shadow";

/// The router of the admin listener.
pub fn router(app: Arc<App>) -> Router {
    let decide = |template, decision: Decision| {
        post(move |State(app): State<Arc<App>>, id: Result<Path<String>, PathRejection>, request: Request| {
            let id = segment(id);
            authorized(app, template, request, async move |app: Arc<App>, request: OperatorRequest| {
                held::decide(app, &id, decision, request).await
            })
        })
        .fallback(post_only)
    };
    let answer = |State(app): State<Arc<App>>, id: Result<Path<String>, PathRejection>, request: Request| async move {
        let id = segment(id);
        authorized(app, ANSWER, request, async move |app, request| answers::show(app, &id, &request.uri).await).await
    };
    Router::new()
        .route("/livez", get(livez).fallback(wrong_method))
        .route("/startupz", get(startupz).fallback(wrong_method))
        .route("/readyz", get(readyz).fallback(wrong_method))
        .route("/metrics", get(metrics).fallback(wrong_method))
        .route(STATUS, viewed(STATUS, overview::status::status))
        .route(ROUTES, viewed(ROUTES, overview::routes::routes))
        .route(SOURCES, viewed(SOURCES, overview::sources::sources))
        .route(EVENTS, viewed(EVENTS, overview::events::events))
        .route(HELD, viewed(HELD, overview::held::held))
        .route(CONFIG, viewed(CONFIG, overview::config::config))
        .route(EXPLAIN, post(explain_question).fallback(post_only))
        .route(ANSWER, get(answer).fallback(wrong_method))
        .route(ANSWERS, get(list_answers).fallback(wrong_method))
        .route(INVALIDATE, post(invalidate).fallback(post_only))
        .route(RELEASE, decide(RELEASE, Decision::Released))
        .route(REJECT, decide(REJECT, Decision::Rejected))
        .route(QUESTIONS, get(list_questions).fallback(wrong_method))
        .route(SHADOW, get(list_shadows).fallback(wrong_method))
        .route(CONCERNS, post(concerns).fallback(post_only))
        .merge(page::router())
        .fallback(unknown_path)
        .with_state(app)
}

/// The segment of a path that the route names. One that is not UTF-8 is not the same as an empty one, and names nothing either.
fn segment(segment: Result<Path<String>, PathRejection>) -> String {
    segment.map_or_else(|_| char::REPLACEMENT_CHARACTER.to_string(), |Path(segment)| segment)
}

async fn livez() -> &'static str {
    "ok\n"
}

/// Passes once the gateway has its earlier answers: at once, or after the first contact with the shared store.
async fn startupz(State(app): State<Arc<App>>) -> Response {
    if app.engine.replica().is_none_or(|shared| shared.is_informed()) {
        "ok\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no contact with the shared store yet\n").into_response()
    }
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
    authorized(app, ANSWERS, request, async |app, request| answers::list(app, &request.uri).await).await
}

async fn invalidate(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, INVALIDATE, request, async |app, request| answers::invalidate(app, &request.body, request.by).await)
        .await
}

async fn explain_question(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, EXPLAIN, request, async |app, request| explain::post(app, &request.body).await).await
}

/// Answers `GET` of `template` with the view that `view` makes.
fn viewed<V: Serialize + Send + 'static>(template: &'static str, view: fn(&App) -> V) -> MethodRouter<Arc<App>> {
    get(move |State(app): State<Arc<App>>, request: Request| {
        authorized(app, template, request, async move |app, request: OperatorRequest| {
            views::view(app, &request.uri, view).await
        })
    })
    .fallback(wrong_method)
}

async fn list_questions(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, QUESTIONS, request, async |app, request| questions::list(app, &request.uri).await).await
}

async fn list_shadows(State(app): State<Arc<App>>, request: Request) -> Response {
    authorized(app, SHADOW, request, async |app, _| Ok(shadow::list(&app))).await
}

async fn concerns(
    State(app): State<Arc<App>>,
    name: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let name = segment(name);
    let work = async |app, request: OperatorRequest| hooks::concerns(app, &name, &request.headers, &request.body).await;
    authorized(app, CONCERNS, request, work).await
}

/// A request of an authenticated operator.
struct OperatorRequest {
    uri: Uri,
    headers: HeaderMap,
    body: ReadBody,
    by: Operator,
}

/// Whether the request only reads, by its method.
fn is_read(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
}

/// Why `caller` may not send the request with this `head`, which reads only (`only_reads`) or changes something. A page of another site must not make a
/// browser send it: a proxy before the gateway may add a token to any request of a browser.
fn unfit(head: &Parts, only_reads: bool, caller: &Caller) -> Option<ApiError> {
    if !is_read(head) && !origin::is_own(head) {
        return Some(ApiError::new(Code::Forbidden, origin::FOREIGN));
    }
    match caller.role {
        Role::Admin => None,
        Role::Viewer if only_reads => None,
        Role::Viewer => {
            let message =
                format!("the caller `{}` has the role `viewer`, which changes nothing; {NO_ADMIN}", caller.name);
            Some(ApiError::new(Code::Forbidden, message))
        }
        Role::Caller | Role::Sender if only_reads => Some(ApiError::new(Code::Forbidden, NO_VIEWER)),
        Role::Caller | Role::Sender => Some(ApiError::new(Code::Forbidden, NO_ADMIN)),
    }
}

/// Runs `work` for a caller whose token has the role that the request needs.
async fn authorized<F>(
    app: Arc<App>,
    template: &'static str,
    request: Request,
    work: impl FnOnce(Arc<App>, OperatorRequest) -> F,
) -> Response
where
    F: Future<Output = Result<Value, ApiError>>,
{
    let mut completion = Completion::start(Arc::clone(&app), &request, Some(template));
    let (head, body) = request.into_parts();
    let setup = app.setup();
    let only_reads = is_read(&head) || READS_BY_POST.contains(&template);
    let request_id = completion.request_id().to_owned();
    let mut by = Operator { caller: String::new(), request_id, reason: None };
    let refusal = match setup.auth.authenticate(&head.headers, peer(&head.extensions)).await {
        Ok(caller) => {
            admit(&head.extensions);
            by.caller.clone_from(&caller.name);
            let refusal = unfit(&head, only_reads, &caller);
            completion.caller = Some(caller);
            refusal
        }
        Err(refused) => {
            Some(refusal_of(&setup.auth, &head.extensions, refused, if only_reads { NO_VIEWER } else { NO_ADMIN }))
        }
    };
    if let Some(refusal) = refusal {
        drop(head);
        discard(body).await;
        return completion.refuse(refusal);
    }
    let steps = async {
        let body = read(&head.extensions, body, Sender::Known).await?;
        work(app, OperatorRequest { uri: head.uri, headers: head.headers, body, by }).await
    };
    let context = completion.span_context();
    match trace::at(context, AssertUnwindSafe(steps).catch_unwind()).await {
        Ok(Ok(answer)) => completion.reply(&answer),
        Ok(Err(error)) => completion.refuse(error),
        Err(_) => completion.refuse(ApiError::new(Code::Internal, "the gateway failed; its log says where")),
    }
}

/// Runs `work`, which reads files, on a thread that may block.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::new(Code::Internal, format!("the gateway failed: {error}")))
}

async fn unknown_path(State(app): State<Arc<App>>, request: Request) -> Response {
    let completion = Completion::start(app, &request, None);
    discard(request.into_body()).await;
    let message = "there is nothing at this path; the admin listener has /livez, /startupz, /readyz, /metrics, /admin/answers, \
                   /admin/config, /admin/events, /admin/explain, /admin/held, /admin/questions, /admin/routes, /admin/shadow, \
                   /admin/sources, /admin/status and /admin/hooks/<name>/concerns";
    completion.refuse(ApiError::new(Code::NotFound, message))
}

async fn post_only(State(app): State<Arc<App>>, request: Request) -> Response {
    let completion = Completion::start(app, &request, None);
    discard(request.into_body()).await;
    completion.refuse(ApiError::new(Code::MethodNotAllowed, "this path answers POST only").allow("POST"))
}

/// `view` as JSON.
fn to_json(view: &impl Serialize) -> Result<Value, ApiError> {
    exact::to_value(view).map_err(|error| ApiError::new(Code::Internal, format!("the view cannot be written: {error}")))
}
