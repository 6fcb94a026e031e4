//! Asks a configuration recorded questions: each goes to the route to which the gateway would send it, and each run is made once.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use indexmap::IndexMap;
use serde_json::Value;
use tokio::time::Instant;

use super::{
    record::{query, redacted},
    recording::{Recorded, Recording},
};
use crate::app::Setup;
use domain::{
    generator::{BackendNote, Before, ParameterSet, Parameters, Query},
    secret::REDACTED,
};
use engine::{
    cache::Key,
    failure::Failure,
    route::{ResolvedQuery, Route},
    run::try_out,
};

/// How many questions are sent unless the caller sets a limit.
pub(crate) const DEFAULT_LIMIT: usize = 200;
/// How many ApplicationSets are followed for each question that may be sent.
const MAX_FOLLOWED: usize = 10;
/// How many are sent at once.
const AT_ONCE: usize = 4;

/// A recorded question of one ApplicationSet, and the answer of a configuration.
#[derive(Debug)]
pub(crate) struct Answered<'r> {
    /// The question.
    pub(crate) recorded: &'r Recorded,
    /// The ApplicationSet; empty if it is not known.
    pub(crate) application_set: &'r str,
    /// The question as its route gets it.
    pub(crate) query: Option<Arc<ResolvedQuery>>,
    /// The answer.
    pub(crate) answer: Answer,
}

/// The answer of a configuration.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Parameter sets, without secrets of the backend.
    Sets(Arc<Vec<ParameterSet>>),
    /// An error, and why.
    Unknown(String),
    /// Too many others were sent.
    Skipped,
}

/// Asks `setup` the questions of `recording`, `limit` at most.
pub(crate) async fn ask<'r>(setup: &Setup, recording: &'r Recording, limit: usize) -> Vec<Answered<'r>> {
    let pairs = recording.questions.iter().flat_map(|recorded| match &*recorded.requesters {
        [] => vec![(recorded, "")],
        names => names.iter().map(|name| (recorded, &**name)).collect(),
    });
    let plan = |(index, (recorded, name)): (usize, (&'r Recorded, &'r str))| async move {
        let planned = if index < limit * MAX_FOLLOWED {
            plan(setup, recorded, name).await.map_err(Answer::Unknown)
        } else {
            Err(Answer::Skipped)
        };
        (recorded, name, planned)
    };
    let planned: Vec<_> = stream::iter(pairs.enumerate()).map(plan).buffered(AT_ONCE).collect().await;
    let mut distinct: IndexMap<Key, Arc<ResolvedQuery>> = IndexMap::new();
    for query in planned.iter().filter_map(|(.., planned)| planned.as_ref().ok()) {
        distinct.entry(query.key).or_insert_with(|| Arc::clone(query));
    }
    let answers: HashMap<Key, Answer> = stream::iter(distinct.into_iter().take(limit))
        .map(|(key, query)| async move { (key, run(&query).await) })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let answered = planned.into_iter().map(|(recorded, application_set, planned)| match planned {
        Ok(query) => {
            let answer = answers.get(&query.key).cloned().unwrap_or(Answer::Skipped);
            Answered { recorded, application_set, query: Some(query), answer }
        }
        Err(answer) => Answered { recorded, application_set, query: None, answer },
    });
    answered.collect()
}

/// The questions of `recording` with the answers of `setup`, which gets `limit` of them. The others are only counted.
pub(crate) async fn recorded_by(setup: &Setup, recording: &Recording, limit: usize) -> Recording {
    let answered = ask(setup, recording, limit).await;
    let total = answered.len() + recording.total.saturating_sub(recording.questions.len());
    let answered = answered.into_iter().filter_map(|Answered { recorded, application_set, query, answer }| {
        let (sets, failing) = match answer {
            Answer::Sets(sets) => (Some(sets.iter().map(|set| set.0.clone()).collect()), None),
            Answer::Unknown(why) => (None, Some(why)),
            Answer::Skipped => return None,
        };
        let names = [application_set].into_iter().filter(|name| !name.is_empty());
        let query = query.as_ref();
        Some(Recorded {
            by_match: recorded.by_match || recorded.route.is_none(),
            route: query.map(|query| query.route.name.to_string()).or_else(|| recorded.route.clone()),
            requesters: names.map(str::to_owned).collect(),
            key: query.map(|query| query.key.to_string()),
            lineage: query.map(|query| query.lineage().to_string()),
            sets,
            failing,
            ..recorded.clone()
        })
    });
    let questions = answered.collect();
    let mut answers = recording.clone();
    (answers.questions, answers.total) = (questions, total);
    answers
}

