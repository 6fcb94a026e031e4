//! `POST /admin/held/{id}/release` and `…/reject`.

use std::{sync::Arc, time::Duration};

use axum::extract::Query;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{OperatorRequest, off_thread};
use crate::{
    app::App,
    http::server::error::{ApiError, Code},
};
use domain::{
    document::{self, DocumentError},
    visible::one_line,
};
use engine::{
    cache::{Key, KeyStart, NotOne},
    guard::Decision,
    operators::{NotDecided, Operator},
};
use store::StoreError;

/// How long a decision may take to reach the disk.
const FLUSH: Duration = Duration::from_secs(5);
/// How many ids are listed that begin with an operator's text.
const MAX_CANDIDATES: usize = 5;
/// The longest reason for a decision, in characters.
const MAX_REASON_CHARS: usize = 500;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecideQuery {
    fingerprint: Option<String>,
}

pub(super) async fn decide(
    app: Arc<App>,
    id: &str,
    decision: Decision,
    request: OperatorRequest,
) -> Result<Value, ApiError> {
    let OperatorRequest { uri, body, by, .. } = request;
    let invalid = |error: String| ApiError::new(Code::InvalidRequest, format!("the query: {error}"));
    let Query(query) = Query::<DecideQuery>::try_from_uri(&uri).map_err(|error| invalid(error.body_text()))?;
    let by = Operator { reason: reason(&body)?, ..by };
    let done = record(app, id, query.fingerprint.as_deref(), decision, &by).await?;
    Ok(json!({ "id": done.id, "isHeld": done.is_held, "message": done.message }))
}

/// The reason in the body of a decision, which may be empty.
fn reason(body: &[u8]) -> Result<Option<String>, ApiError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct DecideBody {
        reason: Option<String>,
    }
    if body.trim_ascii().is_empty() {
        return Ok(None);
    }
    let invalid = |error: DocumentError| ApiError::new(Code::InvalidRequest, format!("the body: {error}"));
    let body: DecideBody = document::parse_object(body).map_err(invalid)?;
    body.reason.map_or(Ok(None), |reason| checked_reason(&reason))
}

/// A reason as it is logged: one line. `None` if it is blank.
///
/// # Errors
/// When it is too long.
pub(super) fn checked_reason(reason: &str) -> Result<Option<String>, ApiError> {
    let reason = one_line(reason.trim());
    if reason.chars().count() > MAX_REASON_CHARS {
        let message = format!("the reason has more than {MAX_REASON_CHARS} characters");
        return Err(ApiError::new(Code::InvalidRequest, message));
    }
    Ok((!reason.is_empty()).then_some(reason))
}

/// The effect of a decision.
pub(super) struct Done {
    /// The id of the answer that was held.
    pub(super) id: String,
    /// Whether an answer is still held.
    pub(super) is_held: bool,
    /// The result, for people.
    pub(super) message: String,
}

/// Records a decision, and waits until it is on disk.
pub(super) async fn record(
    app: Arc<App>,
    id: &str,
    fingerprint: Option<&str>,
    decision: Decision,
    by: &Operator,
) -> Result<Done, ApiError> {
    let id = &parse_id(id)?;
    let decided = app.engine.decide(&app.setup().routes, id, fingerprint, decision, by).await;
    let decided = decided.map_err(of_not_decided)?;
    let id = decided.was.lineage.to_string();
    if let Some(disk) = app.engine.answers().disk().cloned() {
        off_thread(move || disk.flush(FLUSH)).await?;
    }
    let message = match (decision, &decided.is, &decided.unknown) {
        (Decision::Rejected, ..) => {
            "rejected: it is never accepted, however often the source says it; the last good answer stays".to_owned()
        }
        (Decision::Released, None, None) => match decided.was.loss() {
            Some(loss) => format!("accepted, because the source still says so; Argo CD will delete {loss}"),
            None => "accepted, because the source still says so".to_owned(),
        },
        (Decision::Released, None, Some(unknown)) => format!("nothing is held any more: {}", unknown.failure),
        (Decision::Released, Some(held), _) if held.decision.is_none() => {
            format!("the source says something else by now, which is {held}")
        }
        (Decision::Released, Some(_), Some(unknown)) => {
            format!("it is accepted once the source says it again; now: {}", unknown.failure)
        }
        (Decision::Released, Some(_), None) => "it is accepted once the source says it again".to_owned(),
    };
    Ok(Done { id, is_held: decided.is.is_some(), message })
}

fn of_not_decided(error: NotDecided) -> ApiError {
    match error {
        NotDecided::NotOne(NotOne::Several(keys)) => several(&keys, "held answers"),
        NotDecided::NotOne(NotOne::None) => {
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

/// The id of one answer, as an operator wrote it.
///
/// # Errors
/// When it is not 6 to 32 hexadecimal digits.
pub(super) fn parse_id(id: &str) -> Result<KeyStart, ApiError> {
    KeyStart::parse(id).map_err(|error| ApiError::new(Code::InvalidRequest, error.to_string()))
}

/// The ids of several `things` begin with an operator's text.
pub(super) fn several(keys: &[Key], things: &str) -> ApiError {
    let named: Vec<String> = keys.iter().take(MAX_CANDIDATES).map(ToString::to_string).collect();
    let more = if keys.len() > named.len() { ", …" } else { "" };
    let message = format!("{} {things} begin with this id; give more of it: {}{more}", keys.len(), named.join(", "));
    ApiError::new(Code::Conflict, message)
}

/// The shared store does not answer, so that nothing can be decided for all replicas.
pub(super) fn of_store(error: &StoreError) -> ApiError {
    let message = format!("nothing was changed: the shared store cannot be used: {error}");
    ApiError::new(Code::Unavailable, message).retry_after(Duration::from_secs(5))
}
