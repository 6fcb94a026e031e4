//! Requests and answers. Only this module uses axum, and only it and [`error`] use status codes.

pub mod admin;
mod body;
mod calls;
mod completion;
pub mod error;
mod flux;
mod getparams;
pub mod hooks;
pub mod request;

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use bytes::Bytes;
use http::{Extensions, HeaderMap, HeaderValue, header};

use self::{
    body::{ReadBody, Sender, discard, drain, is_too_large, read, too_large},
    calls::GetParamsCalls,
    completion::Completion,
    error::{ApiError, Code},
};
use crate::{
    app::App,
    config::ConnectionsConfig,
    http::edge::{ConnectionInfo, Edge, Limits, Refusals, Site},
};
use auth::{Auth, Refused};
use domain::lifecycle::Phase;

/// The HTTP contract, as it is served at `/openapi.yaml`.
pub(crate) const OPENAPI: &str = include_str!("../../openapi.yaml");

/// How long a client may take to send a request's head, and to take an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How many bytes all connections together may hold that are not authenticated yet.
const UNAUTHENTICATED: usize = 32 * 1024 * 1024;
/// The path that Argo CD's controller appends to `baseUrl`.
const GETPARAMS: &str = "/api/v1/getparams.execute";
/// The same path if `baseUrl` names a route.
const NAMED_GETPARAMS: &str = "/{route}/api/v1/getparams.execute";
/// The path of a route's answer in Flux's form.
const FLUX: &str = "/flux/{route}";

/// A hook's path.
const HOOK: &str = "/hooks/{name}";
/// The same with a token, for senders that cannot sign or send headers.
const HOOK_WITH_TOKEN: &str = "/hooks/{name}/{token}";
/// Any other path on the listener for hooks.
const ELSEWHERE: &str = "/{*path}";

/// The edge of the main listener.
#[must_use]
pub fn edge(app: &App) -> Edge {
    let overloaded = "there are too many connections, in all or from this address (`server.connections`)";
    let malformed = "this is not an HTTP/1.1 request";
    let large_head = "the request's head is larger than 16 KiB, or has more than 100 headers";
    let ConnectionsConfig { most, per_peer, idle, max_age } = app.setup().server.connections;
    let limits = Limits {
        max: most,
        max_per_peer: per_peer,
        idle: idle.0,
        max_age: max_age.0,
        patience: PATIENCE,
        handshake: HANDSHAKE,
        unauthenticated: UNAUTHENTICATED,
    };
    let refusals = Refusals {
        overloaded: ApiError::new(Code::Overloaded, overloaded).retry_after(Duration::from_secs(1)).into_bytes(),
        malformed: ApiError::new(Code::InvalidRequest, malformed).into_bytes(),
        large_head: ApiError::new(Code::HeadTooLarge, large_head).into_bytes(),
        cleartext: wants_tls("server.tls"),
    };
    Edge {
        limits,
        tls: app.tls.clone(),
        refusals: Arc::new(refusals),
        metrics: app.metrics.connections.clone(),
        drains_in: Phase::Draining,
        closes_in: Phase::Closing,
    }
}

/// The refusal of cleartext on a port whose certificate is at `key` of the configuration.
fn wants_tls(key: &str) -> Bytes {
    ApiError::new(Code::InvalidRequest, format!("this port uses TLS (`{key}`): use https://")).into_bytes()
}

/// The content of the main listener.
pub fn site(app: &Arc<App>) -> Site {
    Site::new(router(Arc::clone(app)), Arc::new(GetParamsCalls(Arc::clone(app))))
}

/// The router of the main listener.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route(GETPARAMS, any(|State(app): State<Arc<App>>, request: Request| getparams::serve(app, None, request)))
        .route(
            NAMED_GETPARAMS,
            any(|State(app): State<Arc<App>>, route: Result<Path<String>, PathRejection>, request: Request| {
                // No route has a name that is not UTF-8. axum's own refusal would not have our form.
                let name = route.map_or_else(|_| char::REPLACEMENT_CHARACTER.into(), |Path(name)| name);
                getparams::serve(app, Some(name), request)
            }),
        )
        .route(
            FLUX,
            any(|State(app): State<Arc<App>>, route: Result<Path<String>, PathRejection>, request: Request| {
                let name = route.map_or_else(|_| char::REPLACEMENT_CHARACTER.into(), |Path(name)| name);
                flux::serve(app, name, request)
            }),
        )
        .route("/openapi.yaml", get(openapi).fallback(wrong_method))
        .fallback(unknown_path)
        .with_state(app)
}

/// The error for a `refused` caller; a wrong token gets `message`. An address with too many refusals gets a 429.
fn refusal_of(auth: &Auth, extensions: &Extensions, refused: Refused, message: &str) -> ApiError {
    let is_wrong = matches!(refused, Refused::Wrong(_));
    let error = ApiError::of_refused(refused, message);
    if is_wrong { note_failure(auth, extensions, error) } else { error }
}

/// Counts a refusal of this address and returns `error`. An address with too many refusals gets a 429 instead.
fn note_failure(auth: &Auth, extensions: &Extensions, error: ApiError) -> ApiError {
    match auth.failed(peer(extensions)) {
        Some(after) => error.too_often(after),
        None => error,
    }
}

/// The address of the client that sent a request.
fn peer(extensions: &Extensions) -> IpAddr {
    extensions.get::<ConnectionInfo>().map_or(Ipv4Addr::UNSPECIFIED.into(), |client| client.peer)
}

/// Notes that the sender of a request has authenticated.
fn admit(extensions: &Extensions) {
    if let Some(client) = extensions.get::<ConnectionInfo>() {
        client.admit();
    }
}

/// A text of an unknown client, for a message: short and without control characters.
fn short(text: &str) -> String {
    text.chars().take(100).collect::<String>().escape_debug().to_string()
}

async fn openapi() -> Response {
    (HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"))]), OPENAPI)
        .into_response()
}

async fn unknown_path(State(app): State<Arc<App>>, request: Request) -> Response {
    let completion = Completion::start(app, &request, None);
    let message = format!("there is nothing at this path; Argo CD calls POST {GETPARAMS}, or POST /<route>{GETPARAMS}");
    discard(request.into_body()).await;
    completion.refuse(ApiError::new(Code::NotFound, message))
}

async fn wrong_method(State(app): State<Arc<App>>, request: Request) -> Response {
    let completion = Completion::start(app, &request, None);
    discard(request.into_body()).await;
    completion.refuse(ApiError::new(Code::MethodNotAllowed, "this path answers GET only").allow("GET, HEAD"))
}
