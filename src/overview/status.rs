//! The present problems, the most dangerous first, and a few numbers about the gateway's work.

mod alerts;

use serde::{Deserialize, Serialize};

use super::date;
use crate::app::App;

/// The state of the gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    /// The version of the program.
    pub(crate) version: String,
    /// The time of the gateway's clock.
    pub(crate) now: String,
    /// When the process started.
    pub(crate) started_at: String,
    /// How long it has run.
    pub(crate) uptime_seconds: u64,
    /// `serving`, `draining`, `closing` or `ended`.
    pub(crate) phase: String,
    /// How many configurations were in use since the start.
    pub(crate) generation: u64,
    /// Since when the configuration is in use.
    pub(crate) configured_at: String,
    /// Whether the guard holds an answer, or a source fails.
    pub(crate) is_held_or_failing: bool,
    /// The problems, the most dangerous first.
    pub(crate) alerts: Vec<Alert>,
    /// How many more alerts there are of kinds that have too many.
    pub(crate) alerts_left_out: usize,
    /// The present numbers.
    pub(crate) counts: Counts,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Alert {
    /// The kind of problem.
    pub(crate) kind: AlertKind,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// The problem, in one sentence.
    pub(crate) message: String,
    /// Since when, or when it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<String>,
    /// The route that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) route: Option<String>,
    /// The id of the held answer, or the key of the question that fails, or whose element does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// The destination, the hook or the issuer that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<String>,
    /// ApplicationSets that called recently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) requesters: Vec<String>,
}

/// The kinds of problems, the most dangerous first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum AlertKind {
    /// The guard holds an answer that would delete Applications.
    Held,
    /// A source fails, and callers get an error.
    Failing,
    /// A source fails, and callers get an older answer.
    Fallback,
    /// An element of an answer is unknown. The answer has what it had last, or nothing of it.
    Element,
    /// A destination gets no requests, since it failed.
    BreakerOpen,
    /// The shared store does not answer.
    StoreAway,
    /// Replicas restore records that the store lost, or it lost records for good.
    StoreLostRecords,
    /// The cache file cannot be used, read or written.
    Disk,
    /// The last configuration cannot be used.
    ReloadRefused,
    /// The certificate of the main listener expires soon, or has expired.
    Certificate,
    /// The keys of an issuer of tokens are old, or were never read.
    IssuerKeys,
    /// Deliveries of a hook were refused.
    HooksRefused,
    /// Nearly as many requests are under way as may be.
    NearLimit,
    /// The gateway is about to end.
    Draining,
}

/// How bad an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Severity {
    /// An operator should act now.
    Critical,
    /// An operator should check it.
    Warning,
}

/// The present numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Counts {
    /// Routes.
    pub(crate) routes: usize,
    /// Answers in memory.
    pub(crate) answers: u64,
    /// Parameter sets that are served.
    pub(crate) parameter_sets: usize,
    /// Held answers.
    pub(crate) held: usize,
    /// Questions whose source failed within the last hour, and whose callers get an error.
    pub(crate) failing: usize,
    /// The same, whose callers get an older answer.
    pub(crate) fallback: usize,
    /// Elements of answers whose source failed within the last hour.
    pub(crate) unknown_elements: usize,
    /// Requests under way.
    pub(crate) requests_in_flight: usize,
    /// How many requests may be under way.
    pub(crate) requests_in_flight_limit: usize,
    /// Runs of backends under way.
    pub(crate) runs_in_flight: usize,
}

/// The state of `app`. It reads the answers in memory.
pub(crate) fn status(app: &App) -> Status {
    let (setup, now) = (app.setup(), app.now());
    let failing = app.engine.failing(&setup.routes);
    let fallback = failing.iter().filter(|failing| failing.fallback.is_some()).count();
    let elements = app.engine.failing_elements(&setup.routes);
    let held = super::held::held(app).held;
    let counts = Counts {
        routes: setup.routes.iter().count(),
        answers: app.engine.answers().memory().len() as u64,
        parameter_sets: app.engine.served(&setup.routes).values().map(|served| served.sets).sum(),
        held: held.len(),
        failing: failing.len() - fallback,
        fallback,
        unknown_elements: elements.len(),
        requests_in_flight: app.in_flight.now(),
        requests_in_flight_limit: setup.server.max_in_flight,
        runs_in_flight: app.engine.runs(),
    };
    let (alerts, alerts_left_out) = alerts::all(app, &held, &failing, &elements);
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        now: date(now),
        started_at: date(app.started),
        uptime_seconds: now.since(app.started).unwrap_or_default().as_secs(),
        phase: app.lifecycle.phase().as_str().to_owned(),
        generation: setup.generation,
        configured_at: date(setup.since),
        is_held_or_failing: counts.held + failing.len() + elements.len() > 0,
        alerts,
        alerts_left_out,
        counts,
    }
}
