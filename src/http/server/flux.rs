//! `GET /flux/<route>`: the answer of a route in the form that flux-operator's `ExternalService` reads,
//! `{"inputs":[{"id":"…", …}]}`, with the same callers, cache, guard and errors as Argo CD's calls. The query's parameters are the input
//! parameters. <https://github.com/controlplaneio-fluxcd/flux-operator/blob/main/docs/api/v1/resourcesetinputprovider.md>

mod inputs;

use std::{num::IntErrorKind, pin::pin, sync::Arc};

use axum::{extract::Request, response::Response};
use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;
use url::form_urlencoded;

use super::{
    FLUX,
    completion::Completion,
    discard,
    error::{ApiError, Code},
    getparams::{CallStart, admit, ask, contained, resolve, take_slot},
    request::GetParamsRequest,
    short,
};
use crate::app::App;
use domain::generator::Parameters;
use engine::answer::Answer;

/// The parameter that repeats the provider's `spec.filter.limit`.
const LIMIT: &str = "flux.limit";
/// flux-operator's default of `spec.filter.limit`: it drops all further inputs without an error.
const DEFAULT_LIMIT: usize = 100;

/// Serves one call for the route called `named`.
pub(super) async fn serve(app: Arc<App>, named: String, request: Request) -> Response {
    let mut completion = Completion::start(Arc::clone(&app), &request, Some(FLUX));
    let context = completion.span_context();
    let result = {
        let steps = pin!(steps(&app, &named, request, &mut completion));
        contained(context, steps).await
    };
    match result {
        Ok((answer, body)) => completion.answer_as(&answer, body),
        Err(error) => {
            completion.requested_route = completion.requested_route.take().or_else(|| Some(short(&named)));
            completion.refuse(error)
        }
    }
}

async fn steps(
    app: &Arc<App>,
    named: &str,
    request: Request,
    completion: &mut Completion,
) -> Result<(Answer, Bytes), ApiError> {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    Box::pin(discard(body)).await;
    if !matches!(head.method, Method::GET | Method::HEAD) {
        let message = format!("Flux sends a GET, not a {}", head.method);
        return Err(ApiError::new(Code::MethodNotAllowed, message).allow("GET, HEAD"));
    }
    let setup = app.setup();
    let start = CallStart { setup: &setup, named: Some(named), began };
    let (caller, _permit) = admit(start, &head, completion).await?;
    let (parameters, limit) = read_parameters(head.uri.query().unwrap_or_default())?;
    let _slot = take_slot(app, &setup)?;
    let call = GetParamsRequest { application_set: "".into(), namespace: None, parameters: Arc::new(parameters) };
    let resolved = Arc::new(resolve(start, call, &caller, completion).await?);
    let answer = ask(app, &caller, &resolved, completion).await?;
    let identity = &resolved.route.guard.config().identity;
    let body = inputs::body(&answer.entry.encoded.decode(), identity, limit);
    let body = body.map_err(|error| {
        ApiError::new(Code::BackendOutputInvalid, format!("route {}: {error}", resolved.route.name))
    })?;
    Ok((answer, body))
}

/// The input parameters of `query`, all of them texts, and how many inputs Flux keeps.
fn read_parameters(query: &str) -> Result<(Parameters, usize), ApiError> {
    let (mut parameters, mut limit) = (Parameters::new(), DEFAULT_LIMIT);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == LIMIT {
            limit = read_limit(&value)?;
        } else if parameters.insert(name.to_string(), Value::String(value.into_owned())).is_some() {
            return Err(invalid(format!("the query has the parameter `{}` twice", short(&name))));
        }
    }
    Ok((parameters, limit))
}

/// A limit that is larger than any list is as good as the largest.
fn read_limit(text: &str) -> Result<usize, ApiError> {
    match text.parse::<usize>() {
        Ok(limit @ 1..) => Ok(limit),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => Ok(usize::MAX),
        _ => Err(invalid(format!("`{LIMIT}={}` is not a number of 1 or more", short(text)))),
    }
}

fn invalid(message: String) -> ApiError {
    ApiError::new(Code::InvalidRequest, message)
}
