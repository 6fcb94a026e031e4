//! Finds the troubles of a running gateway.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Alert, AlertKind, Severity};
use crate::{
    app::App,
    overview::{
        date,
        held::HeldAnswer,
        sources::{self, BreakerState},
    },
};
use domain::{
    clock::Timestamp,
    generator::{Element, Part},
    lifecycle::Phase,
};
use engine::operators::conditions::{FailingQuestion, RECENT};
use tls::ServerTls;

/// How many alerts of one kind are listed.
const MAX_OF_KIND: usize = 100;
/// How long before its end a certificate is an alert, and when it is critical.
const EXPIRES_SOON: Duration = Duration::from_hours(7 * 24);
const EXPIRES_NOW: Duration = Duration::from_hours(24);
/// Keys of issuers are old if they were not read for this long, or for three of their intervals.
const KEYS_ARE_OLD: Duration = Duration::from_hours(1);
/// The share of the limit of requests under way that is an alert, in percent.
const NEAR_LIMIT_PERCENT: usize = 80;

impl Alert {
    fn new(kind: AlertKind, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            kind,
            severity,
            message: message.into(),
            since: None,
            route: None,
            id: None,
            subject: None,
            requesters: Vec::new(),
        }
    }

    fn since(self, at: Option<Timestamp>) -> Self {
        Self { since: at.map(date), ..self }
    }

    fn about(self, subject: &str) -> Self {
        Self { subject: Some(subject.to_owned()), ..self }
    }
}

/// All alerts, the most dangerous first, and how many were left out.
pub(super) fn all(
    app: &App,
    held: &[HeldAnswer],
    failing: &[FailingQuestion],
    elements: &[FailingQuestion],
) -> (Vec<Alert>, usize) {
    let mut alerts: Vec<Alert> = held.iter().map(of_held).collect();
    alerts.extend(failing.iter().map(|failing| of_failing(app, failing)));
    alerts.extend(elements.iter().map(of_element));
    alerts.extend(breakers(app));
    alerts.extend(store(app));
    alerts.extend(disk(app));
    alerts.extend(reload(app));
    alerts.extend(certificate(app, "server.tls", app.tls.as_ref()));
    alerts.extend(certificate(app, "server.adminTls", app.admin_tls.as_ref()));
    alerts.extend(issuers(app));
    alerts.extend(hooks(app));
    alerts.extend(limits(app));
    // What has lasted longest comes first.
    alerts.sort_by(|one, other| (one.kind, one.severity, &one.since).cmp(&(other.kind, other.severity, &other.since)));
    let (mut counts, before) = (BTreeMap::<AlertKind, usize>::new(), alerts.len());
    alerts.retain(|alert| {
        let count = counts.entry(alert.kind).or_default();
        *count += 1;
        *count <= MAX_OF_KIND
    });
    let left_out = before - alerts.len();
    (alerts, left_out)
}

fn of_held(held: &HeldAnswer) -> Alert {
    Alert {
        since: Some(held.since.clone()),
        route: Some(held.route.clone()),
        id: Some(held.id.clone()),
        requesters: held.requesters.clone(),
        ..Alert::new(AlertKind::Held, Severity::Critical, held.message.clone())
    }
}

fn of_failing(app: &App, failing: &FailingQuestion) -> Alert {
    let why = &failing.failure;
    let (kind, severity, message) = match failing.fallback {
        None => (AlertKind::Failing, Severity::Critical, format!("callers get an error: {why}")),
        Some(at) => {
            let message = format!("callers get the last good answer, of {}: {why}", at.to_date());
            (AlertKind::Fallback, Severity::Warning, message)
        }
    };
    let requesters = app.engine.requesters(&failing.question, &failing.key);
    Alert {
        route: Some(failing.question.route.to_string()),
        id: Some(failing.key.to_string()),
        requesters: requesters.iter().map(ToString::to_string).collect(),
        ..Alert::new(kind, severity, message).since(Some(failing.failed_at))
    }
}

fn of_element(failing: &FailingQuestion) -> Alert {
    let why = &failing.failure;
    let label = failing.question.part.as_ref().and_then(Part::element).map(Element::label).unwrap_or_default();
    let message = match failing.fallback {
        Some(at) => format!("element {label}: the answer has what it had last, of {}: {why}", at.to_date()),
        None => format!("element {label}: no answer of it can be served: {why}"),
    };
    Alert {
        route: Some(failing.question.route.to_string()),
        id: Some(failing.whole.to_string()),
        subject: Some(label),
        ..Alert::new(AlertKind::Element, Severity::Warning, message).since(Some(failing.failed_at))
    }
}

fn breakers(app: &App) -> Vec<Alert> {
    let sources = sources::sources(app).sources.into_iter();
    let open = sources.filter(|source| source.breaker != BreakerState::Closed);
    open.map(|source| {
        let why = source.reason.unwrap_or_default();
        let message = format!("{} gets no requests for a while, since it failed (last: {why})", source.origin);
        let since = source.failing_since;
        Alert { since, ..Alert::new(AlertKind::BreakerOpen, Severity::Warning, message).about(&source.origin) }
    })
    .collect()
}

