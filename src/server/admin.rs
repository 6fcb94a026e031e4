//! The admin listener: probes and metrics. Neither depends on an upstream: a probe that did would
//! restart a healthy gateway, and its cache with it, because something else is ill.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{StatusCode, header};

use super::{
    completion::Completion,
    error::{ApiError, Code},
};
use crate::app::App;

/// The router of the admin listener.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/livez", get(livez).fallback(wrong_method))
        .route("/readyz", get(readyz).fallback(wrong_method))
        .route("/metrics", get(metrics).fallback(wrong_method))
        .fallback(unknown_path)
        .with_state(app)
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    if app.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n").into_response()
    } else {
        "ok\n".into_response()
    }
}

async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response {
    app.engine.observe();
    match app.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response(),
        Err(error) => Completion::start(app, request.headers())
            .refuse(ApiError::new(Code::Internal, format!("the metrics cannot be written: {error}"))),
    }
}

async fn unknown_path(State(app): State<Arc<App>>, request: Request) -> Response {
    let message = "there is nothing at this path; the admin listener has /livez, /readyz and /metrics";
    Completion::start(app, request.headers()).refuse(ApiError::new(Code::NotFound, message))
}

async fn wrong_method(State(app): State<Arc<App>>, request: Request) -> Response {
    Completion::start(app, request.headers())
        .refuse(ApiError::new(Code::MethodNotAllowed, "this path answers GET only").allow("GET, HEAD"))
}
