//! The held answers: the sets that each would delete, why it is held, and the form to decide.

use std::sync::Arc;

use maud::{Markup, html};

use super::{
    Visitor,
    document::form_token,
    pages::{self, Page},
    text::{ago, count, duration, moment, outside, parameters, prose, segment},
};
use domain::{
    clock::Timestamp,
    generator::{Evidence, Verdict},
};
use engine::guard::{Decision, Held};

/// How many lost sets the list names; the view of one answer names all that are known.
const MAX_NAMED: usize = 8;
/// The longest reason, in characters. The server checks it too.
const MAX_REASON: usize = 500;

/// A held answer as it is shown.
#[derive(Debug)]
pub(crate) struct Shown {
    /// The held answer.
    pub(crate) held: Held,
    /// Its requesters.
    pub(crate) requesters: Vec<Arc<str>>,
    /// How many parameter sets the last good answer has, if it is still known.
    pub(crate) last_good: Option<usize>,
    /// Whether Argo CD gets a last good answer meanwhile.
    pub(crate) has_fallback: bool,
    /// The parameter sets of the last good answer that stay, for the view of one answer.
    pub(crate) stays: Vec<String>,
}

/// The list of held answers.
pub(crate) fn list(shown: &[Shown], page: Page, visitor: &Visitor, now: Timestamp) -> Markup {
    html! {
        div.heading {
            h1 { "Held answers" }
            @if page.total > 0 { p.quiet { (count(page.total, "answer")) ", the oldest first" } }
        }
        @if page.total == 0 {
            div.calm {
                p.lead { "Nothing is held." }
                p { "The guard holds an answer that would delete too much. It then serves the last good answer until the source has said it often enough, or until somebody decides here." }
            }
        } @else {
            p.lead {
                @if shown.iter().all(|each| each.has_fallback) { "Argo CD still gets the last good answers. " }
                "Nothing of this is deleted before it is released here, or confirmed by the source."
            }
            @for each in shown { (card(each, visitor, now, false)) }
            (pages::links("/held", &[], page))
        }
    }
}

/// One held answer.
pub(crate) fn one(shown: &Shown, visitor: &Visitor, now: Timestamp) -> Markup {
    html! {
        p.path { a href="/held" { "Held answers" } }
        h1 { "A held answer" }
        (card(shown, visitor, now, true))
    }
}

fn card(shown: &Shown, visitor: &Visitor, now: Timestamp, is_whole: bool) -> Markup {
    let Shown { held, requesters, .. } = shown;
    let id = held.lineage.to_string();
    html! {
        article.card.held aria-labelledby={ "h-" (id) } {
            header {
                h2 id={ "h-" (id) } { a href={ "/held/" (segment(&id)) } { (outside(&held.question.route)) } }
                @match held.decision {
                    Some(Decision::Released) => span.state.good { "released" },
                    Some(Decision::Rejected) => span.state { "rejected" },
                    None => span.state.danger { "held" },
                }
            }
            (parameters(&held.question.parameters))
            p.reason { (prose(&held.breach.reason)) }
            @if let Some(at) = held.accepted_at(now) { (acceptance(at, now)) }
            @if !shown.has_fallback {
                p { "There is no last good answer that may be served, so Argo CD gets an error meanwhile. It changes nothing." }
            }
            (difference(shown, is_whole))
            dl.facts {
                div { dt { "Since" } dd { (ago(now, held.since)) } }
                div { dt { "Confirmed" } dd { (confirmed(held)) } }
                div {
                    dt { "Requested by" }
                    dd { @if requesters.is_empty() { "nobody known" } @else { (names(requesters)) } }
                }
                div { dt { "Last seen" } dd { (ago(now, held.seen_at)) } }
            }
            (evidence(&held.evidence, is_whole))
            @if is_whole {
                p.quiet { "Id " code { (id) } ", fingerprint " code { (held.fingerprint()) } }
            }
            (decide(shown, &id, visitor))
        }
    }
}

/// The ApplicationSets, in one line.
fn names(all: &[Arc<str>]) -> Markup {
    html! { @for (index, name) in all.iter().enumerate() { @if index > 0 { ", " } (outside(name)) } }
}

