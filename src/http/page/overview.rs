//! The first view: what is wrong now, in plain words.

use maud::{Markup, html};

use super::text::{count, outside};

/// Something that somebody should look at.
#[derive(Debug)]
pub(crate) struct Concern {
    /// Whether it takes something away, or already has.
    pub(crate) is_serious: bool,
    /// What is wrong.
    pub(crate) says: String,
    /// What can be done, or what it means.
    pub(crate) advice: String,
    /// Where to look.
    pub(crate) path: String,
}

/// The first view.
pub(crate) fn overview(concerns: &[Concern], facts: &[(&str, String)]) -> Markup {
    html! {
        @if concerns.is_empty() {
            section.calm {
                h1 { span.dot.good aria-hidden="true" {} "All is well" }
                p.lead { "Nothing is held, nothing fails, and the configuration in use is the newest." }
            }
        } @else {
            div.heading {
                h1 { (count(concerns.len(), "thing")) @if concerns.len() == 1 { " needs" } @else { " need" } " a look" }
            }
            ul.concerns {
                @for concern in concerns {
                    li.card.concern.serious[concern.is_serious] {
                        h2 { a href=(concern.path) { (outside(&concern.says)) } }
                        p { (outside(&concern.advice)) }
                    }
                }
            }
        }
        section aria-label="At a glance" {
            dl.glance { @for (name, value) in facts { div { dt { (name) } dd { (outside(value)) } } } }
        }
    }
}
