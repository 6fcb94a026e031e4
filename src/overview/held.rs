//! The held answers: the sets that would be deleted, why they are held, and how that ends.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::date;
use crate::app::App;
use domain::{
    clock::Timestamp,
    document::exact,
    generator::{Evidence, Parameters},
};
use engine::{
    cache::Key,
    guard::{Decision, Held},
};

/// All held answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HeldAnswers {
    /// The oldest first.
    pub(crate) held: Vec<HeldAnswer>,
}

/// An answer that the guard holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct HeldAnswer {
    /// The id, by which it is released or rejected.
    pub(crate) id: String,
    /// The route.
    pub(crate) route: String,
    /// The ApplicationSet, if the answer may depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) application_set: Option<String>,
    /// ApplicationSets that called recently, the last one first.
    pub(crate) requesters: Vec<String>,
    /// The input parameters.
    #[serde(deserialize_with = "exact::read")]
    pub(crate) input: Parameters,
    /// Why it is held.
    pub(crate) reason: String,
    /// The sets that would be gone.
    pub(crate) gone: Vec<String>,
    /// The keys that identify a parameter set.
    pub(crate) identity: Vec<String>,
    /// How many parameter sets it has.
    pub(crate) parameter_sets: usize,
    /// How many runs have agreed since the first.
    pub(crate) agreed: u32,
    /// How many runs must agree.
    pub(crate) wanted: u32,
    /// The time between those runs.
    pub(crate) interval_seconds: f64,
    /// When the first run found it.
    pub(crate) since: String,
    /// When the last agreeing run found it.
    pub(crate) seen_at: String,
    /// When a caller last sent the question.
    pub(crate) queried_at: String,
    /// About when it is accepted, if all further runs agree and no operator decides otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) accepted_at: Option<String>,
    /// The findings of the last run about each item.
    #[serde(default)]
    pub(crate) evidence: Vec<Evidence>,
    /// The message that Argo CD shows.
    pub(crate) message: String,
    /// Identifies its parameter sets.
    pub(crate) fingerprint: String,
    /// The operator's decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<Decision>,
}

impl HeldAnswer {
    /// The view of `held`, which is held in `lineage`, at `now`.
    pub(crate) fn of(lineage: Key, held: &Held, requesters: &[Arc<str>], now: Timestamp) -> Self {
        Self {
            id: lineage.to_string(),
            route: held.question.route.to_string(),
            application_set: held.question.application_set.as_ref().map(ToString::to_string),
            requesters: requesters.iter().map(ToString::to_string).collect(),
            input: (*held.question.parameters).clone(),
            reason: held.breach.reason.clone(),
            gone: held.breach.gone.clone(),
            identity: held.breach.identity.clone(),
            parameter_sets: held.sets,
            agreed: held.agreed,
            wanted: held.wanted,
            interval_seconds: held.interval.as_secs_f64(),
            since: date(held.since),
            seen_at: date(held.seen_at),
            queried_at: date(held.queried_at),
            accepted_at: held.accepted_at(now).map(date),
            evidence: held.evidence.clone(),
            message: held.to_string(),
            fingerprint: held.fingerprint(),
            decision: held.decision,
        }
    }
}

/// The held answers of `app`.
pub(crate) fn held(app: &App) -> HeldAnswers {
    let mut held = app.engine.held();
    held.sort_by_key(|(_, held)| held.since);
    let now = app.now();
    let view = |(lineage, held): &(Key, Held)| {
        HeldAnswer::of(*lineage, held, &app.engine.requesters(&held.question, &held.key), now)
    };
    HeldAnswers { held: held.iter().map(view).collect() }
}
