//! `GET /admin/answers`, `POST /admin/answers/invalidate`.

use std::sync::Arc;

use axum::extract::Query;
use http::Uri;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{off_thread, rfc3339};
use crate::{
    app::App,
    domain::{
        document,
        generator::{Parameters, Selector},
    },
    engine::answer::admin_ops::{Operator, Overview},
    http::server::error::{ApiError, Code},
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
    let all = off_thread(move || app.engine.list(&app.setup().routes, &selector)).await?;
    let answers: Vec<Value> = all.iter().take(query.limit.unwrap_or(DEFAULT_LISTED)).map(tell).collect();
    Ok(json!({ "answers": answers, "total": all.len() }))
}

fn tell(overview: &Overview) -> Value {
    let mut fields = Map::new();
    let question = &overview.question;
    fields.insert("key".into(), overview.key.to_string().into());
    fields.insert("lineage".into(), overview.lineage.to_string().into());
    fields.insert("route".into(), (*question.route).into());
    if let Some(name) = &question.application_set {
        fields.insert("applicationSet".into(), (**name).into());
    }
    fields.insert("askedBy".into(), json!(overview.asked_by));
    fields.insert("input".into(), Value::Object((*question.parameters).clone()));
    fields.insert("state".into(), overview.state.into());
    if let Some(answer) = &overview.answer {
        fields.insert("storedAt".into(), rfc3339(answer.stored_at).into());
        fields.insert("ageSeconds".into(), overview.age.unwrap_or_default().as_secs().into());
        fields.insert("sizeBytes".into(), answer.size.into());
        fields.insert("parameterSets".into(), answer.sets.into());
        fields.insert("backendMilliseconds".into(), json!(answer.took.as_secs_f64() * 1000.0));
        fields.insert("evidence".into(), json!(answer.evidence));
    }
    if let Some(left) = overview.fresh_for {
        fields.insert("freshForSeconds".into(), left.as_secs().into());
    }
    if let Some((failure, left)) = &overview.failing {
        let failing = json!({
            "kind": failure.as_str(), "message": failure.to_string(), "evidence": failure.evidence(),
            "askedAgainInSeconds": left.as_secs() + 1,
        });
        fields.insert("failing".into(), failing);
    }
    if let Some(held) = &overview.held {
        fields.insert("held".into(), super::held::tell(overview.lineage, held, &overview.asked_by));
    }
    fields.into()
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
