//! The configuration in use: since when, the result of the last reload, and its outline.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serde_json::Value;

use super::text::{count, document, outside, prose, since};
use crate::overview::config::ConfigInUse;
use domain::clock::Timestamp;

/// The configuration in use.
pub(crate) fn configuration(config: &ConfigInUse, now: Timestamp) -> Markup {
    html! {
        div.heading { h1 { "Configuration" } }
        (reload(config, now))
        dl.glance {
            div { dt { "Configuration since the start" } dd { "number " (config.generation) } }
            div { dt { "In use since" } dd { (since(now, &config.since)) } }
            div { dt { "Routes" } dd { (config.routes.len()) } }
        }
        @if !config.at_the_next_start.is_empty() {
            section.card {
                h2 { "Changed, and waiting for the next start" }
                ul.parameters { @for path in &config.at_the_next_start { li { (outside(path)) } } }
            }
        }
        section.card {
            h2 { "Outline" }
            p.quiet { "The paths of all values. Values are not shown. To see what another configuration would change, run "
                code { "appset-gateway diff" } "." }
            (outline(config))
        }
    }
}

fn reload(config: &ConfigInUse, now: Timestamp) -> Markup {
    html! {
        @match &config.last_reload {
            None => p.lead { "It was not changed since the start." },
            Some(reload) => {
                section.card.concern[!reload.is_good] {
                    @if reload.is_good {
                        h2 { "The last reload went well, " (since(now, &reload.at)) }
                        @if let Some(changes) = &reload.changes { (document(&changes.to_string())) }
                    } @else {
                        h2 { "The last reload was refused, " (since(now, &reload.at)) }
                        p { "The configuration before stays in use. The gateway could not start with this one." }
                        ul { @for problem in reload.problems.as_deref().unwrap_or_default() { li.problem { (prose(problem)) } } }
                    }
                }
            }
        }
    }
}

/// The outline, with the paths of each route on their own.
fn outline(config: &ConfigInUse) -> Markup {
    let outline = serde_json::to_value(&config.outline).unwrap_or_default();
    let paths = |part: &Value| -> Vec<String> {
        part.as_object().into_iter().flat_map(|leaves| leaves.keys().cloned()).collect()
    };
    let mut parts = BTreeMap::<String, Vec<String>>::new();
    for path in paths(&outline["general"]) {
        let end = path.find(['.', '[']).unwrap_or(path.len());
        parts.entry(path[..end].to_owned()).or_default().push(path);
    }
    let routes = outline["routes"].as_object().into_iter().flatten();
    html! {
        @for (name, paths) in &parts { (part(name, paths)) }
        @for (name, leaves) in routes { (part(&format!("route {name}"), &paths(leaves))) }
    }
}

fn part(name: &str, paths: &[String]) -> Markup {
    html! {
        details {
            summary { (outside(name)) span.quiet { " · " (count(paths.len(), "value")) } }
            ul.parameters { @for path in paths { li { (outside(path)) } } }
        }
    }
}
