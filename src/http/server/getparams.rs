//! `POST /api/v1/getparams.execute`, step by step: authenticate by the headers, check the caller's limits, read the body, take a slot, pick
//! the route, check the input, answer.

mod refusals;

use std::{
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use axum::{extract::Request, response::Response};
use futures_util::FutureExt;
use http::{Method, header};
use tokio::time::Instant;

use self::refusals::{not_for, out_of_scope, unknown_route};
use super::{
    GETPARAMS, NAMED_GETPARAMS, Sender, admit as note_admitted,
    completion::Completion,
    discard, drain,
    error::{ApiError, Code},
    is_too_large, note_failure, peer, read, refusal_of,
    request::GetParamsRequest,
    short, too_large,
};
use crate::{
    app::{self, App, Setup},
    http::edge::{ConnectionInfo, PeerCertificate},
};
use auth::{Auth, CallPermit, Caller};
use domain::generator::Query;
use engine::{
    answer::{Answer, AnswerSource},
    route::{ResolvedQuery, Route},
};
use telemetry::trace::{self, SpanContext};

/// The message for a missing or wrong token.
const NO_TOKEN: &str = "the bearer token is missing or wrong; compare the Secret that the plugin's ConfigMap names with `auth` of the gateway, \
                        whose log says more";

/// Serves one call, by the route called `named` or else by the first route that accepts it.
pub(crate) async fn serve(app: Arc<App>, named: Option<String>, request: Request) -> Response {
    let template = if named.is_some() { NAMED_GETPARAMS } else { GETPARAMS };
    let mut completion = Completion::start(Arc::clone(&app), &request, Some(template));
    let context = completion.span_context();
    let result = {
        // Pinned here, because moving this large future into the trace costs time.
        let steps = pin!(steps(&app, named.as_deref(), request, &mut completion));
        contained(context, steps).await
    };
    match result {
        Ok(answer) => completion.answer(&answer),
        Err(error) => {
            completion.requested_route = completion.requested_route.take().or_else(|| named.as_deref().map(short));
            completion.refuse(error)
        }
    }
}

/// The result of `steps`, the work for one call, in the call's trace. A panic ends only this call.
pub(super) async fn contained<T>(
    context: Option<SpanContext>,
    steps: Pin<&mut impl Future<Output = Result<T, ApiError>>>,
) -> Result<T, ApiError> {
    let result = trace::at(context, AssertUnwindSafe(steps).catch_unwind()).await;
    result.unwrap_or_else(|_| Err(ApiError::new(Code::Internal, "the gateway failed; its log says where")))
}

/// The beginning of a call, before its body is read.
#[derive(Clone, Copy)]
pub(super) struct CallStart<'a> {
    /// The configuration that holds for it.
    pub(super) setup: &'a Setup,
    /// The route that its path names.
    pub(super) named: Option<&'a str>,
    /// When it arrived.
    pub(super) began: Instant,
}

async fn steps(
    app: &Arc<App>,
    named: Option<&str>,
    request: Request,
    completion: &mut Completion,
) -> Result<Answer, ApiError> {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let setup = app.setup();
    let start = CallStart { setup: &setup, named, began };
    if head.method != Method::POST {
        let message = format!("Argo CD's plugin generator sends a POST, not a {}", head.method);
        Box::pin(discard(body)).await;
        return Err(ApiError::new(Code::MethodNotAllowed, message).allow("POST"));
    }
    let admitted = admit(start, &head, completion).await;
    let (caller, _permit) = match admitted {
        Ok(admitted) => admitted,
        Err(error) => {
            // Frees the head while the body arrives.
            drop(head);
            // A refusal that is to save work does not parse the body.
            let is_read = completion.caller.is_some() && matches!(error.code, Code::Forbidden | Code::Throttled);
            if !is_read {
                Box::pin(discard(body)).await;
            } else if let Some(body) = Box::pin(drain(body)).await {
                note(&setup, named, &body, completion);
            }
            return Err(error);
        }
    };
    let body = read(&head.extensions, body, Sender::Known).await?;
    drop(head);
    // Only now: a body that arrives slowly must not keep others out.
    let _slot = take_slot(app, &setup)?;
    let answer = answer(app, start, &body, &caller, completion).await;
    if answer.is_err() {
        note(&setup, named, &body, completion);
    }
    answer
}

/// Notes for the log which query a refused call had, as far as `body` and `completion` show.
fn note(setup: &Setup, named: Option<&str>, body: &[u8], completion: &mut Completion) {
    if completion.key.is_some() {
        return;
    }
    let Ok(call) = GetParamsRequest::parse(body) else { return };
    let requested = completion.requested_route.as_deref().or(named);
    let route = completion.route.as_ref().or_else(|| setup.routes.by_name(requested?));
    let query = Query::new(call.application_set, call.parameters, Instant::now());
    completion.key = route.map(|route| route.key(&query));
    completion.application_set = Some(query.application_set);
    completion.namespace = call.namespace;
}