/// The route of `recorded`, if the ApplicationSet `name` asks, and the question as the route gets it.
///
/// # Errors
/// The error that Argo CD would get.
async fn plan(setup: &Setup, recorded: &Recorded, name: &str) -> Result<Arc<ResolvedQuery>, String> {
    if holds_secret(&recorded.input) {
        return Err(
            "an input parameter is a secret of the backend. It was not recorded, so this question cannot be sent"
                .to_owned(),
        );
    }
    let call = query(name, Arc::new(recorded.input.clone()));
    let route = match &recorded.route {
        Some(route) if !recorded.by_match => setup
            .routes
            .by_name(route)
            .ok_or_else(|| format!("there is no route `{route}`, so the answer is 404 unknown_route"))?,
        _ => {
            let until = Instant::now() + setup.server.deadline.0;
            let found = setup.routes.by_match(&Query { deadline: until, ..call.clone() }).await;
            let found = found.map_err(|(route, error)| {
                format!("route {}: whether it wants this call is not known: {error}", route.name)
            })?;
            found.ok_or_else(|| untaken(setup, recorded))?
        }
    };
    let admitted = route.admit(Arc::clone(&call.parameters), Instant::now() + route.deadline).await;
    let parameters = admitted.map_err(|error| format!("route {}: {error}", route.name))?;
    let note = |note: &Option<Value>| note.as_ref().and_then(BackendNote::of);
    let before = Before { own: note(&recorded.notes.own), lineage: note(&recorded.notes.lineage) };
    Ok(Arc::new(ResolvedQuery::new(Arc::clone(route), Query { parameters, before, ..call })))
}

/// Whether a value of `input` was left out of the recording.
fn holds_secret(input: &Parameters) -> bool {
    fn is_in(value: &Value) -> bool {
        match value {
            Value::String(text) => text.contains(REDACTED),
            Value::Array(items) => items.iter().any(is_in),
            Value::Object(fields) => fields.iter().any(|(name, value)| name.contains(REDACTED) || is_in(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
    input.iter().any(|(name, value)| name.contains(REDACTED) || is_in(value))
}

/// No `match` takes the call of `recorded`.
fn untaken(setup: &Setup, recorded: &Recorded) -> String {
    let why = "no route's `match` takes the call, so the answer is 404 unknown_route";
    match recorded.route.as_deref().filter(|name| setup.routes.by_name(name).is_some()) {
        Some(name) => format!("{why}, unless the call's path names the route `{name}`"),
        None => why.to_owned(),
    }
}

async fn run(planned: &ResolvedQuery) -> Answer {
    let route = &planned.route;
    let query = Query { deadline: Instant::now() + route.deadline, ..planned.query.clone() };
    match try_out(&ResolvedQuery::new(Arc::clone(route), query)).await {
        Ok(sets) => {
            let secrets = route.backend.secrets();
            Answer::Sets(Arc::new(sets.iter().map(|set| ParameterSet(redacted(&secrets, &set.0))).collect()))
        }
        Err(failure) => Answer::Unknown(refusal(route, &failure)),
    }
}

fn refusal(route: &Route, failure: &Failure) -> String {
    let (name, kind) = (&route.name, route.kind);
    match failure {
        Failure::Deadline => {
            format!("route {name} ({kind}): no answer within {} s", Duration::as_secs_f32(&route.deadline))
        }
        other => format!("route {name} ({kind}): {other}"),
    }
}
