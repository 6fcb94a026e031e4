//! The sources: whether requests are sent, how the last one ended, and how many more the accounts may send.

use std::time::Duration;

use maud::{Markup, html};

use super::text::{count, duration, milliseconds, outside, prose, since};
use crate::overview::sources::{AccountBudget, BreakerState, Source, Sources};
use domain::{clock::Timestamp, units::plural};

/// All destinations.
pub(crate) fn sources(sources: &Sources, now: Timestamp) -> Markup {
    html! {
        div.heading {
            h1 { "Sources" }
            @if sources.total > 0 { p.quiet { (count(sources.total, "destination")) " since the start" } }
        }
        @if sources.sources.is_empty() {
            div.calm {
                p.lead { "No request was sent yet." }
                p { "Registries, APIs and CI systems appear here after the first request. Scripts and fixed answers ask nobody." }
            }
        } @else {
            div.card.wide {
                table {
                    thead { tr {
                        th scope="col" { "Destination" } th scope="col" { "State" } th scope="col" { "Last request" }
                        th scope="col" { "Requests" } th scope="col" { "Under way" } th scope="col" { "Accounts" }
                    } }
                    tbody { @for source in &sources.sources { (row(source, now)) } }
                }
            }
            @if sources.sources.len() < sources.total { p.quiet { "The first " (sources.sources.len()) " are shown." } }
        }
    }
}

fn row(source: &Source, now: Timestamp) -> Markup {
    html! {
        tr {
            th scope="row" {
                (outside(&source.origin))
                @if source.for_shadows { div.quiet { "for candidates only" } }
            }
            td data-label="State" { div { (state(source, now)) } }
            td data-label="Last request" { div { (last(source, now)) } }
            td data-label="Requests" {
                div {
                    (source.requests)
                    @if let Some(mean) = source.mean_milliseconds { div.quiet { (milliseconds(mean)) " on average" } }
                }
            }
            td data-label="Under way" {
                div {
                    (source.in_flight) " of " (source.concurrency)
                    @if let Some(rate) = source.rate_per_second { div.quiet { "at most " (rate) " per second" } }
                }
            }
            td data-label="Accounts" {
                div {
                    @if source.accounts.is_empty() { span.quiet { "no known limit" } }
                    @for each in &source.accounts { (account(each)) }
                }
            }
        }
    }
}

fn state(source: &Source, now: Timestamp) -> Markup {
    html! {
        @match source.breaker {
            BreakerState::Closed => span.state.good { "open for requests" },
            BreakerState::Open => span.state.warn { "backs off" },
            BreakerState::Probing => span.state.warn { "tried again" },
        }
        @if let Some(backoff) = source.backoff_seconds { div.quiet { "for " (duration(Duration::from_secs(backoff))) } }
        @if source.failures > 0 {
            div.quiet {
                "failed " (source.failures) " time" (plural(source.failures)) @if source.failures > 1 { " in a row" }
                @if let Some(at) = &source.failing_since { ", the first " (since(now, at)) }
                @if let Some(why) = &source.reason { ": " (prose(why)) }
            }
        }
    }
}

fn last(source: &Source, now: Timestamp) -> Markup {
    html! {
        @if let Some(last) = &source.last {
            @match last.status { Some(status) => { (status) ", " }, None => {} }
            (outside(&last.outcome)) ", " (since(now, &last.at))
            div.quiet { "in " (milliseconds(last.milliseconds)) @if let Some(message) = &last.message { ": " (prose(message)) } }
        } @else {
            span.quiet { "none has ended" }
        }
    }
}

fn account(account: &AccountBudget) -> Markup {
    html! {
        div {
            (outside(&account.account))
            @if let Some(remaining) = account.remaining {
                ": " strong { (remaining) }
                @if let Some(limit) = account.limit { " of " (limit) }
                " left"
            }
            @if let Some(left) = account.resets_in_seconds { span.quiet { ", again in " (duration(Duration::from_secs(left))) } }
            @if let Some(pause) = account.pauses_for_seconds {
                div.quiet {
                    "pauses for " (duration(Duration::from_secs(pause)))
                    @if let Some(why) = &account.reason { ": " (prose(why)) }
                }
            }
        }
    }
}