/// One of the slots for requests under way.
pub(super) fn take_slot<'a>(app: &'a App, setup: &Setup) -> Result<app::RequestSlot<'a>, ApiError> {
    let max = setup.server.max_in_flight;
    app.in_flight.enter(max).ok_or_else(|| {
        let message = format!("{max} requests are under way, the most that `server.maxInFlight` allows");
        ApiError::new(Code::Overloaded, message).retry_after(Duration::from_secs(1))
    })
}

/// All steps after the body was read.
async fn answer(
    app: &App,
    start: CallStart<'_>,
    body: &[u8],
    caller: &Caller,
    completion: &mut Completion,
) -> Result<Answer, ApiError> {
    let CallStart { setup, named, began } = start;
    let repeated = setup.repeats.get(named, body, began);
    let is_new = repeated.is_none();
    let resolved = if let Some(resolved) = repeated {
        admit_again(&resolved, caller, completion)?;
        resolved
    } else {
        let call = GetParamsRequest::parse(body);
        let call = call.map_err(|error| ApiError::new(Code::InvalidRequest, error.to_string()))?;
        resolve(start, call, caller, completion).await?
    };
    let resolved = Arc::new(resolved);
    let answer = ask(app, caller, &resolved, completion).await?;
    // A question that is answered for the first time may never come again.
    let was_stored =
        !matches!(answer.source, AnswerSource::Miss { .. }) || answer.entry.first_at < answer.entry.stored_at;
    if is_new && was_stored {
        setup.repeats.keep(named, body, &resolved);
    }
    Ok(answer)
}

/// The engine's answer to `resolved`, if `caller` may have one more question.
pub(super) async fn ask(
    app: &App,
    caller: &Caller,
    resolved: &Arc<ResolvedQuery>,
    completion: &mut Completion,
) -> Result<Answer, ApiError> {
    completion.key = Some(resolved.key);
    let noted = caller.note_question(resolved.key.number(), || app.now());
    noted.map_err(|excess| ApiError::of_excess(&caller.name, excess))?;
    app.engine.answer(resolved).await.map_err(|unknown| ApiError::of_nothing(unknown, resolved))
}

/// The query of `call`: its route, and its parameters as the backend gets them.
pub(super) async fn resolve(
    start: CallStart<'_>,
    call: GetParamsRequest,
    caller: &Caller,
    completion: &mut Completion,
) -> Result<ResolvedQuery, ApiError> {
    let CallStart { setup, named, began } = start;
    completion.application_set = Some(Arc::clone(&call.application_set));
    completion.namespace.clone_from(&call.namespace);
    if !caller.may_ask_for(&call.application_set) {
        return Err(not_for(caller, &call.application_set));
    }
    let route = pick(setup, named, &call, caller, completion).await?;
    completion.route = Some(Arc::clone(route));
    let until = began + route.deadline;
    let admitted = route.admit(call.parameters, until).await;
    let parameters = admitted.map_err(|error| ApiError::of_input(route, error))?;
    let query = Query { namespace: call.namespace, ..Query::new(call.application_set, parameters, until) };
    Ok(ResolvedQuery::new(Arc::clone(route), query))
}

/// The checks of [`resolve`] that depend on the caller, for a request whose bytes came before, maybe from another caller.
fn admit_again(resolved: &ResolvedQuery, caller: &Caller, completion: &mut Completion) -> Result<(), ApiError> {
    let (route, application_set) = (&resolved.route, &resolved.query.application_set);
    completion.application_set = Some(Arc::clone(application_set));
    completion.namespace.clone_from(&resolved.query.namespace);
    if !caller.may_ask_for(application_set) {
        return Err(not_for(caller, application_set));
    }
    allow(route, caller, completion)?;
    completion.route = Some(Arc::clone(route));
    Ok(())
}

/// All checks before the body is read, but that of the method.
pub(super) async fn admit(
    start: CallStart<'_>,
    head: &http::request::Parts,
    completion: &mut Completion,
) -> Result<(Arc<Caller>, CallPermit), ApiError> {
    let CallStart { setup, named, began } = start;
    if head.headers.get_all(header::HOST).iter().nth(1).is_some() {
        return Err(ApiError::new(
            Code::InvalidRequest,
            "the request has more than one `Host` header (RFC 9112, section 3.2)",
        ));
    }
    let caller = authenticate(&setup.auth, head).await?;
    note_admitted(&head.extensions);
    completion.caller = Some(Arc::clone(&caller));
    if let Some(name) = named.filter(|name| !caller.may_ask(name)) {
        return Err(out_of_scope(&caller, name));
    }
    if is_too_large(&head.headers) {
        return Err(too_large());
    }
    let route = named.and_then(|name| setup.routes.by_name(name));
    let until = began + route.map_or(setup.server.deadline.0, |route| route.deadline);
    let call_permit = caller.enter(until).await.map_err(|excess| ApiError::of_excess(&caller.name, excess))?;
    Ok((caller, call_permit))
}

