//! The listener for hooks. A delivery is proven before it is read if that is possible, taken, and answered at once: what it leads to happens in
//! the background. A body that must prove its sender counts against the memory budget of unauthenticated clients.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse as _, Response},
    routing::any,
};
use http::{HeaderMap, Method, header, request::Parts};
use serde_json::json;

use super::{
    ELSEWHERE, HOOK, HOOK_WITH_TOKEN, PATIENCE, Sender, admit,
    completion::Completion,
    discard,
    error::{ApiError, Code},
    is_too_large, note_failure, peer, read, refusal_of, too_large,
};
use crate::{
    app::App,
    http::edge::{Edge, Limits},
};
use auth::{Auth, Role};
use domain::{glob::NameGlob, lifecycle::Phase};
use hooks::{Hook, Unproven};

/// The message for a sender without proof.
const NOT_PROVEN: &str =
    "there is no such hook, or the delivery is not proven; the gateway's log and its `status` say why";

/// How many bytes all connections together may hold on which nothing was proven yet.
const UNAUTHENTICATED: usize = 32 * 1024 * 1024;

/// The paths at which load balancers ask whether a server is there.
const PROBED: [&str; 2] = ["/", "/livez"];

/// The edge of the listener for hooks: as on the main listener, with a budget of its own for unauthenticated clients.
#[must_use]
pub fn edge(app: &App) -> Edge {
    let edge = super::edge(app);
    let limits = Limits { unauthenticated: UNAUTHENTICATED, ..edge.limits };
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
            // A load balancer asks whether somebody listens. It gets no more than that.
            if matches!(*request.method(), Method::GET | Method::HEAD) && PROBED.contains(&request.uri().path()) {
                discard(request.into_body()).await;
                return "ok".into_response();
            }
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
    let mut completion = Completion::start(Arc::clone(&app), &request, Some(template));
    // A path with a token stays a template: the name may be in the place of the token.
    if token.is_none() && app.setup().hooks.by_name(&name).is_some() {
        completion.names_hook(&name);
    }
    match take(&app, &name, token.as_deref(), request).await {
        Ok(outcome) => completion.accept(&json!({"result": outcome})),
        Err(error) => completion.refuse(error),
    }
}

/// Takes a delivery. Returns the result. A sender without proof always gets the same answer, whether there is such a hook or not.
async fn take(app: &App, name: &str, token: Option<&str>, request: Request) -> Result<&'static str, ApiError> {
    let (head, body) = request.into_parts();
    let setup = app.setup();
    let Some(hook) = setup.hooks.by_name(name) else {
        let refused = check_head(&head.method, &head.headers);
        discard(body).await;
        refused?;
        return Err(note_failure(
            &setup.auth,
            &head.extensions,
            not_proven("there is no hook of this name".to_owned()),
        ));
    };
    let count = |outcome: &'static str| app.metrics.hooks.delivered(&hook.name, outcome);
    // Nothing is proven yet.
    let note = |outcome: &'static str, error: &ApiError| {
        count(outcome);
        let why = error.reason.as_deref().unwrap_or(&error.message);
        app.push.deliveries.add_unproven(&hook.name, why, app.now());
    };
    if let Err(error) = check_head(&head.method, &head.headers) {
        note("malformed", &error);
        discard(body).await;
        return Err(error);
    }
    let unproven = |unproven: Unproven| {
        let error = refusal(unproven);
        note("unproven", &error);
        if error.code == Code::Forbidden { note_failure(&setup.auth, &head.extensions, error) } else { error }
    };
    let sender = match hook.callers() {
        Some(names) => may_send(&setup.auth, &head, names).await.inspect_err(|error| note("unproven", error)),
        None => Ok(()),
    };
    let proven = sender.and_then(|()| hook.verify_head(&head.headers, token, app.now()).map_err(unproven));
    let from = match proven {
        Ok(true) => Sender::Known,
        Ok(false) => Sender::Unproven,
        Err(error) => {
            discard(body).await;
            return Err(error);
        }
    };
    let body = read(&head.extensions, body, from).await.map_err(|error| {
        note(if error.code == Code::Overloaded { "refused" } else { "malformed" }, &error);
        // Only a hook whose proof needs the body reads it from an unauthenticated client.
        let is_unproven = from == Sender::Unproven && error.code == Code::PayloadTooLarge;
        if is_unproven { note_failure(&setup.auth, &head.extensions, not_proven(error.message)) } else { error }
    })?;
    if from == Sender::Unproven {
        hook.verify(&head.headers, token, &body, app.now()).map_err(unproven)?;
    }
    admit(&head.extensions);
    let outcome = follow(app, hook, &head.headers, &body).await.inspect_err(|error| {
        count("malformed");
        app.push.deliveries.add(&hook.name, "malformed", Some(error.message.clone()), &[], app.now());
    })?;
    count(outcome);
    if outcome == "refused" {
        let error =
            ApiError::new(Code::Overloaded, "too many events wait for their rechecks; send this one again later");
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
    let caller = caller.map_err(|refused| {
        let error = refusal_of(auth, &head.extensions, refused, unknown);
        if error.code == Code::Forbidden { with_one_answer(error) } else { error }
    })?;
    if caller.role == Role::Sender && names.matches(&caller.name) {
        return Ok(());
    }
    let message = format!("`{}` may not send to this hook: it wants another `caller` with `role: sender`", caller.name);
    Err(ApiError::new(Code::Forbidden, message))
}

/// `error` with the answer for each sender without a proof.
fn with_one_answer(mut error: ApiError) -> ApiError {
    let why = std::mem::replace(&mut error.message, NOT_PROVEN.to_owned());
    error.reason = error.reason.or(Some(why.into()));
    error
}

/// The error for a sender without a proof. The reason is for the operator: it would reveal which hooks there are.
fn not_proven(why: String) -> ApiError {
    let mut error = ApiError::new(Code::Forbidden, NOT_PROVEN);
    error.reason = Some(why.into());
    error
}

fn refusal(unproven: Unproven) -> ApiError {
    match unproven {
        Unproven::Wrong(why) => not_proven(why),
        // An unauthenticated client must not learn where the secret should be.
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
    let delivery = hook.read(headers, body).await;
    let delivery = delivery.map_err(|error| ApiError::new(Code::InvalidRequest, error.to_string()))?;
    Ok(app.push.take_delivery(&hook.name, delivery).await)
}
