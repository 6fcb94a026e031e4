//! `GET /admin/questions`: the last questions with the answers that callers got, for `appset-gateway diff`.

use std::{sync::Arc, time::Duration};

use axum::extract::Query;
use http::Uri;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use super::to_json;
use crate::{
    app::App,
    diff::record::record,
    http::server::error::{ApiError, Code},
};

/// How many questions are listed unless `limit` is set.
const DEFAULT_LISTED: usize = 200;
/// The largest `limit`.
const MAX_LISTED: usize = 1000;
/// How long a request waits for the one before it. A list may be large.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListQuery {
    limit: Option<usize>,
}

pub(super) async fn list(app: Arc<App>, uri: &Uri) -> Result<Value, ApiError> {
    let invalid = |error: String| ApiError::new(Code::InvalidRequest, format!("the query: {error}"));
    let Query(query) = Query::<ListQuery>::try_from_uri(uri).map_err(|error| invalid(error.body_text()))?;
    let limit = query.limit.unwrap_or(DEFAULT_LISTED);
    if limit > MAX_LISTED {
        return Err(invalid(format!("`limit` is at most {MAX_LISTED}")));
    }
    let Ok(Ok(_permit)) = timeout(PATIENCE, app.recordings.acquire()).await else {
        let message = "other requests for this list are under way";
        return Err(ApiError::new(Code::Unavailable, message).retry_after(PATIENCE));
    };
    let recording = record(&app, limit).await;
    let recording = recording.map_err(|error| ApiError::new(Code::Internal, format!("the gateway failed: {error}")))?;
    to_json(&recording)
}