/// The change: the sets that would be gone, by name, and how many there would be.
fn difference(shown: &Shown, is_whole: bool) -> Markup {
    let Shown { held, last_good, stays, .. } = shown;
    let gone = &held.breach.gone;
    let named = if is_whole { gone.len() } else { gone.len().min(MAX_NAMED) };
    html! {
        section.difference aria-label="What would change" {
            p.sum {
                @if let Some(before) = last_good { span.before { (before) } span.arrow aria-hidden="true" { "→" } span.hidden { " becomes " } }
                span.after { (count(held.sets, "parameter set")) }
            }
            @if gone.is_empty() && last_good.is_none() {
                p.quiet { "Nothing is known that would be gone." }
            } @else if gone.is_empty() {
                p.quiet { "Which ones would be gone is not known." }
            } @else {
                p.quiet { "Argo CD would delete what was made of:" }
                ul.diff {
                    @for name in &gone[..named] { li.gone { span.sign aria-hidden="true" { "−" } (outside(name)) } }
                    @if named < gone.len() { li.more { "and " (gone.len() - named) " more" } }
                    @for name in stays { li.stays { span.sign aria-hidden="true" { "\u{a0}" } (outside(name)) } }
                }
            }
            @if is_whole && !held.breach.identity.is_empty() {
                p.quiet { "Sets are identified by " @for key in &held.breach.identity { code { (outside(key)) } " " } }
            }
        }
    }
}

/// When an answer is accepted by itself.
pub(super) fn acceptance(at: Timestamp, now: Timestamp) -> Markup {
    html! { p.acceptance { "Accepted at " (moment(now, at)) " unless you reject it or the source changes" } }
}

fn confirmed(held: &Held) -> Markup {
    html! {
        @match (held.decision, held.breach.can_be_confirmed) {
            (Some(Decision::Rejected), _) => "never, because it was rejected",
            (_, false) => "not by the source, however often it says this",
            (_, true) => {
                (held.agreed) " of " (held.wanted) " further runs, " (duration(held.interval)) " apart"
            }
        }
    }
}

/// The findings of the run.
pub(super) fn evidence(all: &[Evidence], is_open: bool) -> Markup {
    html! {
        @if !all.is_empty() {
            details.evidence open[is_open] {
                summary { (count(all.len(), "piece")) " of evidence" }
                ul {
                    @for each in all {
                        li {
                            @match each.verdict {
                                Verdict::Present => span.state.good { "present" },
                                Verdict::Absent => span.state { "absent" },
                                Verdict::Unknown => span.state.warn { "unknown" },
                                Verdict::Refused => span.state.warn { "refused" },
                            }
                            " "
                            @if let Some(item) = &each.item { strong { (outside(item)) } " " }
                            span.query { (prose(&each.query)) }
                            @if !each.answer.is_empty() { ": " span.answered { (prose(&each.answer)) } }
                        }
                    }
                }
            }
        }
    }
}

/// The form. Rejecting comes first: a press of Enter must not delete anything.
fn decide(shown: &Shown, id: &str, visitor: &Visitor) -> Markup {
    let Shown { held, has_fallback, .. } = shown;
    html! {
        @if visitor.may_decide {
            form.decide method="post" action={ "/held/" (segment(id)) "/reject" } {
                (form_token(visitor))
                input type="hidden" name="fingerprint" value=(held.fingerprint());
                label for={ "r-" (id) } { "Reason, for the log" }
                input id={ "r-" (id) } name="reason" type="text" required maxlength=(MAX_REASON) autocomplete="off";
                div.buttons {
                    button type="submit" { "Reject" span.what { @if *has_fallback { "keep the last good answer" } @else { "never accept this answer" } } }
                    button.danger type="submit" formaction={ "/held/" (segment(id)) "/release" } {
                        "Release"
                        span.what {
                            @match held.breach.gone.len() {
                                0 => "accept this answer",
                                gone => { "accept the loss of " (gone) }
                            }
                        }
                    }
                }
            }
        } @else {
            p.quiet { "To release or reject this, sign in with a token that has " code { "role: admin" } "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evidence_is_only_text() {
        let hostile = || "<script>alert(1)</script>\"'><img src=x>\u{202e}".to_owned();
        let piece = Evidence { item: Some(hostile()), verdict: Verdict::Absent, query: hostile(), answer: hostile() };
        let drawn = evidence(&[piece], true).into_string();
        assert_eq!(drawn.matches("&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&gt;&lt;img").count(), 3, "{drawn}");
        assert!(!drawn.contains("<script") && !drawn.contains("<img") && !drawn.contains('\u{202e}'), "{drawn}");
    }
}
