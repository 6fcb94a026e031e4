//! `GET` of the views that have no parameters: `/admin/status`, `/admin/routes`, `/admin/sources`, `/admin/events`, `/admin/held` and
//! `/admin/config`.

use std::sync::Arc;

use http::Uri;
use serde::Serialize;
use serde_json::Value;

use super::{off_thread, to_json};
use crate::{
    app::App,
    http::server::error::{ApiError, Code},
};

/// The view that `view` makes of `app`. It may read all answers in memory, so it is made on a thread that may block.
///
/// # Errors
/// When the request has a query, which no view has.
pub(super) async fn view<V: Serialize + Send + 'static>(
    app: Arc<App>,
    uri: &Uri,
    view: impl FnOnce(&App) -> V + Send + 'static,
) -> Result<Value, ApiError> {
    if uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(ApiError::new(Code::InvalidRequest, "this path takes no query"));
    }
    to_json(&off_thread(move || view(&app)).await?)
}
