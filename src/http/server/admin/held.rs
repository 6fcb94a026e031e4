//! `POST /admin/held/{id}/release` and `…/reject`.

use std::{sync::Arc, time::Duration};

use axum::{extract::Query, http::Uri};
use serde::Deserialize;
use serde_json::{Value, json};

use super::off_thread;
use crate::{
    app::App,
    clients::store::StoreError,
    engine::{
        answer::admin_ops::{NotDecided, Operator},
        guard::Decision,
    },
    http::server::error::{ApiError, Code},
};

/// How long a decision may take to reach the disk.
const FLUSH: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecideQuery {
    fingerprint: Option<String>,
}

pub(super) async fn decide(
    app: Arc<App>,
    id: &str,
    uri: &Uri,
    decision: Decision,
    by: &Operator,
) -> Result<Value, ApiError> {
    let invalid = |error: String| ApiError::new(Code::InvalidRequest, format!("the query: {error}"));
    let Query(query) = Query::<DecideQuery>::try_from_uri(uri).map_err(|error| invalid(error.body_text()))?;
    let decided = app.engine.decide(&app.setup().routes, id, query.fingerprint.as_deref(), decision, by).await;
    let decided = decided.map_err(of_not_decided)?;
    let id = decided.was.lineage.to_string();
    if let Some(disk) = app.engine.answers().disk().cloned() {
        off_thread(move || disk.flush(FLUSH)).await?;
    }
    let message = match (decision, &decided.is, &decided.unknown) {
        (Decision::Rejected, ..) => "no number of runs that agree lets it pass; the last good answer stays".to_owned(),
        (Decision::Released, None, None) => "the source says so still, and it is accepted now".to_owned(),
        (Decision::Released, None, Some(unknown)) => format!("nothing is held any more: {}", unknown.failure),
        (Decision::Released, Some(held), _) if held.decision.is_none() => {
            format!("the source says something else by now, which is {held}")
        }
        (Decision::Released, Some(_), Some(unknown)) => {
            format!("it is accepted once the source says it again; now: {}", unknown.failure)
        }
        (Decision::Released, Some(_), None) => "it is accepted once the source says it again".to_owned(),
    };
    Ok(json!({ "id": id, "isHeld": decided.is.is_some(), "message": message }))
}

fn of_not_decided(error: NotDecided) -> ApiError {
    match error {
        NotDecided::NotHeld => {
            let message =
                "nothing is held under this id; `appset-gateway held list`, or GET /admin/held, lists what is";
            ApiError::new(Code::NotFound, message)
        }
        NotDecided::Changed => {
            let message = "another answer is held under this id by now; GET /admin/held shows it, with its fingerprint";
            ApiError::new(Code::Conflict, message)
        }
        NotDecided::Store(error) => of_store(&error),
    }
}

/// The shared store does not answer, so that nothing can be decided for all replicas.
pub(super) fn of_store(error: &StoreError) -> ApiError {
    let message = format!("nothing was changed: the shared store cannot be used: {error}");
    ApiError::new(Code::Unavailable, message).retry_after(Duration::from_secs(5))
}
