//! The routes: their state, their answers, now and over the last day, and their requesters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{date, elements::AnswerElements};
use crate::app::{App, SAMPLED_EVERY};
use engine::{operators::conditions::FailingQuestion, route::Route, state::set_counts::ServedNow};

/// How many ApplicationSets are named with a route. More are only counted.
const MAX_NAMED: usize = 100;

/// All routes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Routes {
    /// In the order of the configuration.
    pub(crate) routes: Vec<RouteView>,
    /// The time between two samples of `history`.
    pub(crate) sampled_every_seconds: u64,
}

/// The state of a route: the first that applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RouteState {
    /// The guard holds an answer.
    Held,
    /// Some callers get an error.
    Failing,
    /// The source fails, and older answers are served.
    Stale,
    /// The source answers.
    Good,
    /// Nothing is known: no call has named it since the start, and nothing is remembered.
    #[serde(rename = "neverAsked")]
    NeverQueried,
}

/// A route.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RouteView {
    /// Its name.
    pub(crate) name: String,
    /// Its backend's kind.
    pub(crate) backend: String,
    /// Its state.
    pub(crate) state: RouteState,
    /// How long its answers are fresh, as configured.
    pub(crate) ttl_seconds: u64,
    /// When a run last brought an accepted answer, or when the last answer that is still served was stored.
    pub(crate) last_success_at: Option<String>,
    /// The age of the newest answer that is served.
    pub(crate) newest_age_seconds: Option<u64>,
    /// The age of the oldest answer that is served.
    pub(crate) oldest_age_seconds: Option<u64>,
    /// How many answers are served: one for each question, or for each lineage.
    pub(crate) answers: usize,
    /// How many parameter sets these have.
    pub(crate) parameter_sets: usize,
    /// How many answers are held.
    pub(crate) held: usize,
    /// The questions whose last run failed within the last hour, and whose callers get an error.
    pub(crate) failing: usize,
    /// The same, whose callers get an older answer.
    pub(crate) fallback: usize,
    /// The elements of the answers that are served. Left out if the route has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) elements: Option<AnswerElements>,
    /// The elements whose source failed within the last hour.
    pub(crate) unknown_elements: usize,
    /// The last of these failures.
    pub(crate) last_failure: Option<RouteFailure>,
    /// Lookups in the cache since the start.
    pub(crate) lookups: Lookups,
    /// Runs without an accepted answer since the start, by kind.
    pub(crate) failures: BTreeMap<String, u64>,
    /// Samples of the last day, the oldest first.
    pub(crate) history: Vec<SampleView>,
    /// ApplicationSets that called within the last day, by name, as far as is known.
    pub(crate) application_sets: Vec<String>,
    /// How many these are in all.
    pub(crate) application_sets_total: usize,
    /// Whether a candidate is compared with its backend.
    pub(crate) has_shadow: bool,
}

/// A failure of a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RouteFailure {
    /// When it happened.
    pub(crate) at: String,
    /// The kind, as in metrics.
    pub(crate) kind: String,
    /// The failure.
    pub(crate) message: String,
    /// The key of the question.
    pub(crate) key: String,
}

/// Lookups in the cache, by how they ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lookups {
    /// A fresh answer.
    pub(crate) hits: u64,
    /// An older answer, renewed in the background.
    pub(crate) stale: u64,
    /// An older answer, since the backend gave none.
    pub(crate) stale_if_error: u64,
    /// The backend was not called, since it failed just before.
    pub(crate) failing: u64,
    /// A run of the backend.
    pub(crate) misses: u64,
    /// The run of another request.
    pub(crate) joined: u64,
}

/// How many parameter sets a route served at one time.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SampleView {
    /// The time.
    pub(crate) at: String,
    /// How many parameter sets.
    pub(crate) parameter_sets: usize,
}

/// The engine's records of one route.
#[derive(Debug, Default)]
struct Known<'a> {
    served: ServedNow,
    held: usize,
    failing: Vec<&'a FailingQuestion>,
    elements: Vec<&'a FailingQuestion>,
}

/// The routes of `app`. It reads all answers in memory.
pub(crate) fn routes(app: &App) -> Routes {
    let setup = app.setup();
    let (served, failing) = (app.engine.served(&setup.routes), app.engine.failing(&setup.routes));
    let elements = app.engine.failing_elements(&setup.routes);
    let mut sets = app.engine.application_sets(&setup.routes);
    let held = app.engine.held();
    let view = |route: &Route| {
        let known = Known {
            served: served.get(&route.name).copied().unwrap_or_default(),
            held: held.iter().filter(|(_, held)| held.question.route == route.name).count(),
            failing: failing.iter().filter(|failing| failing.question.route == route.name).collect(),
            elements: elements.iter().filter(|element| element.question.route == route.name).collect(),
        };
        let names = sets.remove(&route.name).unwrap_or_default();
        RouteView {
            application_sets: names.iter().take(MAX_NAMED).map(ToString::to_string).collect(),
            application_sets_total: names.len(),
            ..of_route(app, route, &known)
        }
    };
    let mut view = view;
    Routes {
        routes: setup.routes.iter().map(|route| view(route)).collect(),
        sampled_every_seconds: SAMPLED_EVERY.as_secs(),
    }
}

fn of_route(app: &App, route: &Route, known: &Known<'_>) -> RouteView {
    let (now, metrics, served) = (app.now(), &route.metrics, known.served);
    let lookups = Lookups {
        hits: metrics.hits.get(),
        stale: metrics.stale.get(),
        stale_if_error: metrics.stale_if_error.get(),
        failing: metrics.failing.get(),
        misses: metrics.misses.get(),
        joined: metrics.joined.get(),
    };
    let fallback = known.failing.iter().filter(|failing| failing.fallback.is_some()).count();
    let failing = known.failing.len() - fallback;
    let age = |at| now.since(at).unwrap_or_default().as_secs();
    let state = match () {
        () if known.held > 0 => RouteState::Held,
        () if failing > 0 => RouteState::Failing,
        () if fallback + known.elements.len() > 0 => RouteState::Stale,
        () if served.answers == 0 && lookups == Lookups::default() => RouteState::NeverQueried,
        () => RouteState::Good,
    };
    let history = app.history.of(&route.name).into_iter();
    RouteView {
        name: route.name.to_string(),
        backend: route.kind.to_owned(),
        state,
        ttl_seconds: route.policy.ttl().as_secs(),
        last_success_at: metrics.now.last_success().max(served.newest).map(date),
        newest_age_seconds: served.newest.map(age),
        oldest_age_seconds: served.oldest.map(age),
        answers: served.answers,
        parameter_sets: served.sets,
        held: known.held,
        failing,
        fallback,
        elements: route.has_elements().then(|| AnswerElements::counted(served.elements)),
        unknown_elements: known.elements.len(),
        last_failure: known.failing.first().or(known.elements.first()).map(|failing| RouteFailure {
            at: date(failing.failed_at),
            kind: failing.failure.as_str().to_owned(),
            message: failing.failure.to_string(),
            key: failing.key.to_string(),
        }),
        lookups,
        failures: metrics.failures().into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect(),
        history: history.map(|sample| SampleView { at: date(sample.at), parameter_sets: sample.sets }).collect(),
        application_sets: Vec::new(),
        application_sets_total: 0,
        has_shadow: route.shadow.is_some(),
    }
}
