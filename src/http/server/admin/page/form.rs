//! The forms of people who have signed in: the sender, and the fields.

use std::sync::Arc;

use axum::{body::Body, extract::Request, response::Response};
use http::{header, request::Parts};
use url::form_urlencoded;

use super::{
    super::super::{
        Sender,
        completion::Completion,
        discard,
        error::{ApiError, Code},
        read,
    },
    begin, greet, refuse,
    session::{self, check_form, visitor_of},
    stop,
};
use crate::{app::App, http::page::Visitor};
use auth::Session;

/// A form that a signed-in visitor has sent from this page.
pub(super) struct Sent {
    pub(super) app: Arc<App>,
    pub(super) completion: Completion,
    pub(super) head: Parts,
    pub(super) session: Session,
    pub(super) visitor: Visitor,
    pub(super) form: Form,
}

impl Sent {
    /// Shows the error.
    pub(super) fn refuse(self, error: ApiError) -> Response {
        refuse(self.completion, &self.app, Some(&self.visitor), error)
    }
}

/// Receives a form, and answers it by `work`. Visitors without a session are sent to sign in, and a form of another session or site is refused.
pub(super) async fn receive<F>(
    app: Arc<App>,
    template: &'static str,
    request: Request,
    work: impl FnOnce(Sent) -> F,
) -> Response
where
    F: Future<Output = Response>,
{
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
    let checked = match Form::read(&head, body, Sender::Known).await {
        Ok(form) => check_form(&head, &session, form.get("formToken")).map(|()| form),
        Err(error) => Err(error),
    };
    match checked {
        Ok(form) => work(Sent { app, completion, head, session, visitor, form }).await,
        Err(error) => refuse(completion, &app, Some(&visitor), error),
    }
}

/// The fields of a form, each once.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form from the body of a request with this `head`.
    ///
    /// # Errors
    /// When it is not a form, is too large or incomplete, or has a field twice.
    pub(super) async fn read(head: &Parts, body: Body, sender: Sender) -> Result<Self, ApiError> {
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(ApiError::new(Code::UnsupportedMediaType, "the body must be a form of the page"));
        }
        let body = read(&head.extensions, body, sender).await?;
        let fields: Vec<(String, String)> = form_urlencoded::parse(&body).into_owned().collect();
        let is_twice = |index: usize| fields[..index].iter().any(|(name, _)| *name == fields[index].0);
        if (0..fields.len()).any(is_twice) {
            return Err(ApiError::new(Code::InvalidRequest, "the form has a field twice"));
        }
        Ok(Self(fields))
    }

    /// The value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }
}
