//! The listener for hooks. A delivery is proven before it is read, taken, and answered at once: what it leads to happens in the background.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
    routing::any,
};
use http::{HeaderMap, Method, header, request::Parts};
use serde_json::json;

use super::{
    ELSEWHERE, HOOK, HOOK_WITH_TOKEN, PATIENCE, admit,
    completion::Completion,
    discard,
    error::{ApiError, Code},
    is_too_large, note_failure, of_stranger, peer, read, too_large,
};
use crate::{
    app::App,
    auth::{Auth, Role},
    domain::{glob::NameGlob, lifecycle::Phase},
    hooks::{Hook, Unproven},
    http::edge::{Edge, Limits},
};

/// How many bytes all connections together may hold on which nothing was proven yet.
const STRANGERS: usize = 32 * 1024 * 1024;

/// The edge of the listener for hooks: as on the main listener, with a budget of its own for strangers.
#[must_use]
pub fn edge(app: &App) -> Edge {
    let edge = super::edge(app);
    let limits = Limits { strangers: STRANGERS, ..edge.limits };
    Edge { limits, drains_in: Phase::Draining, closes_in: Phase::Closing, ..edge }
}

/// The router of the listener for hooks.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(
            HOOK,
            any(|State(app): State<Arc<App>>, name: Result<Path<String>, PathRejection>, request: Request| {
                let name = name.map_or_else(|_| String::new(), |Path(name)| name);
                serve(app, HOOK, name, None, request)
            }),
        )
        .route(
            HOOK_WITH_TOKEN,
            any(
                |State(app): State<Arc<App>>, path: Result<Path<(String, String)>, PathRejection>, request: Request| {
                    let (name, token) = path.map_or_else(|_| Default::default(), |Path(path)| path);
                    serve(app, HOOK_WITH_TOKEN, name, Some(token), request)
                },
            ),
        )
        .fallback(|State(app): State<Arc<App>>, request: Request| async move {
            // The path may have a token.
            let completion = Completion::start(app, &request, Some(ELSEWHERE));
            discard(request.into_body()).await;
            completion
                .refuse(ApiError::new(Code::NotFound, "there is nothing at this path; hooks are at POST /hooks/<name>"))
        })
        .with_state(app)
}

async fn serve(
    app: Arc<App>,
    template: &'static str,
    name: String,
    token: Option<String>,
    request: Request,
) -> Response {
    let completion = Completion::start(Arc::clone(&app), &request, Some(template));
    match take(&app, &name, token.as_deref(), request).await {
        Ok(outcome) => completion.accept(&json!({"result": outcome})),
        Err(error) => completion.refuse(error),
    }
}

/// Takes a delivery. Returns what became of it.
async fn take(app: &App, name: &str, token: Option<&str>, request: Request) -> Result<&'static str, ApiError> {
    let (head, body) = request.into_parts();
    let setup = app.setup();
    let Some(hook) = setup.hooks.by_name(name) else {
        discard(body).await;
        return Err(note_failure(
            &setup.auth,
            &head.extensions,
            ApiError::new(Code::NotFound, "there is no hook of this name"),
        ));
    };
    let count = |outcome: &'static str| app.metrics.hooks.delivered(&hook.name, outcome);
    // Nothing is proven yet.
    let note = |outcome: &'static str, error: &ApiError| {
        count(outcome);
        app.deliveries.add_unproven(&hook.name, &error.message, app.now());
    };
    if let Err(error) = check_head(&head.method, &head.headers) {
        note("malformed", &error);
        discard(body).await;
        return Err(error);
    }
    let prove = |body: &[u8]| {
        hook.verify(&head.headers, token, body, app.now()).map_err(|unproven| {
            let error = refusal(unproven);
            note("unproven", &error);
            if error.code == Code::Forbidden { note_failure(&setup.auth, &head.extensions, error) } else { error }
        })
    };
    let sender = match hook.callers() {
        Some(names) => may_send(&setup.auth, &head, names).await.inspect_err(|error| note("unproven", error)),
        None => Ok(()),
    };
    if let Err(error) = sender.and_then(|()| if hook.needs_body() { Ok(()) } else { prove(b"") }) {
        discard(body).await;
        return Err(error);
    }
    let body = read(body).await.inspect_err(|error| note("malformed", error))?;
    if hook.needs_body() {
        prove(&body)?;
    }
    admit(&head.extensions);
    let outcome = follow(app, hook, &head.headers, &body).await.inspect_err(|error| {
        count("malformed");
        app.deliveries.add(&hook.name, "malformed", Some(error.message.clone()), &[], app.now());
    })?;
    count(outcome);
    if outcome == "refused" {
        let error = ApiError::new(Code::Overloaded, "too many events wait to be looked at; send this one again later");
        return Err(error.retry_after(PATIENCE));
    }
    Ok(outcome)
}

fn check_head(method: &Method, headers: &HeaderMap) -> Result<(), ApiError> {
    if method != Method::POST {
        return Err(ApiError::new(Code::MethodNotAllowed, "hooks are called by POST").allow("POST"));
    }
    if headers.contains_key(header::CONTENT_ENCODING) {
        return Err(ApiError::new(
            Code::UnsupportedMediaType,
            "the body is compressed; send it without `Content-Encoding`",
        ));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("application/json");
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind != "application/json" && !kind.ends_with("+json") && kind != "text/plain" {
        let why = "the body must be JSON (`Content-Type: application/json`)";
        return Err(ApiError::new(Code::UnsupportedMediaType, why));
    }
    if is_too_large(headers) { Err(too_large()) } else { Ok(()) }
}

/// Checks that the sender is a caller with the role `sender`, whose name is among `names`.
async fn may_send(auth: &Auth, head: &Parts, names: &NameGlob) -> Result<(), ApiError> {
    let unknown = "this hook wants the token of a caller with `role: sender`, see `auth`";
    let caller = auth.authenticate(&head.headers, peer(&head.extensions)).await;
    let caller = caller.map_err(|refused| of_stranger(auth, &head.extensions, refused, unknown))?;
    if caller.role == Role::Sender && names.matches(&caller.name) {
        return Ok(());
    }
    let message = format!("`{}` may not send to this hook: it wants another `caller` with `role: sender`", caller.name);
    Err(ApiError::new(Code::Forbidden, message))
}

fn refusal(unproven: Unproven) -> ApiError {
    match unproven {
        Unproven::Wrong(why) => ApiError::new(Code::Forbidden, format!("the delivery is not proven: {why}")),
        // Where the secret should be is nothing for a stranger.
        Unproven::NoSecret(why) => {
            let why_not = "the hook's secret cannot be read; the gateway's log says why";
            let mut error = ApiError::new(Code::Unavailable, why_not);
            error.reason = Some(why.into());
            error
        }
    }
}

/// Hands a proven delivery to the task that follows events.
async fn follow(app: &App, hook: &Hook, headers: &HeaderMap, body: &[u8]) -> Result<&'static str, ApiError> {
    let delivery = hook.read(headers, body).await.map_err(|why| ApiError::new(Code::InvalidRequest, why))?;
    Ok(app.take_delivery(&hook.name, delivery).await)
}
