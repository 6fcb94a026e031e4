//! `POST /explain`: asks a source once, and shows each step.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use http::request::Parts;
use maud::{Markup, html};

use super::{
    super::{
        super::{
            discard,
            error::{ApiError, Code},
        },
        explain::{QuestionToExplain, explain},
    },
    begin,
    form::Form,
    frame, greet, refuse,
    session::{self, check_form, visitor_of},
    stop,
    views::route_names,
};
use crate::{
    app::App,
    auth::Session,
    http::page::{
        self, Tab, Visitor,
        explain::{self as drawn, Asked},
    },
};

pub(super) async fn ask(State(app): State<Arc<App>>, request: Request) -> Response {
    let (mut completion, head, body) = begin(&app, Tab::Explain.path(), request);
    let session = match session::of(&app, &head).await {
        Ok(session) => session,
        Err(end) => {
            discard(body).await;
            return stop(completion, &app, &head, end);
        }
    };
    greet(&mut completion, &head, &session);
    let visitor = visitor_of(&session);
    let asked = match read(&head, &session, body).await {
        Ok(asked) => asked,
        Err(error) => return refuse(completion, &app, Some(&visitor), error),
    };
    let frame = frame(&app, "Explain", Some(Tab::Explain), Some(&visitor), false);
    match explained(&app, &asked, &visitor).await {
        Ok(content) => completion.show(page::draw(&frame, &content)),
        // The form stays, so that nothing has to be written again.
        Err(error) => {
            let names = route_names(&app);
            completion.refuse_shown(error, |error, _| {
                page::draw(&frame, &around(&asked, &names, Some(&error.message), &visitor, &html! {}))
            })
        }
    }
}

async fn read(head: &Parts, session: &Session, body: Body) -> Result<Asked, ApiError> {
    let form = Form::read(head, body).await?;
    check_form(head, session, form.get("formToken"))?;
    let field = |name| form.get(name).unwrap_or_default().to_owned();
    Ok(Asked { route: field("route"), application_set: field("applicationSet"), parameters: field("parameters") })
}

async fn explained(app: &Arc<App>, asked: &Asked, visitor: &Visitor) -> Result<Markup, ApiError> {
    let input = asked.read().map_err(|why| ApiError::new(Code::InvalidInput, format!("the parameters: {why}")))?;
    let application_set = asked.application_set.trim().to_owned();
    let question = QuestionToExplain { route: asked.route.clone(), application_set, input };
    let found = explain(Arc::clone(app), question).await?;
    Ok(around(asked, &route_names(app), None, visitor, &drawn::explained(&found, app.now())))
}

fn around(asked: &Asked, names: &[String], problem: Option<&str>, visitor: &Visitor, rest: &Markup) -> Markup {
    html! {
        div.heading { h1 { "Explain an answer" } }
        (drawn::form(asked, names, problem, visitor))
        (rest)
    }
}
