//! Releases and rejects a held answer by a form of the page.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};
use http::request::Parts;

use super::{
    super::{
        super::{
            discard,
            error::{ApiError, Code},
        },
        NO_ADMIN,
        held::{Done, checked_reason, record},
    },
    REJECT, RELEASE, begin,
    form::Form,
    frame, greet, refuse,
    session::{self, check_form, visitor_of},
    stop,
};
use crate::{
    app::App,
    auth::{Role, Session},
    engine::{answer::admin_ops::Operator, guard::Decision},
    http::page::{self, Tab, notice},
};

pub(super) async fn release(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    decide(app, RELEASE, id, Decision::Released, request).await
}

pub(super) async fn reject(
    State(app): State<Arc<App>>,
    id: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    decide(app, REJECT, id, Decision::Rejected, request).await
}

async fn decide(
    app: Arc<App>,
    template: &'static str,
    id: Result<Path<String>, PathRejection>,
    decision: Decision,
    request: Request,
) -> Response {
    let id = id.map_or_else(|_| String::new(), |Path(id)| id);
    let (mut completion, head, body) = begin(&app, template, request);
    let session = match session::of(&app, &head).await {
        Ok(session) => session,
        Err(end) => {
            discard(body).await;
            return stop(completion, &app, &head, end);
        }
    };
    greet(&mut completion, &head, &session);
    let visitor = visitor_of(&session);
    let request_id = completion.request_id().to_owned();
    match decided(&app, &id, decision, &session, &head, body, request_id).await {
        Ok(done) => {
            let title = match (decision, done.is_held) {
                (Decision::Rejected, _) => "Rejected",
                (Decision::Released, false) => "Released",
                (Decision::Released, true) => "Released, and waiting",
            };
            let frame = frame(&app, title, Some(Tab::Held), Some(&visitor), false);
            let html = page::draw(&frame, &notice::done(title, &done.message));
            completion.show(html)
        }
        Err(error) => refuse(completion, &app, Some(&visitor), error),
    }
}

async fn decided(
    app: &Arc<App>,
    id: &str,
    decision: Decision,
    session: &Session,
    head: &Parts,
    body: Body,
    request_id: String,
) -> Result<Done, ApiError> {
    let form = Form::read(head, body).await?;
    check_form(head, session, form.get("formToken"))?;
    if session.caller.role != Role::Admin {
        let message = format!("`{}` has the role `viewer`, which changes nothing; {NO_ADMIN}", session.caller.name);
        return Err(ApiError::new(Code::Forbidden, message));
    }
    let Some(reason) = checked_reason(form.get("reason").unwrap_or_default())? else {
        return Err(ApiError::new(Code::InvalidRequest, "a decision needs a reason, for the log"));
    };
    let Some(fingerprint) = form.get("fingerprint") else {
        return Err(ApiError::new(Code::InvalidRequest, "the form says not which answer it is about"));
    };
    let by = Operator { caller: session.caller.name.clone(), request_id, reason: Some(reason) };
    record(Arc::clone(app), id, Some(fingerprint), decision, &by).await
}
