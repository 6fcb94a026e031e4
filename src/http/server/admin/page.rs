//! The page on the admin listener: the visitor, the view, and the headers that keep it from being misused. [`crate::http::page`] draws it.

mod ask;
mod decide;
mod form;
mod session;
mod sign_in;
mod views;

use std::{any::Any, panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use futures_util::FutureExt as _;
use http::{HeaderName, HeaderValue, header, request::Parts};
use maud::Markup;
use tower_http::{
    catch_panic::CatchPanicLayer, compression::CompressionLayer, limit::RequestBodyLimitLayer,
    set_header::SetResponseHeaderLayer,
};

use self::session::{SessionEnd, visitor_of};
use super::super::{
    admit,
    completion::Completion,
    discard,
    error::{ApiError, Code},
};
use crate::{
    app::App,
    http::page::{self, Frame, Tab, Visitor, notice},
};
use auth::Session;
use telemetry::trace;

/// The origins that the page may load from and send forms to: this listener, and nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";
/// The largest form, in bytes.
const MAX_FORM_BYTES: usize = 16 * 1024;
/// How long a browser keeps a file of the page: its name changes with its content.
const FOREVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

const FILE: &str = "/page/{file}";
const ONE_HELD: &str = "/held/{id}";
const RELEASE: &str = "/held/{id}/release";
const REJECT: &str = "/held/{id}/reject";
const SIGN_IN: &str = "/login";
const SIGN_OUT: &str = "/logout";

/// The routes of the page.
pub(super) fn router() -> Router<Arc<App>> {
    let always = |name: HeaderName, value: &'static str| {
        SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value))
    };
    let files = Router::new().route(FILE, get(file).fallback(get_only)).layer(CompressionLayer::new());
    let router = Router::new()
        .route(ONE_HELD, view(ONE_HELD, Tab::Held, views::one_held))
        .route(RELEASE, post(decide::release).fallback(post_only))
        .route(REJECT, post(decide::reject).fallback(post_only))
        .route(SIGN_IN, get(sign_in::show).post(sign_in::sign_in).fallback(get_or_post))
        .route(SIGN_OUT, post(sign_in::sign_out).fallback(post_only));
    let router = views::ALL.into_iter().fold(router, |router, (tab, work)| {
        let view = view(tab.path(), tab, work);
        router.route(tab.path(), if tab == Tab::Explain { view.post(ask::ask).fallback(get_or_post) } else { view })
    });
    router
        .merge(files)
        .layer(RequestBodyLimitLayer::new(MAX_FORM_BYTES))
        .layer(CatchPanicLayer::custom(crashed))
        .layer(always(header::CONTENT_SECURITY_POLICY, POLICY))
        .layer(always(header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .layer(always(header::REFERRER_POLICY, "no-referrer"))
        .layer(SetResponseHeaderLayer::if_not_present(header::CACHE_CONTROL, HeaderValue::from_static("no-store")))
}

/// The parts of a view.
struct PageRequest {
    app: Arc<App>,
    head: Parts,
    /// The last segment of the path, if the path has a variable one.
    name: String,
    visitor: Visitor,
}

/// A view: its title, and its content.
type View = Result<(&'static str, Markup), ApiError>;

/// Shows the view that `work` draws to each caller who may read.
fn view<F>(template: &'static str, tab: Tab, work: fn(PageRequest) -> F) -> MethodRouter<Arc<App>>
where
    F: Future<Output = View> + Send + 'static,
{
    get(move |State(app): State<Arc<App>>, name: Result<Path<String>, PathRejection>, request: Request| async move {
        let name = super::segment(name);
        let (mut completion, head, body) = begin(&app, template, request);
        discard(body).await;
        let session = match session::of(&app, &head).await {
            Ok(session) => session,
            Err(end) => return stop(completion, &app, &head, end),
        };
        greet(&mut completion, &head, &session);
        let visitor = visitor_of(&session);
        let request = PageRequest { app: Arc::clone(&app), head, name, visitor: visitor.clone() };
        let context = completion.span_context();
        match trace::at(context, AssertUnwindSafe(work(request)).catch_unwind()).await {
            Ok(Ok((title, drawn))) => {
                completion.show(page::draw(&frame(&app, title, Some(tab), Some(&visitor), true), &drawn))
            }
            Ok(Err(error)) => refuse(completion, &app, Some(&visitor), error),
            Err(_) => refuse(completion, &app, Some(&visitor), defect()),
        }
    })
    .fallback(get_only)
}

fn begin(app: &Arc<App>, template: &'static str, request: Request) -> (Completion, Parts, Body) {
    let completion = Completion::start(Arc::clone(app), &request, Some(template));
    let (head, body) = request.into_parts();
    (completion, head, body)
}

/// Notes the sender of the request.
fn greet(completion: &mut Completion, head: &Parts, session: &Session) {
    admit(&head.extensions);
    completion.caller = Some(Arc::clone(&session.caller));
}

/// Answers a request of a caller who may not read the page.
fn stop(completion: Completion, app: &App, head: &Parts, end: SessionEnd) -> Response {
    match end {
        SessionEnd::Nobody => completion.lead_to(&sign_in::path_back_to(head)),
        SessionEnd::Refused(error) => refuse(completion, app, None, error),
    }
}

/// Shows the error.
fn refuse(completion: Completion, app: &App, visitor: Option<&Visitor>, error: ApiError) -> Response {
    completion.refuse_shown(error, |error, request_id| {
        let title = title_of(error.code);
        page::draw(&frame(app, title, None, visitor, false), &notice::problem(title, &error.message, request_id))
    })
}

/// The frame of a view.
fn frame<'a>(app: &App, title: &'a str, tab: Option<Tab>, visitor: Option<&'a Visitor>, refreshes: bool) -> Frame<'a> {
    let held = if visitor.is_some() { app.engine.held_count() } else { 0 };
    Frame { title, tab, visitor, held, now: app.now(), refreshes }
}

const fn title_of(code: Code) -> &'static str {
    match code {
        Code::NotFound => "Not found",
        Code::Forbidden => "Not allowed",
        Code::Conflict => "It has changed",
        Code::Throttled => "Too many attempts",
        Code::Unavailable => "Not now",
        Code::Internal => "A defect of the gateway",
        _ => "This did not work",
    }
}

fn defect() -> ApiError {
    ApiError::new(Code::Internal, "the gateway failed; its log says where")
}

/// The last net: a panic outside of a view.
fn crashed(_: Box<dyn Any + Send>) -> Response {
    defect().into_response(None, "none")
}

/// A file of the page.
async fn file(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Some(file) = page::files::at(request.uri().path()) {
        let kind = (header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
        return ([kind, (header::CACHE_CONTROL, FOREVER)], file.content).into_response();
    }
    let (completion, _, body) = begin(&app, FILE, request);
    discard(body).await;
    let error = ApiError::new(Code::NotFound, "the page has no such file; it is of another version");
    refuse(completion, &app, None, error)
}

async fn get_only(State(app): State<Arc<App>>, request: Request) -> Response {
    wrong_method(app, request, "GET, HEAD").await
}

async fn post_only(State(app): State<Arc<App>>, request: Request) -> Response {
    wrong_method(app, request, "POST").await
}

async fn get_or_post(State(app): State<Arc<App>>, request: Request) -> Response {
    wrong_method(app, request, "GET, HEAD, POST").await
}

async fn wrong_method(app: Arc<App>, request: Request, allow: &'static str) -> Response {
    let completion = Completion::start(Arc::clone(&app), &request, None);
    discard(request.into_body()).await;
    let error = ApiError::new(Code::MethodNotAllowed, format!("this path answers {allow} only"));
    refuse(completion, &app, None, error.allow(allow))
}
