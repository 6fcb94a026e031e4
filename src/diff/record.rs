//! Records the questions and answers of a running gateway. Nothing is changed by it, and no secret of a backend is in it.

use std::sync::Arc;

use serde_json::Value;
use tokio::{
    task::{JoinError, spawn_blocking},
    time::Instant,
};

use super::recording::{Notes, Recorded, Recording};
use crate::app::{App, Setup};
use domain::{
    clock::Timestamp,
    generator::{BackendNote, Parameters, Query},
    secret::Secrets,
};
use engine::operators::remembered::Remembered;

/// The last `limit` questions that `app` remembers, with the ApplicationSets that sent them.
///
/// # Errors
/// When the gateway failed.
pub(crate) async fn record(app: &Arc<App>, limit: usize) -> Result<Recording, JoinError> {
    let setup = app.setup();
    let (remembered, total) = spawn_blocking({
        let (app, setup) = (Arc::clone(app), Arc::clone(&setup));
        move || app.engine.remembered(&setup.routes, limit)
    })
    .await?;
    let mut questions = Vec::new();
    for each in remembered {
        let names = app.engine.all_requesters(&each.question, &each.key).await;
        questions.extend(recorded(&setup, &each, &names));
    }
    let mut recording = Recording::new(questions, total);
    if let Some(argocd) = setup.argocd.as_ref().filter(|_| !recording.questions.is_empty()) {
        match argocd.describe().await {
            Ok(all) => recording.application_sets = all,
            Err(error) => recording.application_sets_error = Some(error.to_string()),
        }
    }
    let requesters: Vec<&String> = recording.questions.iter().flat_map(|question| &question.requesters).collect();
    let is_requester = |namespace: &str, name: &str| {
        requesters.iter().any(|requester| **requester == *name || requester.split_once('/') == Some((namespace, name)))
    };
    recording.application_sets.retain(|set| is_requester(&set.namespace, &set.name));
    Ok(recording)
}

/// The query of the ApplicationSet called `name`: a name, or a namespace and a name with a `/` between them.
pub(super) fn query(name: &str, parameters: Arc<Parameters>) -> Query {
    let (namespace, name) = name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    Query { namespace: namespace.map(Into::into), ..Query::new(name.into(), parameters, Instant::now()) }
}

/// `remembered`, once for the ApplicationSets whose calls name the route, and once for the others.
fn recorded(setup: &Setup, remembered: &Remembered, names: &[Arc<str>]) -> Vec<Recorded> {
    let Remembered { question, route, key, lineage, queried_at, sets, before, failing } = remembered;
    let parameters = Arc::new(route.without_defaults(&question.parameters));
    let is_matched = |name: &str| setup.routes.is_matched(&route.name, &query(name, Arc::clone(&parameters)));
    let (by_match, by_path): (Vec<_>, Vec<_>) =
        names.iter().map(ToString::to_string).partition(|name| is_matched(name));
    let secrets = route.backend.secrets();
    let note = |note: &Option<BackendNote>| Some(secrets.redact_json(note.as_ref()?.read::<Value>()?));
    let recorded = |by_match: bool, requesters: Vec<String>| Recorded {
        route: Some(route.name.to_string()),
        by_match,
        requesters,
        input: redacted(&secrets, &parameters),
        queried_at: queried_at.map(Timestamp::to_date),
        sets: sets.as_ref().map(|sets| sets.iter().map(|set| redacted(&secrets, &set.0)).collect()),
        failing: failing.as_ref().map(ToString::to_string),
        key: Some(key.to_string()),
        lineage: Some(lineage.to_string()),
        notes: Notes { own: note(&before.own), lineage: note(&before.lineage) },
    };
    if names.is_empty() {
        return vec![recorded(is_matched(""), Vec::new())];
    }
    let parts = [(true, by_match), (false, by_path)].into_iter();
    parts.filter(|(_, names)| !names.is_empty()).map(|(by_match, names)| recorded(by_match, names)).collect()
}

/// `set` without `secrets`.
pub(super) fn redacted(secrets: &Secrets, set: &Parameters) -> Parameters {
    let redacted = |(name, value): (&String, _)| (secrets.redact(name), secrets.redact_json(value));
    set.iter().map(|(name, value)| redacted((name, value.clone()))).collect()
}
