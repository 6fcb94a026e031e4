//! `GET /admin/answers`, `GET /admin/answers/{id}`, `POST /admin/answers/invalidate`.

use std::sync::Arc;

use axum::extract::Query;
use http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{off_thread, told};
use crate::{
    app::App,
    domain::{
        document,
        generator::{Parameters, Selector},
    },
    engine::answer::admin_ops::Operator,
    http::server::error::{ApiError, Code},
    overview::answers::{self, NotOne},
};

/// How many answers are listed unless `limit` says otherwise.
const DEFAULT_LISTED: usize = 1000;
/// The largest `limit`.
const MAX_LISTED: usize = 1_000_000;

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
    let limit = query.limit.unwrap_or(DEFAULT_LISTED);
    told(&off_thread(move || answers::answers(&app, &selector, limit)).await?)
}

/// `GET /admin/answers/{id}`: the answer whose key begins with `id`.
pub(super) async fn show(app: Arc<App>, id: &str) -> Result<Value, ApiError> {
    let key = id.to_owned();
    let found = off_thread(move || answers::answer(&app, &key)).await?;
    let answer = found.map_err(|why| match why {
        NotOne::None => {
            let message = "no answer has this key; `appset-gateway answers list`, or GET /admin/answers, lists them";
            ApiError::new(Code::NotFound, message)
        }
        NotOne::Several(count) => {
            ApiError::new(Code::Conflict, format!("the keys of {count} answers begin with this; give more of the key"))
        }
    })?;
    told(&answer)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Invalidation {
    route: Option<String>,
    application_set: Option<String>,
    #[serde(default)]
    input: Parameters,
}

pub(super) async fn invalidate(app: Arc<App>, body: &[u8], by: Operator) -> Result<Value, ApiError> {
    let invalid = |error: String| ApiError::new(Code::InvalidRequest, error);
    let selection: Invalidation =
        document::parse_object(body).map_err(|error| invalid(format!("the body: {error}")))?;
    let selector = Selector {
        route: selection.route,
        application_set: selection.application_set,
        parameters: selection.input,
        is_exact: false,
    };
    if let Some(name) = selector.route.as_ref().filter(|name| app.setup().routes.by_name(name).is_none()) {
        let message = format!("there is no route `{}`", name.escape_debug());
        return Err(ApiError::new(Code::UnknownRoute, message));
    }
    app.engine.publish_invalidation(&selector).await.map_err(|error| super::held::of_store(&error))?;
    let done = off_thread(move || app.engine.invalidate(&app.setup().routes, &selector, &by)).await?;
    Ok(json!({ "answers": done.answers, "runs": done.runs }))
}
