//! The result of an explanation.

use std::time::Duration;

use maud::{Markup, html};
use serde_json::Value;

use super::{
    super::{
        held::evidence,
        text::{count, document, duration, json, milliseconds, outside, prose, segment, since},
    },
    elements,
    question::state,
};
use crate::overview::{answers::RememberedAnswer, explain::Explanation, steps::StepView};
use domain::{clock::Timestamp, generator::OutcomeKind};

/// The whole explanation.
pub(crate) fn explained(found: &Explanation, now: Timestamp) -> Markup {
    html! {
        section.card aria-labelledby="verdict" {
            header {
                h2 #verdict {
                    @match found.outcome {
                        OutcomeKind::Present => "The source has an answer",
                        OutcomeKind::Absent => "The source says that there is nothing",
                        OutcomeKind::Unknown => "The source gave no answer",
                    }
                }
                @match found.outcome {
                    OutcomeKind::Present => span.state.good { "present" },
                    OutcomeKind::Absent => span.state { "absent" },
                    OutcomeKind::Unknown => span.state.warn { "unknown" },
                }
            }
            @if found.remembered.depends_on_unnamed_set() {
                p { "The answer may depend on the ApplicationSet, and none was named. Argo CD always names one." }
            }
            p.quiet { "Found now, by the backend " (outside(&found.backend)) ", in " (milliseconds(found.milliseconds)) "." }
            @if let Some(because) = &found.because {
                p.problem { "It would not be served: " (prose(&because.message)) " (" (because.status) " " (outside(&because.code)) ")" }
            }
            (evidence(&found.evidence, true))
            @if !found.steps.is_empty() {
                h3 { (count(found.steps.len(), "step")) }
                ol.steps { @for each in &found.steps { (step(each)) } }
            }
        }
        @if let Some(elements) = &found.elements { (elements::elements(elements, now)) }
        (answer(found))
        (remembered(&found.remembered, None, found.because.as_ref().map_or("", |because| &because.message), now))
        p.quiet {
            "Key " code { (outside(&found.key)) } @if found.lineage != found.key { ", lineage " code { (outside(&found.lineage)) } }
            @if !found.identity.is_empty() { "; sets are identified by " @for key in &found.identity { code { (outside(key)) } " " } }
        }
    }
}

fn step(step: &StepView) -> Markup {
    html! {
        li {
            div {
                strong { (outside(&step.name)) } " " span.state { (outside(&step.kind)) }
                span.quiet {
                    @if let Some(took) = step.milliseconds { " " (milliseconds(took)) } @else { " not done in time" }
                    @if let Some(cpu) = step.cpu_milliseconds { ", " (milliseconds(cpu)) " of CPU" }
                    @if let Some(peak) = step.peak_memory_bytes { ", " (peak / 1024 / 1024) " MiB at most" }
                }
            }
            @if let Some(error) = &step.error { p.problem { (prose(error)) } }
            @if let Some(input) = &step.input { details { summary { "Input" (items(input)) } (json(input)) } }
            @if let Some(output) = &step.output { details { summary { "Found" (items(output)) } (json(output)) } }
            @if let Some(stderr) = &step.stderr { details { summary { "Written to stderr" } (document(stderr)) } }
        }
    }
}

fn items(value: &Value) -> String {
    value.as_array().map(|items| format!(" {}", count(items.len(), "item"))).unwrap_or_default()
}

fn answer(found: &Explanation) -> Markup {
    let answer = &found.answer;
    html! {
        section.card {
            header {
                h2 { "What Argo CD gets" }
                @if answer.status == 200 { span.state.good[!answer.is_fallback].warn[answer.is_fallback] { "200" } } @else { span.state.warn { (answer.status) } }
            }
            p {
                @if let Some(now) = found.gets_now() { "Now " (prose(&now)) ", afterwards " (found.gets_afterwards()) "." }
                @else { "It gets " (found.gets_afterwards()) "." }
            }
            @if answer.error.is_some() { p.quiet { "The ApplicationSet is left as it is." } }
            @if let Some(body) = &answer.body { (json(body)) }
        }
    }
}

/// The stored answer to a question, as Argo CD gets it. A message that is a part of `said`, which is shown above, is not shown
/// once more.
pub(crate) fn remembered(answer: &RememberedAnswer, body: Option<&Value>, said: &str, now: Timestamp) -> Markup {
    html! {
        @if let Some(elements) = answer.elements.as_ref().filter(|elements| elements.list.is_some()) {
            (elements::elements(elements, now))
        }
        section.card {
            header { h2 { "What is remembered" } (state(answer)) }
            dl.facts {
                @if let Some(stored) = &answer.stored {
                    div { dt { "Last good" } dd { (since(now, &stored.stored_at)) } }
                    div { dt { "Parameter sets" } dd { (stored.parameter_sets) } }
                    @if let Some(elements) = &answer.elements { div { dt { "Elements" } dd { (elements.in_words()) } } }
                    div { dt { "The source took" } dd { (milliseconds(stored.backend_milliseconds)) } }
                } @else {
                    div { dt { "Last good" } dd { "nothing" } }
                }
                @if let Some(left) = answer.fresh_for_seconds { div { dt { "Fresh for" } dd { (duration(Duration::from_secs(left))) } } }
                @if !answer.requesters.is_empty() {
                    div { dt { "Requested by" } dd { @for (index, name) in answer.requesters.iter().enumerate() { @if index > 0 { ", " } (outside(name)) } } }
                }
            }
            @if let Some(failing) = &answer.failing {
                p.problem {
                    "The last run failed (" (outside(&failing.kind)) ")"
                    @if !said.contains(&failing.message) { ": " (prose(&failing.message)) }
                    "; " (failing.again()) "."
                }
                @if said.is_empty() { (evidence(&failing.evidence, false)) }
            }
            @if let Some(held) = &answer.held {
                p { "An answer is held: " a href={ "/held/" (segment(&held.id)) } { (prose(&held.reason)) } }
            }
            @if let Some(stored) = &answer.stored { (evidence(&stored.evidence, false)) }
            @if let Some(body) = body { h3 { "As Argo CD gets it" } (json(body)) }
            p.quiet { "Key " code { (outside(&answer.key)) } }
        }
    }
}
