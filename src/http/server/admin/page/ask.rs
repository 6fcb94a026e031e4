//! `POST /explain`: asks a source once, and shows each step.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use maud::{Markup, html};

use super::{
    super::{
        super::error::{ApiError, Code},
        explain::{QuestionToExplain, explain},
    },
    form::{Form, Sent, receive},
    frame,
    views::route_names,
};
use crate::{
    app::App,
    http::page::{
        self, Tab, Visitor,
        explain::{self as drawn, QuestionForm},
    },
};

pub(super) async fn ask(State(app): State<Arc<App>>, request: Request) -> Response {
    receive(app, Tab::Explain.path(), request, answer).await
}

async fn answer(sent: Sent) -> Response {
    let Sent { app, completion, visitor, form, .. } = sent;
    let form = read(&form);
    let frame = frame(&app, "Explain", Some(Tab::Explain), Some(&visitor), false);
    match explained(&app, &form, &visitor).await {
        Ok(content) => completion.show(page::draw(&frame, &content)),
        // The form stays, so that nothing has to be written again.
        Err(error) => {
            let names = route_names(&app);
            completion.refuse_shown(error, |error, _| {
                page::draw(&frame, &around(&form, &names, Some(&error.message), &visitor, &html! {}))
            })
        }
    }
}

fn read(form: &Form) -> QuestionForm {
    let field = |name| form.get(name).unwrap_or_default().to_owned();
    QuestionForm { route: field("route"), application_set: field("applicationSet"), parameters: field("parameters") }
}

async fn explained(app: &Arc<App>, form: &QuestionForm, visitor: &Visitor) -> Result<Markup, ApiError> {
    let input = form.read().map_err(|why| ApiError::new(Code::InvalidInput, format!("the parameters: {why}")))?;
    let application_set = form.application_set.trim().to_owned();
    let question = QuestionToExplain { route: form.route.clone(), application_set, input };
    let found = explain(Arc::clone(app), question).await?;
    Ok(around(form, &route_names(app), None, visitor, &drawn::explained(&found, app.now())))
}

fn around(form: &QuestionForm, names: &[String], problem: Option<&str>, visitor: &Visitor, rest: &Markup) -> Markup {
    html! {
        div.heading { h1 { "Explain an answer" } }
        (drawn::form(form, names, problem, visitor))
        (rest)
    }
}
