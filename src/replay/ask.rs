//! Sends one question, as a caller would, and returns the answer to the caller.

use std::{fmt, sync::Arc};

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::case::CacheState;
use crate::{app::App, http::server::error::ApiError};
use domain::{
    generator::{Parameters, Query, watch::Watch},
    spelling::advice,
    units::plural,
};
use engine::{
    answer::{AnswerSource, Unknown},
    route::{ResolvedQuery, Route},
};

/// An answer, as a caller gets it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answered {
    /// Parameter sets.
    Sets {
        /// All of them.
        sets: Vec<Map<String, Value>>,
        /// How they were found.
        cache: CacheState,
        /// The code of the error because of which an older answer is served.
        because: Option<&'static str>,
    },
    /// An error: its code and message.
    Error(String, String),
}

impl fmt::Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(code, message) => write!(f, "the error {code}: {message}"),
            Self::Sets { sets, cache, because } => {
                let sets = sets.len();
                write!(f, "{sets} parameter set{} (cache: {}", plural(sets), cache.as_str())?;
                because.map_or(Ok(()), |code| write!(f, ", because: {code}"))?;
                f.write_str(")")
            }
        }
    }
}

/// The answer to a question, or the error because of which there is none.
pub(crate) async fn answer_of(app: &App, resolved: Result<Arc<ResolvedQuery>, (String, String)>) -> Answered {
    let resolved = match resolved {
        Ok(resolved) => resolved,
        Err((code, message)) => return Answered::Error(code, message),
    };
    match app.engine.answer(&resolved).await {
        Ok(answer) => {
            let code = |unknown: &Unknown| ApiError::of(unknown.clone(), &resolved.route).code.as_str();
            let (cache, because) = match &answer.source {
                AnswerSource::Hit { .. } => (CacheState::Hit, None),
                AnswerSource::StaleWhileRevalidate(_, why) => (CacheState::Stale, why.as_deref().map(code)),
                AnswerSource::StaleIfError(_, why) => (CacheState::StaleIfError, Some(code(why))),
                AnswerSource::Miss { .. } => (CacheState::Miss, None),
            };
            let sets = answer.entry.encoded.decode().into_iter().map(|set| set.0).collect();
            Answered::Sets { sets, cache, because }
        }
        Err(unknown) => {
            let error = ApiError::of_nothing(unknown, &resolved);
            Answered::Error(error.code.as_str().to_owned(), error.message)
        }
    }
}

/// A call to a route.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallToRoute<'a> {
    /// The name of the route. Without it, the first route whose `match` accepts the call.
    pub(crate) route: Option<&'a str>,
    /// The name of the ApplicationSet that asks.
    pub(crate) application_set: &'a str,
    /// Its namespace, if the caller sends it.
    pub(crate) namespace: Option<&'a str>,
    /// `input.parameters`.
    pub(crate) parameters: Arc<Parameters>,
    /// Watches the backend.
    pub(crate) watch: Option<Watch>,
}

/// The question, with the route that answers it.
///
/// # Errors
/// The code and the message of the error that a caller would get.
pub(crate) async fn ask(app: &App, call: CallToRoute<'_>) -> Result<Arc<ResolvedQuery>, (String, String)> {
    let setup = app.setup();
    let names: Vec<&str> = setup.routes.iter().map(|route| &*route.name).collect();
    let query = |until| Query {
        namespace: call.namespace.map(Into::into),
        watch: call.watch.clone(),
        ..Query::new(call.application_set.into(), Arc::clone(&call.parameters), until)
    };
    let route: Arc<Route> = if let Some(name) = call.route {
        let unknown = || format!("there is no route `{name}`; {}", advice(name, &names));
        setup.routes.by_name(name).cloned().ok_or_else(|| ("unknown_route".to_owned(), unknown()))?
    } else {
        let found = setup.routes.by_match(&query(Instant::now() + setup.server.deadline.0)).await;
        let found = found.map_err(|(route, error)| coded(ApiError::of_match(&route, error)))?;
        let unwanted = || format!("no route's `match` takes this call; name one of: {}", names.join(", "));
        found.cloned().ok_or_else(|| ("unknown_route".to_owned(), unwanted()))?
    };
    let until = Instant::now() + route.deadline;
    let admitted = route.admit(Arc::clone(&call.parameters), until).await;
    let parameters = admitted.map_err(|error| coded(ApiError::of_input(&route, error)))?;
    Ok(Arc::new(ResolvedQuery::new(route, Query { parameters, ..query(until) })))
}

fn coded(error: ApiError) -> (String, String) {
    (error.code.as_str().to_owned(), error.message)
}
