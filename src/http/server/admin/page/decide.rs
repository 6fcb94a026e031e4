//! Releases and rejects a held answer by a form of the page.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State, rejection::PathRejection},
    response::Response,
};

use super::{
    super::{
        super::error::{ApiError, Code},
        NO_ADMIN,
        held::{Done, checked_reason, record},
        segment,
    },
    REJECT, RELEASE,
    form::{Sent, receive},
    frame,
};
use crate::{
    app::App,
    http::page::{self, Tab, notice},
};
use auth::Role;
use engine::{guard::Decision, operators::Operator};

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
    let id = segment(id);
    receive(app, template, request, |sent| answer(sent, id, decision)).await
}

async fn answer(sent: Sent, id: String, decision: Decision) -> Response {
    match decided(&sent, &id, decision).await {
        Ok(done) => {
            let title = match (decision, done.is_held) {
                (Decision::Rejected, _) => "Rejected",
                (Decision::Released, false) => "Released",
                (Decision::Released, true) => "Released, and waiting",
            };
            let frame = frame(&sent.app, title, Some(Tab::Held), Some(&sent.visitor), false);
            let html = page::draw(&frame, &notice::done(title, &done.message));
            sent.completion.show(html)
        }
        Err(error) => sent.refuse(error),
    }
}

async fn decided(sent: &Sent, id: &str, decision: Decision) -> Result<Done, ApiError> {
    let Sent { app, session, form, .. } = sent;
    if session.caller.role != Role::Admin {
        let message = format!("`{}` has the role `viewer`, which changes nothing; {NO_ADMIN}", session.caller.name);
        return Err(ApiError::new(Code::Forbidden, message));
    }
    let Some(reason) = checked_reason(form.get("reason").unwrap_or_default())? else {
        return Err(ApiError::new(Code::InvalidRequest, "a decision needs a reason, for the log"));
    };
    let Some(fingerprint) = form.get("fingerprint") else {
        return Err(ApiError::new(Code::InvalidRequest, "the form does not say which answer it is about"));
    };
    let request_id = sent.completion.request_id().to_owned();
    let by = Operator { caller: session.caller.name.clone(), request_id, reason: Some(reason) };
    record(Arc::clone(app), id, Some(fingerprint), decision, &by).await
}