fn store(app: &App) -> Vec<Alert> {
    let Some(shared) = app.engine.replica() else { return Vec::new() };
    let (state, mut alerts) = (shared.contact(), Vec::new());
    if let Some(why) = shared.why_out_of_contact() {
        let message = format!("the shared store cannot be used, so this replica answers no calls: {why}");
        alerts.push(Alert::new(AlertKind::StoreAway, Severity::Critical, message));
    }
    if state.is_recovering {
        let message = "the replicas restore what the shared store lost; meanwhile they answer no calls";
        alerts.push(Alert::new(AlertKind::StoreLostRecords, Severity::Critical, message));
    }
    if state.has_lost_records {
        let message = "the shared store lost records for good; answers to questions without a record are held";
        alerts.push(Alert::new(AlertKind::StoreLostRecords, Severity::Warning, message));
    }
    alerts
}

fn disk(app: &App) -> Vec<Alert> {
    let now = app.now();
    let mut alerts = Vec::new();
    if app.engine.answers().misses_disk() {
        let message = "the file of last good answers cannot be used; answers live in memory only, and the log says why";
        alerts.push(Alert::new(AlertKind::Disk, Severity::Critical, message));
    }
    let since = app.history.disk_errors_since(app.metrics.disk.errors.get(), now);
    let is_recent = |at: &Timestamp| now.since(*at).is_some_and(|passed| passed < RECENT);
    if let Some(at) = since.filter(is_recent) {
        let message =
            "the file of last good answers could not be read or written within the last hour; the log says why";
        alerts.push(Alert::new(AlertKind::Disk, Severity::Critical, message).since(Some(at)));
    }
    alerts
}

fn reload(app: &App) -> Option<Alert> {
    let last = app.reloads.last()?;
    let problems = last.result.as_ref().err()?;
    let first = problems.first().map(|problem| format!(": {problem}")).unwrap_or_default();
    let message = format!("the last configuration cannot be used, and the gateway could not start with it{first}");
    Some(Alert::new(AlertKind::ReloadRefused, Severity::Critical, message).since(Some(last.at)))
}

fn certificate(app: &App, key: &str, tls: Option<&Arc<ServerTls>>) -> Option<Alert> {
    let not_after = Timestamp(tls?.not_after().saturating_mul(1000));
    let now = app.now();
    let left = not_after.since(now).filter(|left| !left.is_zero());
    if left.is_some_and(|left| left >= EXPIRES_SOON) {
        return None;
    }
    let is_critical = left.is_none_or(|left| left < EXPIRES_NOW);
    let verb = if left.is_some() { "expires" } else { "expired" };
    let message = format!("the certificate of `{key}` {verb} at {}", not_after.to_date());
    let severity = if is_critical { Severity::Critical } else { Severity::Warning };
    Some(Alert::new(AlertKind::Certificate, severity, message))
}

fn issuers(app: &App) -> Vec<Alert> {
    let (setup, now) = (app.setup(), app.now());
    // The first read takes a moment.
    let is_young = now.since(app.started).is_some_and(|passed| passed < Duration::from_mins(1));
    let reads = setup.auth.key_reads().filter_map(|(issuer, read_at, every)| {
        let Some(at) = read_at else {
            let message = format!("the keys of {issuer} were never read, so its tokens are refused");
            let alert = Alert::new(AlertKind::IssuerKeys, Severity::Critical, message);
            return Some(alert.about(issuer)).filter(|_| !is_young);
        };
        let is_old = now.since(at).is_some_and(|age| age > KEYS_ARE_OLD.max(every * 3));
        let message = format!("the keys of {issuer} were last read at {}; they stay in use", at.to_date());
        let alert = Alert::new(AlertKind::IssuerKeys, Severity::Warning, message).about(issuer);
        is_old.then(|| alert.since(Some(at)))
    });
    reads.collect()
}

fn hooks(app: &App) -> Vec<Alert> {
    let now = app.now();
    let is_recent = |at: Timestamp| now.since(at).is_some_and(|passed| passed < RECENT);
    let mut alerts = Vec::new();
    for (hook, unproven) in app.push.deliveries.unproven() {
        if is_recent(unproven.at) {
            let message = format!("deliveries to the hook {hook} are refused; the last one: {}", unproven.why);
            let alert = Alert::new(AlertKind::HooksRefused, Severity::Warning, message).about(&hook);
            alerts.push(alert.since(Some(unproven.at)));
        }
    }
    let mut full = BTreeMap::new();
    for delivered in app.push.deliveries.list() {
        if delivered.outcome == "refused" && is_recent(delivered.at) {
            full.entry(delivered.hook).or_insert(delivered.at);
        }
    }
    for (hook, at) in full {
        let message = format!("deliveries to the hook {hook} were refused within the last hour: too many events wait");
        alerts.push(Alert::new(AlertKind::HooksRefused, Severity::Warning, message).about(&hook).since(Some(at)));
    }
    alerts
}

fn limits(app: &App) -> Vec<Alert> {
    let (now, max) = (app.in_flight.now(), app.setup().server.max_in_flight);
    let mut alerts = Vec::new();
    if now.saturating_mul(100) >= max.saturating_mul(NEAR_LIMIT_PERCENT) {
        let message = format!("{now} requests are under way, of at most {max} (`server.maxInFlight`)");
        alerts.push(Alert::new(AlertKind::NearLimit, Severity::Warning, message));
    }
    let phase = app.lifecycle.phase();
    if phase >= Phase::Draining {
        let message = format!("the gateway is about to end ({})", phase.as_str());
        alerts.push(Alert::new(AlertKind::Draining, Severity::Warning, message));
    }
    alerts
}
