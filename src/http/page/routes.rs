//! The routes: their state, their answers now and over the last day, how they were called, and by which ApplicationSets.

use std::time::Duration;

use maud::{Markup, html};

use super::text::{count, duration, outside, prose, segment, since};
use crate::overview::routes::{RouteState, RouteView, Routes, SampleView};
use domain::{clock::Timestamp, units::plural};

/// How many ApplicationSets are named with a route.
const MAX_NAMED: usize = 4;
/// The width and the height of a picture, in its own units.
const WIDTH: f64 = 100.0;
const HEIGHT: f64 = 24.0;

/// All routes.
pub(crate) fn routes(routes: &Routes, now: Timestamp) -> Markup {
    html! {
        div.heading { h1 { "Routes" } p.quiet { (count(routes.routes.len(), "route")) ", in the order in which they are tried" } }
        div.card.wide {
            table {
                thead { tr {
                    th scope="col" { "Route" } th scope="col" { "State" } th scope="col" { "Parameter sets, last day" }
                    th scope="col" { "Last success" } th scope="col" { "Calls since the start" } th scope="col" { "Requested by" }
                } }
                tbody { @for route in &routes.routes { (row(route, now)) } }
            }
        }
    }
}

fn row(route: &RouteView, now: Timestamp) -> Markup {
    html! {
        tr {
            th scope="row" {
                a href={ "/explain?route=" (segment(&route.name)) } { (outside(&route.name)) }
                div.quiet { (route.backend) ", fresh for " (duration(Duration::from_secs(route.ttl_seconds))) }
                @if route.has_shadow { div.quiet { "compared with a candidate" } }
            }
            td data-label="State" { div { (state(route)) (failure(route, now)) } }
            td data-label="Parameter sets" {
                div {
                    strong { (route.parameter_sets) } (picture(&route.history))
                    @if let Some(elements) = &route.elements { div.quiet { "elements: " (elements.in_words()) } }
                }
            }
            td data-label="Last success" {
                div {
                    @match &route.last_success_at { Some(at) => (since(now, at)), None => span.quiet { "never" } }
                    @if let Some(age) = route.oldest_age_seconds {
                        div.quiet { "the oldest answer " (duration(Duration::from_secs(age))) " old" }
                    }
                }
            }
            td data-label="Calls" { div { (lookups(route)) } }
            td data-label="Requested by" { div { (requesters(route)) } }
        }
    }
}

fn state(route: &RouteView) -> Markup {
    html! {
        @match route.state {
            RouteState::Held => a.state.danger href="/held" { (count(route.held, "answer")) " held" },
            RouteState::Failing => span.state.warn { (count(route.failing, "question")) " failing" },
            RouteState::Stale if route.fallback == 0 => span.state.warn { (count(route.unknown_elements, "element")) " unknown" },
            RouteState::Stale => span.state.warn { "older answers are served" },
            RouteState::Good => span.state.good { "good" },
            RouteState::NeverQueried => span.state { "never called" },
        }
    }
}

fn failure(route: &RouteView, now: Timestamp) -> Markup {
    html! {
        @if let Some(failure) = &route.last_failure {
            details {
                summary { "Last failure" }
                p.quiet { (outside(&failure.kind)) ", " (since(now, &failure.at)) ": " (prose(&failure.message)) }
            }
        }
    }
}

fn lookups(route: &RouteView) -> Markup {
    let lookups = route.lookups;
    let failures: u64 = route.failures.values().sum();
    let (hits, misses) = (lookups.hits, lookups.misses + lookups.joined);
    html! {
        (hits) " hit" (plural(hits)) ", " (misses) @if misses == 1 { " miss" } @else { " misses" }
        @if lookups.stale + lookups.stale_if_error > 0 { ", " (lookups.stale + lookups.stale_if_error) " older" }
        @if failures > 0 { ", " (failures) " failed" }
    }
}

fn requesters(route: &RouteView) -> Markup {
    html! {
        @if route.application_sets.is_empty() { span.quiet { "nobody known" } }
        @for (index, name) in route.application_sets.iter().take(MAX_NAMED).enumerate() {
            @if index > 0 { ", " }
            (outside(name))
        }
        @if route.application_sets_total > MAX_NAMED { " and " (route.application_sets_total - MAX_NAMED) " more" }
    }
}

/// How many parameter sets there were over the last day. The samples have equal intervals.
fn picture(history: &[SampleView]) -> Markup {
    let sets = || history.iter().map(|sample| sample.parameter_sets);
    let (Some(least), Some(most)) = (sets().min(), sets().max()) else { return html! {} };
    if history.len() < 2 || most == 0 {
        return html! {};
    }
    let as_float = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
    let step = WIDTH / as_float(history.len() - 1);
    let height = |sets: usize| HEIGHT - 1.0 - as_float(sets) / as_float(most) * (HEIGHT - 2.0);
    let points: Vec<String> =
        sets().enumerate().map(|(index, sets)| format!("{:.1},{:.1}", as_float(index) * step, height(sets))).collect();
    let line = points.join(" ");
    html! {
        svg.picture viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
            aria-label={ "between " (least) " and " (most) " parameter sets over the last day" } {
            polygon.area points={ "0," (HEIGHT) " " (line) " " (WIDTH) "," (HEIGHT) } {}
            polyline.line points=(line) {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_stays_in_its_frame() {
        let samples = |sets: &[usize]| -> Vec<SampleView> {
            sets.iter().map(|sets| SampleView { at: String::new(), parameter_sets: *sets }).collect()
        };
        assert_eq!(picture(&samples(&[3])).into_string(), "");
        let drawn = picture(&samples(&[0, 4, 2])).into_string();
        assert!(drawn.contains("<polyline class=\"line\" points=\"0.0,23.0 50.0,1.0 100.0,12.0\">"), "{drawn}");
        assert!(drawn.contains("between 0 and 4 parameter sets"), "{drawn}");
        assert_eq!(picture(&samples(&[0, 0])).into_string(), "");
    }
}
