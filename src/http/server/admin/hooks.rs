//! `POST /admin/hooks/{name}/concerns`: the questions that an event would concern, without a recheck.

use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Value, json};

use super::off_thread;
use crate::{
    app::App,
    http::server::error::{ApiError, Code},
};
use hooks::Subjects;

/// How many questions are listed.
const MAX_LISTED: usize = 100;

/// The subjects of the event `body` of the hook `name`, and the questions that they concern.
pub(super) async fn concerns(app: Arc<App>, name: &str, headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiError> {
    let setup = app.setup();
    let hook = setup.hooks.by_name(name);
    let hook = hook.ok_or_else(|| ApiError::new(Code::NotFound, "there is no hook of this name"))?;
    let delivery = hook.read(headers, body).await;
    let delivery = delivery.map_err(|error| ApiError::new(Code::InvalidRequest, error.to_string()))?;
    let to_json = json!(delivery.subjects);
    let mut subjects = Subjects::default();
    delivery.subjects.into_iter().for_each(|subject| subjects.add(subject));
    off_thread(move || {
        let found = app.engine.concerned(&app.setup().routes, &subjects, true);
        let mut questions: Vec<Value> = found
            .iter()
            .take(MAX_LISTED)
            .map(|(key, (question, _))| {
                json!({
                    "key": key.to_string(),
                    "route": *question.route,
                    "input": *question.parameters,
                    "requesters": app.engine.requesters(question, key),
                })
            })
            .collect();
        questions.sort_by_key(|question| question["key"].to_string());
        json!({"subjects": to_json, "count": found.len(), "questions": questions})
    })
    .await
}
