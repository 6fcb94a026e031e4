//! Completes every request: headers, metrics and one log line, even if the caller has gone or the code panicked.

mod headers;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::Value;

use self::headers::{CACHE_STATUS, ELEMENTS, REQUEST_ID, SERVER_TIMING, given_id, new_id};
use super::{
    ELSEWHERE, FLUX, GETPARAMS, HOOK, HOOK_WITH_TOKEN, NAMED_GETPARAMS,
    error::{ApiError, Code},
    short,
};
use crate::{app::App, http::edge::ConnectionInfo};
use auth::Caller;
use engine::{
    answer::{Answer, AnswerSource},
    cache::{ElementCounts, Key},
    route::Route,
};
use telemetry::{
    answered::Answered,
    metrics::NO_ROUTE,
    trace::{Span, SpanContext},
};

/// OpenTelemetry's name for an unknown method.
const OTHER: &str = "_OTHER";

/// How many sets the answer has, and its elements by state, if it is made of elements.
type Logged = (usize, Option<ElementCounts>);

/// A request until it is completed.
pub(crate) struct Completion {
    app: Arc<App>,
    started: Instant,
    request_id: HeaderValue,
    span: Span,
    /// The client's address.
    peer: Option<Arc<str>>,
    /// Method and path, if the request is not a generator's call.
    other: Option<(&'static str, String)>,
    /// The caller, once it is known.
    pub(crate) caller: Option<Arc<Caller>>,
    /// The route, once it is known.
    pub(crate) route: Option<Arc<Route>>,
    /// The name of the route that a refused call named, for the log only.
    pub(crate) requested_route: Option<String>,
    /// The ApplicationSet, once it is known.
    pub(crate) application_set: Option<Arc<str>>,
    /// Its namespace, if the caller sends it.
    pub(crate) namespace: Option<Arc<str>>,
    /// The cache key, once it is known.
    pub(crate) key: Option<Key>,
    is_over: bool,
}

impl Completion {
    /// Starts the clock for `request`. `template` is the path's template, or `None` for an unknown path.
    pub(crate) fn start(app: Arc<App>, request: &Request, template: Option<&'static str>) -> Self {
        app.metrics.in_flight.inc();
        let span = app.traces.tracer.request(request.headers(), || span_name(request.method(), template));
        span.note(|record| {
            record.set("http.request.method", known(request.method()));
            if let Some(template) = template {
                record.set("http.route", template);
            }
        });
        Self {
            started: Instant::now(),
            request_id: given_id(request.headers()).unwrap_or_else(new_id),
            span,
            app,
            peer: request.extensions().get::<ConnectionInfo>().map(|client| Arc::clone(&client.peer_text)),
            other: match template {
                Some(GETPARAMS | NAMED_GETPARAMS | FLUX) => None,
                // A path that is not known may have the token of a hook, also on another listener than that of the hooks.
                None => Some((known(request.method()), ELSEWHERE.to_owned())),
                Some(template @ (HOOK | HOOK_WITH_TOKEN | ELSEWHERE)) => {
                    Some((known(request.method()), template.to_owned()))
                }
                Some(_) => Some((known(request.method()), short(request.uri().path()))),
            },
            caller: None,
            route: None,
            requested_route: None,
            application_set: None,
            namespace: None,
            key: None,
            is_over: false,
        }
    }

    /// Notes that the request's path names the hook `name`, for the log.
    pub(crate) fn names_hook(&mut self, name: &str) {
        if let Some((_, path)) = &mut self.other {
            *path = path.replace("{name}", name);
        }
    }

    /// The request's id, for its answer and the log.
    pub(crate) fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    /// The context for spans below the request's span, if it is traced.
    pub(crate) fn span_context(&self) -> Option<SpanContext> {
        self.span.place()
    }

    /// Completes the request with an answer in Argo CD's form.
    pub(crate) fn answer(self, answer: &Answer) -> Response {
        let body = answer.entry.encoded.body().clone();
        self.answer_as(answer, body)
    }