/// The caller by its token, or without a token by its certificate.
async fn authenticate(auth: &Auth, head: &http::request::Parts) -> Result<Arc<Caller>, ApiError> {
    let has_authorization = head.headers.contains_key(header::AUTHORIZATION);
    let certificate = head.extensions.get::<ConnectionInfo>().and_then(|client| client.certificate.as_deref());
    if let (false, Some(PeerCertificate { subject, uris })) = (has_authorization, certificate) {
        return auth.by_certificate(subject, uris).ok_or_else(|| {
            let (subject, uris) = (short(subject), short(&uris.join(", ")));
            let message = format!(
                "the certificate with the subject `{subject}` and the URIs [{uris}] belongs to no caller, and there is no bearer token; \
                 see `auth.certificates`"
            );
            note_failure(auth, &head.extensions, ApiError::new(Code::Forbidden, message))
        });
    }
    auth.authenticate(&head.headers, peer(&head.extensions))
        .await
        .map_err(|refused| refusal_of(auth, &head.extensions, refused, NO_TOKEN))
}

async fn pick<'a>(
    setup: &'a Setup,
    named: Option<&str>,
    call: &GetParamsRequest,
    caller: &Caller,
    completion: &mut Completion,
) -> Result<&'a Arc<Route>, ApiError> {
    let found = if let Some(name) = named {
        setup.routes.by_name(name)
    } else {
        let deadline = Instant::now() + setup.server.deadline.0;
        let query = Query::new(Arc::clone(&call.application_set), Arc::clone(&call.parameters), deadline);
        let query = Query { namespace: call.namespace.clone(), ..query };
        setup.routes.by_match(&query).await.map_err(|(route, error)| {
            if !caller.may_ask(&route.name) {
                completion.requested_route = Some(route.name.to_string());
                return out_of_scope(caller, &route.name);
            }
            let error = ApiError::of_match(&route, error);
            completion.route = Some(route);
            error
        })?
    };
    let Some(route) = found else {
        return Err(unknown_route(setup, named, call, caller));
    };
    allow(route, caller, completion)?;
    Ok(route)
}

/// Refuses a route that `caller` may not ask.
fn allow(route: &Route, caller: &Caller, completion: &mut Completion) -> Result<(), ApiError> {
    if caller.may_ask(&route.name) {
        return Ok(());
    }
    completion.requested_route = Some(route.name.to_string());
    Err(out_of_scope(caller, &route.name))
}

#[cfg(test)]
mod repeated;

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use axum::body::Body;
    use http_body_util::BodyExt;
    use serde_json::Value;

    use super::*;
    use crate::config::Loaded;
    use domain::{
        clock::SystemClock,
        error::BackendError,
        file::base_dir::BaseDir,
        generator::{Outcome, ParameterSet},
    };
    use launcher::own_program;
    use source::{Backend, Nature};

    struct Panicking(Nature);

    #[async_trait]
    impl Backend for Panicking {
        async fn fetch(&self, query: &Query) -> Result<Outcome, BackendError> {
            assert!(query.parameters.is_empty(), "secret-canary");
            Ok(Outcome::present(ParameterSet::default(), Vec::new()))
        }

        fn nature(&self) -> &Nature {
            &self.0
        }
    }

    #[tokio::test]
    async fn a_panic_is_a_flat_error_and_the_next_call_works() {
        let hash = auth::hash_token("t");
        let config = format!(
            "auth: {{ tokens: [ {{ name: t, sha256: \"{hash}\" }} ] }}\n\
             routes: [ {{ name: r, match: {{}}, backend: {{ fixed: {{ parameters: [] }} }} }} ]"
        );
        let loaded = Loaded::parse("t.yaml", config, BaseDir::default()).unwrap();
        let (app, _) = App::build(loaded, Arc::new(SystemClock), own_program()).unwrap();
        let app = Arc::new(app.with_backend(&(Arc::new(Panicking(Nature::default())) as Arc<dyn Backend>)));
        let call = async |parameters: &str| {
            let body = format!("{{\"input\":{{\"parameters\":{parameters}}}}}");
            let request = Request::post("/").header("authorization", "Bearer t").body(Body::from(body)).unwrap();
            let response = serve(Arc::clone(&app), None, request).await;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            (status, serde_json::from_slice::<Value>(&body).unwrap())
        };
        let (status, body) = call(r#"{"a":1}"#).await;
        assert_eq!((status, &body["code"]), (500, &"internal".into()));
        let message = body["message"].as_str().unwrap();
        assert!(
            message.starts_with("route r (fixed): the gateway failed; its log says where; there is no"),
            "{message}"
        );
        assert_eq!(call("{}").await.0, 200);
        assert_eq!(app.in_flight.now(), 0);
    }
}
