//! The elements of an answer.

use maud::{Markup, html};

use super::super::{
    held::evidence,
    text::{count, outside, prose, since},
};
use crate::overview::elements::{AnswerElements, ElementOf};
use domain::clock::Timestamp;
use engine::cache::ElementState;

/// All that are listed, the unknown ones first.
pub(super) fn elements(elements: &AnswerElements, now: Timestamp) -> Markup {
    let list = elements.list.as_deref().unwrap_or_default();
    html! {
        section.card.wide aria-labelledby="elements" {
            header { h2 #elements { "Elements" } span.quiet { (elements.in_words()) } }
            @if !list.is_empty() {
                table {
                    thead { tr {
                        th scope="col" { "Key" } th scope="col" { "State" } th scope="col" { "Parameter sets" }
                        th scope="col" { "Confirmed" } th scope="col" { "Why" }
                    } }
                    tbody { @for element in list { (row(element, now)) } }
                }
            }
            @if let Some(more) = elements.left_out.filter(|more| *more > 0) {
                p.quiet { (count(more, "element")) " more; " code { "appset-gateway answers show --elements" } " has them" }
            }
        }
    }
}

fn row(element: &ElementOf, now: Timestamp) -> Markup {
    html! {
        tr {
            th scope="row" { (outside(&element.key)) }
            td data-label="State" {
                div {
                    @match element.state {
                        ElementState::Present => span.state.good { "present" },
                        ElementState::Absent => span.state { "absent" },
                        ElementState::LastKnown => span.state.warn { "as last known" },
                        ElementState::Unknown => span.state.warn { "unknown" },
                    }
                }
            }
            td data-label="Parameter sets" { (element.parameter_sets) }
            td data-label="Confirmed" {
                div { @match &element.confirmed_at { Some(at) => (since(now, at)), None => span.quiet { "never" } } }
            }
            td data-label="Why" {
                div {
                    @if let Some(failing) = &element.failing {
                        @if let Some(at) = &element.unknown_since { "First failed " (since(now, at)) ", " }
                        (outside(&failing.kind)) ": " (prose(&failing.message)) "; " (failing.again())
                        (evidence(&failing.evidence, false))
                    }
                    (evidence(&element.evidence, false))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unknown_element_has_its_reason_and_a_key_is_only_text() {
        let failing = json!({"kind": "unavailable", "message": "it answered 500", "evidence": [], "retryInSeconds": 4});
        let unknown = json!({"key": "<script>", "state": "lastKnown", "parameterSets": 1, "confirmedAt": "2026-01-01T00:00:00Z",
            "evidence": [], "unknownSince": "2026-01-01T00:05:00Z", "failing": failing, "id": "0"});
        let present = json!({"key": "7", "state": "present", "parameterSets": 2, "evidence": [], "id": "1"});
        let all =
            json!({"present": 1, "absent": 0, "lastKnown": 1, "unknown": 0, "list": [unknown, present], "leftOut": 3});
        let all: AnswerElements = serde_json::from_value(all).unwrap();
        let now = domain::clock::Timestamp(1_767_226_200_000);
        let drawn = elements(&all, now).into_string();
        for text in [
            "1 present, 1 as last known",
            "as last known</span>",
            "First failed ",
            "5 min ago",
            "it answered 500",
            "in 4 s",
            "3 elements more",
        ] {
            assert!(drawn.contains(text), "{text} is not in {drawn}");
        }
        assert!(drawn.contains("&lt;script&gt;") && !drawn.contains("<script"), "{drawn}");
    }
}
