//! The last deliveries of hooks: their subjects, and their effects.

use maud::{Markup, html};
use serde_json::Value;

use super::text::{count, outside, parameters, prose, since, value_of};
use crate::overview::events::{Event, EventLog, UnprovenEvents};
use domain::clock::Timestamp;

/// The last deliveries. `has_hooks`: whether any hook is configured.
pub(crate) fn events(events: &EventLog, has_hooks: bool, now: Timestamp) -> Markup {
    html! {
        div.heading { h1 { "Events" } @if !events.events.is_empty() { p.quiet { "the last " (events.events.len()) " deliveries" } } }
        @for unproven in &events.unproven { (refused(unproven, now)) }
        @if events.events.is_empty() {
            div.calm {
                @if has_hooks {
                    p.lead { "No delivery came since the start." }
                    p { "Each delivery of a hook appears here, with the questions that were rechecked because of it." }
                } @else {
                    p.lead { "No hook is configured." }
                    p { "With " code { "server.hooks" } " and " code { "hooks" } ", registries and CI systems say when something was built, and nobody waits for the next poll." }
                }
            }
        } @else {
            div.card.wide {
                table {
                    thead { tr {
                        th scope="col" { "When" } th scope="col" { "Hook" } th scope="col" { "About" }
                        th scope="col" { "Rechecked" } th scope="col" { "Notified" }
                    } }
                    tbody { @for event in &events.events { (row(event, now)) } }
                }
            }
        }
    }
}

fn refused(unproven: &UnprovenEvents, now: Timestamp) -> Markup {
    html! {
        p.problem {
            "The hook " strong { (outside(&unproven.hook)) } " refused " (unproven.total) @if unproven.total == 1 { " delivery" } @else { " deliveries" }
            " without a proof. The last one came " (since(now, &unproven.last_at)) ": " (prose(&unproven.message))
        }
    }
}

fn row(event: &Event, now: Timestamp) -> Markup {
    html! {
        tr {
            td data-label="When" { div { (since(now, &event.at)) div.quiet { "number " (event.number) } } }
            td data-label="Hook" {
                div {
                    (outside(&event.hook)) " "
                    @match &*event.outcome {
                        "taken" => span.state.good { "taken" },
                        "malformed" | "refused" => span.state.warn { (outside(&event.outcome)) },
                        _ => span.state { (outside(&event.outcome)) },
                    }
                    @if let Some(message) = &event.message { div.quiet { (prose(message)) } }
                }
            }
            td data-label="About" { div { (subjects(event)) } }
            td data-label="Rechecked" { div { (rechecks(event)) } }
            td data-label="Notified" {
                div {
                    @if event.refreshed.is_empty() { span.quiet { "nobody" } }
                    @for set in &event.refreshed { div { (outside(&set.application_set)) span.quiet { " after " (format!("{:.1} s", set.after_seconds)) } } }
                    @if event.refreshed_total > event.refreshed.len() { div.quiet { "and " (event.refreshed_total - event.refreshed.len()) " more" } }
                }
            }
        }
    }
}

fn subjects(event: &Event) -> Markup {
    html! {
        @for subject in &event.subjects {
            div {
                @match subject {
                    Value::Object(fields) => (parameters(fields)),
                    other => (value_of(other)),
                }
            }
        }
        @if event.subjects_total > event.subjects.len() { div.quiet { "and " (event.subjects_total - event.subjects.len()) " more" } }
        @if event.subjects_total == 0 { span.quiet { "nothing" } }
    }
}

fn rechecks(event: &Event) -> Markup {
    html! {
        @if event.questions_total == 0 {
            span.quiet { "no known question" }
        } @else {
            (count(event.questions_total, "question"))
            @if !event.rechecks.is_empty() {
                ": "
                @for (index, (result, times)) in event.rechecks.iter().enumerate() { @if index > 0 { ", " } (times) " " (outside(result)) }
            }
            details {
                summary { "Which" }
                @for question in &event.questions {
                    div { (outside(&question.route)) ", " (outside(&question.result)) (parameters(&question.input)) }
                }
            }
        }
    }
}
