//! The first view: the present troubles, in plain words, and a few numbers.

use maud::{Markup, html};

use super::{
    held::acceptance,
    text::{count, duration, outside, prose, segment, since, timestamp},
};
use crate::overview::{
    held::{HeldAnswer, HeldAnswers},
    status::{Alert, AlertKind, Counts, Severity, Status},
};
use domain::clock::Timestamp;

/// How many alerts of one kind are shown. More are counted.
const MAX_OF_KIND: usize = 5;
/// How many of the sets that a held answer loses are named.
const MAX_NAMED: usize = 6;

/// The first view.
pub(crate) fn overview(status: &Status, held: &HeldAnswers, now: Timestamp) -> Markup {
    let total = status.alerts.len() + status.alerts_left_out;
    html! {
        @if total == 0 {
            section.calm {
                h1 { span.dot.good aria-hidden="true" {} "All is well" }
                p.lead { "Nothing is held, no source fails, and the newest configuration is in use." }
            }
        } @else {
            div.heading {
                h1 { (count(total, "thing")) @if total == 1 { " needs" } @else { " need" } " attention" }
            }
            ul.concerns {
                @for alerts in status.alerts.chunk_by(|one, other| one.kind == other.kind) { (of_kind(alerts, held, now)) }
            }
            @if status.alerts_left_out > 0 { p.quiet { "And " (status.alerts_left_out) " more of these kinds." } }
        }
        (glance(&status.counts, status.uptime_seconds))
    }
}

/// The alerts of one kind.
fn of_kind(alerts: &[Alert], held: &HeldAnswers, now: Timestamp) -> Markup {
    html! {
        @for alert in alerts.iter().take(MAX_OF_KIND) { (of_alert(alert, held, now)) }
        @if alerts.len() > MAX_OF_KIND {
            li.quiet { a href=(place(&alerts[0]).1) { "And " (alerts.len() - MAX_OF_KIND) " more like these" } }
        }
    }
}

fn of_alert(alert: &Alert, held: &HeldAnswers, now: Timestamp) -> Markup {
    let (link, _) = place(alert);
    let is_deleting = alert.kind == AlertKind::Held;
    let held = held.held.iter().filter(|_| is_deleting).find(|held| Some(&held.id) == alert.id.as_ref());
    html! {
        li.card.concern.serious[is_deleting] {
            h2 { a href=(link) { (title(alert, held)) } }
            @match held {
                Some(held) => (loss(held, now)),
                None => p { (prose(&alert.message)) },
            }
            p.quiet {
                @if alert.severity == Severity::Critical { span.state.danger { "urgent" } " " }
                @if let Some(at) = &alert.since { (since(now, at)) }
                @if !alert.requesters.is_empty() {
                    @if alert.since.is_some() { ", " }
                    "requested by " @for (index, name) in alert.requesters.iter().enumerate() { @if index > 0 { ", " } (outside(name)) }
                }
            }
        }
    }
}

/// The deletions by a held answer, in short.
fn loss(held: &HeldAnswer, now: Timestamp) -> Markup {
    html! {
        p { (prose(&held.reason)) }
        @if let Some(at) = held.accepted_at.as_deref().and_then(timestamp) { (acceptance(at, now)) }
        @if !held.gone.is_empty() {
            p {
                "Argo CD would delete what was made of "
                @for (index, name) in held.gone.iter().take(MAX_NAMED).enumerate() {
                    @if index > 0 { ", " }
                    (outside(name))
                }
                @if held.gone.len() > MAX_NAMED { " and " (held.gone.len() - MAX_NAMED) " more" }
            }
        }
    }
}

/// The problem, in a few words.
fn title(alert: &Alert, held: Option<&HeldAnswer>) -> Markup {
    let is_loss = held.is_some_and(|held| !held.gone.is_empty());
    let route = alert.route.as_deref().unwrap_or_default();
    let subject = alert.subject.as_deref().unwrap_or_default();
    html! {
        @match alert.kind {
            AlertKind::Held if !is_loss => { "An answer of " (outside(route)) " is held" },
            AlertKind::Held => { (outside(route)) " would lose Applications, so its answer is held" },
            AlertKind::Failing => { (outside(route)) " has no answer" },
            AlertKind::Fallback => { (outside(route)) " serves an older answer" },
            AlertKind::Element => { "Element " (outside(subject)) " of " (outside(route)) " is unknown" },
            AlertKind::BreakerOpen => { (outside(subject)) " is not called for a while" },
            AlertKind::StoreAway => "The shared store does not answer",
            AlertKind::StoreLostRecords => "The shared store has lost records",
            AlertKind::Disk => "The file of last good answers is in trouble",
            AlertKind::ReloadRefused => "The new configuration cannot be used",
            AlertKind::Certificate => "A certificate runs out",
            AlertKind::IssuerKeys => { "The keys of " (outside(subject)) " are old" },
            AlertKind::HooksRefused => { "Deliveries to the hook " (outside(subject)) " are refused" },
            AlertKind::NearLimit => "Nearly too many requests are under way",
            AlertKind::Draining => "This gateway is about to end",
        }
    }
}

/// Where the alert, and where all of its kind, can be seen.
fn place(alert: &Alert) -> (String, &'static str) {
    let id = alert.id.as_deref().map(segment).unwrap_or_default();
    match alert.kind {
        AlertKind::Held => (format!("/held/{id}"), "/held"),
        AlertKind::Failing | AlertKind::Fallback | AlertKind::Element => (format!("/explain?key={id}"), "/routes"),
        AlertKind::BreakerOpen => ("/sources".to_owned(), "/sources"),
        AlertKind::HooksRefused => ("/events".to_owned(), "/events"),
        _ => ("/configuration".to_owned(), "/configuration"),
    }
}

fn glance(counts: &Counts, uptime: u64) -> Markup {
    let facts = [
        ("Parameter sets served", counts.parameter_sets.to_string()),
        ("Routes", counts.routes.to_string()),
        ("Answers remembered", counts.answers.to_string()),
        ("Held", counts.held.to_string()),
        ("Requests under way", counts.requests_in_flight.to_string()),
        ("Running for", duration(std::time::Duration::from_secs(uptime))),
    ];
    html! {
        section aria-label="At a glance" {
            dl.glance { @for (name, value) in facts { div { dt { (name) } dd { (value) } } } }
        }
    }
}