    /// Completes the request with an answer as `body`. This is the only way to a 2xx on a path that asks a route (invariant I1).
    pub(crate) fn answer_as(mut self, answer: &Answer, body: Bytes) -> Response {
        let encoded = &answer.entry.encoded;
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::OK;
        let fields = response.headers_mut();
        fields.reserve(6);
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut because = None;
        let (state, status, age) = match &answer.source {
            AnswerSource::Hit { age, left } => ("hit", headers::hit(*left), *age),
            AnswerSource::StaleWhileRevalidate(stale, None) => ("stale", headers::stale(stale.over, None), stale.age),
            AnswerSource::StaleWhileRevalidate(stale, Some(unknown)) | AnswerSource::StaleIfError(stale, unknown) => {
                let error = self.route.as_deref().map(|route| ApiError::of((**unknown).clone(), route));
                let detail = error.as_ref().map_or("unknown", |error| error.code.as_str());
                because = error;
                let is_if_error = matches!(answer.source, AnswerSource::StaleIfError(..));
                let status = headers::stale(stale.over, Some(detail));
                (if is_if_error { "stale_if_error" } else { "stale" }, status, stale.age)
            }
            AnswerSource::Miss { shared: false } => {
                ("miss", HeaderValue::from_static("appset-gateway; fwd=miss; stored"), Duration::ZERO)
            }
            AnswerSource::Miss { shared: true } => {
                ("joined", HeaderValue::from_static("appset-gateway; fwd=miss; collapsed"), Duration::ZERO)
            }
        };
        fields.insert(CACHE_STATUS, status);
        fields.insert(header::AGE, headers::age(age));
        let elapsed = self.started.elapsed();
        let is_miss = matches!(answer.source, AnswerSource::Miss { .. });
        let backend = if is_miss { Some(answer.entry.took) } else { None };
        fields.insert(SERVER_TIMING, headers::server_timing(elapsed, backend));
        let elements = answer.entry.elements.as_ref().map(|elements| elements.counts);
        if let Some(counts) = elements {
            fields.insert(ELEMENTS, headers::elements(counts));
        }
        if let Some(route) = &self.route {
            route.metrics.answered.inc();
            route.metrics.seconds.observe(elapsed.as_secs_f64());
        }
        self.log(200, state, Some((encoded.sets(), elements)), because.as_ref());
        self.is_over = true;
        // The log was the last to need it.
        let request_id = std::mem::replace(&mut self.request_id, headers::EMPTY);
        response.headers_mut().insert(REQUEST_ID, request_id);
        response
    }

    /// Completes an operator's request with `body`.
    pub(crate) fn reply(self, body: &Value) -> Response {
        self.give(StatusCode::OK, body)
    }

    /// Completes the request with `body`: the work happens later.
    pub(crate) fn accept(self, body: &Value) -> Response {
        self.give(StatusCode::ACCEPTED, body)
    }

    /// Completes the request of a person with HTML.
    pub(crate) fn show(self, html: String) -> Response {
        self.finish(StatusCode::OK, "text/html; charset=utf-8", Body::from(html))
    }

    /// Completes the request of a person by leading to `path`.
    pub(crate) fn lead_to(self, path: &str) -> Response {
        let mut response = self.finish(StatusCode::SEE_OTHER, "text/html; charset=utf-8", Body::empty());
        let path = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/"));
        response.headers_mut().insert(header::LOCATION, path);
        response
    }

    /// Completes the request of a person with `error`, which `draw` makes HTML of.
    pub(crate) fn refuse_shown(self, error: ApiError, draw: impl FnOnce(&ApiError, &str) -> String) -> Response {
        let html = draw(&error, self.request_id());
        let mut response = self.refuse(error);
        *response.body_mut() = Body::from(html);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        response
    }

    fn give(self, status: StatusCode, body: &Value) -> Response {
        self.finish(status, "application/json", Body::from(body.to_string()))
    }

    fn finish(mut self, status: StatusCode, kind: &'static str, body: Body) -> Response {
        let elapsed = self.started.elapsed();
        self.app.metrics.ended(NO_ROUTE, "ok", elapsed);
        self.log(status.as_u16(), "none", None, None);
        self.is_over = true;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(REQUEST_ID, self.request_id.clone());
        response
    }

    /// Completes the request with an error.
    pub(crate) fn refuse(mut self, error: ApiError) -> Response {
        let route = self.route.as_ref().map(|route| &*route.name);
        let elapsed = self.started.elapsed();
        self.app.metrics.ended(route.unwrap_or(NO_ROUTE), error.code.as_str(), elapsed);
        self.log(error.code.status().as_u16(), "none", None, Some(&error));
        let mut response = error.into_response(route, self.request_id());
        response.headers_mut().insert(REQUEST_ID, self.request_id.clone());
        self.is_over = true;
        response
    }

