//! `POST /admin/explain`: a source's result for a question now, step by step, and the answer to Argo CD. Nothing is stored.

use std::{sync::Arc, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::to_json;
use crate::{
    app::App,
    http::server::{
        error::{ApiError, Code},
        short,
    },
    overview::explain::{self, Explanation, Refusal},
};
use domain::{
    document::{self, exact},
    generator::{Parameters, Query, watch::Watch},
    spelling::advice,
};
use engine::{
    answer::Unknown,
    route::{ResolvedQuery, Route},
};

/// How soon another explanation may be requested while one is under way.
const BUSY: Duration = Duration::from_secs(5);

/// A question to explain.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct QuestionToExplain {
    /// The route.
    pub(crate) route: String,
    /// The ApplicationSet that asks: a name, or a namespace and a name with a `/` between them.
    #[serde(default)]
    pub(crate) application_set: String,
    /// The input parameters, as Argo CD sends them.
    #[serde(default)]
    #[serde(deserialize_with = "exact::read")]
    pub(crate) input: Parameters,
}

pub(super) async fn post(app: Arc<App>, body: &[u8]) -> Result<Value, ApiError> {
    let question = document::parse_object(body)
        .map_err(|error| ApiError::new(Code::InvalidRequest, format!("the body: {error}")))?;
    to_json(&explain(app, question).await?)
}

/// Explains the answer to `question`.
///
/// # Errors
/// When there is no such route, it does not accept the parameters, or too many explanations are under way.
pub(crate) async fn explain(app: Arc<App>, question: QuestionToExplain) -> Result<Explanation, ApiError> {
    let setup = app.setup();
    let Some(route) = setup.routes.by_name(&question.route).cloned() else {
        let names: Vec<&str> = setup.routes.iter().map(|route| &*route.name).collect();
        let message = format!("there is no route `{}`; {}", short(&question.route), advice(&question.route, &names));
        return Err(ApiError::new(Code::UnknownRoute, message));
    };
    let Some(permit) = app.explaining.enter(&route.name) else {
        let message = "an explanation of this route, or of several others, is under way; ask again when it has ended";
        return Err(ApiError::new(Code::Throttled, message).retry_after(BUSY));
    };
    // A task of its own, so that it ends in order if the requester has gone: a worker that is cut off must be replaced.
    let task = tokio::spawn(async move {
        let _permit = permit;
        let watch = Watch::default();
        let resolved = resolve(&route, question, &watch).await?;
        Ok(explain::explain(&app, &resolved, &watch, refusal).await)
    });
    let failed = |_| ApiError::new(Code::Internal, "the gateway failed; its log says where");
    task.await.map_err(failed)?
}

/// The question as its route gets it.
async fn resolve(route: &Arc<Route>, question: QuestionToExplain, watch: &Watch) -> Result<ResolvedQuery, ApiError> {
    let until = Instant::now() + route.deadline;
    let admitted = route.admit(Arc::new(question.input), until).await;
    let parameters = admitted.map_err(|error| ApiError::of_input(route, error))?;
    let (namespace, name) = match question.application_set.split_once('/') {
        Some((namespace, name)) => (Some(namespace.into()), name),
        None => (None, &*question.application_set),
    };
    let query = Query { namespace, watch: Some(watch.clone()), ..Query::new(name.into(), parameters, until) };
    Ok(ResolvedQuery::new(Arc::clone(route), query))
}

fn refusal(unknown: Unknown, resolved: &ResolvedQuery, has_fallback: bool) -> Refusal {
    let error =
        if has_fallback { ApiError::of(unknown, &resolved.route) } else { ApiError::of_nothing(unknown, resolved) };
    Refusal { status: error.code.status().as_u16(), code: error.code.as_str().to_owned(), message: error.message }
}
