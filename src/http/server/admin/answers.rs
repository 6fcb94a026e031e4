//! `GET /admin/answers`, `GET /admin/answers/{id}`, `POST /admin/answers/invalidate`.

use std::sync::Arc;

use axum::extract::Query;
use http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{off_thread, to_json};
use crate::{
    app::App,
    http::server::error::{ApiError, Code},
    overview::{answers, elements},
};
use domain::{
    document::{self, exact},
    generator::{Parameters, Selector},
};
use engine::{cache::NotOne, operators::Operator};

/// How many answers are listed unless `limit` is set.
const DEFAULT_LISTED: usize = 1000;
/// The largest `limit`.
const MAX_LISTED: usize = 1_000_000;

/// How many elements of an answer are listed at most: all that one may have.
const MAX_ELEMENTS: usize = 10_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ShowQuery {
    elements: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListQuery {
    route: Option<String>,
    application_set: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn list(app: Arc<App>, uri: &Uri) -> Result<Value, ApiError> {
    let invalid = |error: String| ApiError::new(Code::InvalidRequest, format!("the query: {error}"));
    let Query(query) = Query::<ListQuery>::try_from_uri(uri).map_err(|error| invalid(error.body_text()))?;
    if query.limit.is_some_and(|limit| limit > MAX_LISTED) {
        return Err(invalid(format!("`limit` is at most {MAX_LISTED}")));
    }
    let selector = Selector { route: query.route, application_set: query.application_set, ..Selector::default() };
    check_names(&selector)?;
    let selector = with_former_names(&app, &selector);
    let limit = query.limit.unwrap_or(DEFAULT_LISTED);
    to_json(&off_thread(move || answers::answers(&app, &selector, limit)).await?)
}

/// `GET /admin/answers/{id}`: the answer whose key begins with `id`.
pub(super) async fn show(app: Arc<App>, id: &str, uri: &Uri) -> Result<Value, ApiError> {
    let invalid = |error: String| ApiError::new(Code::InvalidRequest, format!("the query: {error}"));
    let Query(query) = Query::<ShowQuery>::try_from_uri(uri).map_err(|error| invalid(error.body_text()))?;
    let listed = query.elements.unwrap_or(elements::DEFAULT_LISTED);
    if listed > MAX_ELEMENTS {
        return Err(invalid(format!("`elements` is at most {MAX_ELEMENTS}")));
    }
    let start = super::held::parse_id(id)?;
    let found = off_thread(move || answers::answer(&app, &start, listed)).await?;
    let answer = found.map_err(|why| match why {
        NotOne::None => {
            let message = "no answer has this key; `appset-gateway answers list`, or GET /admin/answers, lists them";
            ApiError::new(Code::NotFound, message)
        }
        NotOne::Several(keys) => super::held::several(&keys, "answers"),
    })?;
    to_json(&answer)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Invalidation {
    route: Option<String>,
    application_set: Option<String>,
    #[serde(default)]
    #[serde(deserialize_with = "exact::read")]
    input: Parameters,
    #[serde(default)]
    all: bool,
}

/// `selector`, which also selects records under former names of its route.
fn with_former_names(app: &App, selector: &Selector) -> Selector {
    let setup = app.setup();
    let route = selector.route.as_ref().and_then(|name| setup.routes.by_name(name));
    route.map_or_else(|| selector.clone(), |route| selector.clone().also_named(route.formerly()))
}

/// An empty name is a mistake, such as a variable of a script that was never set. It must not select all answers, nor those that belong to no
/// ApplicationSet.
fn check_names(selector: &Selector) -> Result<(), ApiError> {
    for (key, name) in [("route", &selector.route), ("applicationSet", &selector.application_set)] {
        if name.as_ref().is_some_and(String::is_empty) {
            return Err(ApiError::new(Code::InvalidRequest, format!("`{key}` is empty; leave it out, or give a name")));
        }
    }
    Ok(())
}

pub(super) async fn invalidate(app: Arc<App>, body: &[u8], by: Operator) -> Result<Value, ApiError> {
    let invalid = |error: String| ApiError::new(Code::InvalidRequest, error);
    let selection: Invalidation =
        document::parse_object(body).map_err(|error| invalid(format!("the body: {error}")))?;
    let selector = Selector {
        route: selection.route,
        formerly: Vec::new(),
        application_set: selection.application_set,
        parameters: selection.input,
        is_exact: false,
        part: None,
    };
    check_names(&selector)?;
    if selection.all != selector.is_empty() {
        let message = if selection.all {
            "`all` selects all answers; leave it out, or leave the others out"
        } else {
            "this selects nothing: give a `route`, an `applicationSet` or `input`, or `\"all\": true` for all answers of all routes"
        };
        return Err(ApiError::new(Code::InvalidRequest, message));
    }
    if let Some(name) = selector.route.as_ref().filter(|name| app.setup().routes.by_name(name).is_none()) {
        let message = format!("there is no route `{}`", name.escape_debug());
        return Err(ApiError::new(Code::UnknownRoute, message));
    }
    let selector = with_former_names(&app, &selector);
    app.engine.publish_invalidation(&selector).await.map_err(|error| super::held::of_store(&error))?;
    let done = off_thread(move || app.engine.invalidate(&app.setup().routes, &selector, &by)).await?;
    Ok(json!({ "answers": done.answers, "runs": done.runs }))
}