    fn log(&self, status: u16, cache: &'static str, answer: Option<Logged>, error: Option<&ApiError>) {
        self.span.enter(|| self.write_line(status, cache, answer, error));
        self.span.note(|record| {
            record.set("http.response.status_code", status);
            record.set("appset_gateway.cache", cache);
            if let Some(route) = &self.route {
                record.set("appset_gateway.route", route.name.to_string());
            }
            if let Some(caller) = &self.caller {
                record.set("appset_gateway.caller", caller.name.clone());
            }
            if let Some((sets, _)) = answer {
                record.set("appset_gateway.parameter_sets", sets);
            }
            match error {
                // In a server's trace, only its own errors count as failures, not the caller's.
                Some(error) if status >= 500 => record.fail(error.code.as_str()),
                Some(error) => record.set("error.type", error.code.as_str()),
                None => {}
            }
        });
    }

    fn write_line(&self, status: u16, cache: &'static str, answer: Option<Logged>, error: Option<&ApiError>) {
        let request_id = self.request_id();
        let peer = self.peer.as_deref();
        let (method, path) = self.other.as_ref().map(|(method, path)| (*method, path.as_str())).unzip();
        let route = self.route.as_ref().map(|route| &*route.name).or(self.requested_route.as_deref());
        let (application_set, namespace) = (self.application_set.as_deref(), self.namespace.as_deref());
        let caller = self.caller.as_ref().map(|caller| caller.name.as_str());
        let caller = caller.or_else(|| error.and_then(|error| error.caller.as_deref()));
        let duration_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let sets = answer.map(|(sets, _)| sets as u64);
        let elements = answer.and_then(|(_, counts)| counts).map(headers::elements);
        let elements = elements.as_ref().and_then(|text| text.to_str().ok());
        match error {
            None => {
                let mut digits = [0; Key::TEXT];
                let key = self.key.as_ref().map(|key| key.text(&mut digits));
                Answered {
                    request_id,
                    peer,
                    method,
                    path,
                    route,
                    application_set,
                    namespace,
                    caller,
                    key,
                    cache,
                    status,
                    duration_us,
                    sets,
                    elements,
                }
                .log();
            }
            Some(error) if error.is_often => tracing::debug!(
                target: "request", request_id, peer, method, path, route, status, duration_us, code = error.code.as_str(),
                reason = error.reason.as_deref(), "refused"
            ),
            Some(error) => tracing::warn!(
                target: "request", request_id, peer, method, path, route, application_set, namespace, caller,
                key = self.key.map(tracing::field::display), cache, status, duration_us, sets, elements, code = error.code.as_str(),
                error = error.message.as_str(), reason = error.reason.as_deref(),
                "{}", word(status, error.code)
            ),
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.app.metrics.in_flight.dec();
        if !self.is_over {
            // 499: "client closed request", as nginx logs it. Nobody receives it.
            let route = self.route.as_ref().map_or(NO_ROUTE, |route| &route.name);
            self.app.metrics.ended(route, "cancelled", self.started.elapsed());
            self.log(499, "none", None, None);
        }
    }
}

/// The outcome of a request with an error, for the log. Only a request that the gateway would not serve is refused.
fn word(status: u16, code: Code) -> &'static str {
    match (status, code) {
        (200, _) => "answered from an earlier answer",
        (500.., Code::Overloaded) | (..500, _) => "refused",
        (500.., _) => "no answer",
    }
}

/// The name of a request's span. There are few names, independent of what clients send.
fn span_name(method: &Method, template: Option<&'static str>) -> String {
    let method = match known(method) {
        OTHER => "HTTP",
        method => method,
    };
    template.map_or_else(|| method.to_owned(), |template| format!("{method} {template}"))
}

/// The method if it is a standard one, or else [`OTHER`].
fn known(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    known.into_iter().find(|known| *known == method).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_refused_of_what_the_gateway_itself_would_not_serve() {
        let cases = [
            (502, Code::BackendFailed, "no answer"),
            (504, Code::BackendTimeout, "no answer"),
            (503, Code::Held, "no answer"),
            (503, Code::Overloaded, "refused"),
            (429, Code::Throttled, "refused"),
            (404, Code::UnknownRoute, "refused"),
            (200, Code::BackendFailed, "answered from an earlier answer"),
        ];
        for (status, code, says) in cases {
            assert_eq!(word(status, code), says, "{status}");
        }
    }
}
