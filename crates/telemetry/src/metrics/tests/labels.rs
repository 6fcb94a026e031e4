//! A metric with labels has a series for each value from the start, so that a rate begins at zero, and `docs/metrics.md` names the labels.

use std::path::Path;

use prometheus::proto::MetricType;

use crate::metrics::{
    LimitUse, Metrics, SharedLimit,
    registry::{MadeMetric, MetricRegistry},
};

/// Labels whose values come from the configuration or the store: their series begin when the gateway learns of the value.
const OF_CONFIGURATION: [&str; 6] = ["destination", "hook", "issuer", "request", "route", "version"];

/// The values of labels that no help text lists one by one, as far as they are there from the start.
const OTHER_VALUES: [(&str, &[&str]); 7] = [
    // The other codes of a route are rare or its callers' mistakes, and no alert looks for their increase.
    ("appset_gateway_requests_total", &["ok", "internal"]),
    ("appset_gateway_backend_duration_seconds", &["present", "absent", "unknown"]),
    ("appset_gateway_issuer_key_reads_total", &["ok", "failed"]),
    ("appset_gateway_config_reloads_total", &["ok", "failed"]),
    ("appset_gateway_limit_used_records", &["memory", "baselines", "held", "file", "marks"]),
    ("appset_gateway_route_elements", &["present", "absent", "last_known", "unknown"]),
    ("appset_gateway_limit_used_bytes", &["memory", "baselines", "held", "file", "marks"]),
];

const LIMITS: [SharedLimit; 5] =
    [SharedLimit::Memory, SharedLimit::Baselines, SharedLimit::Held, SharedLimit::File, SharedLimit::Marks];

/// All metrics with labels.
fn labelled(registry: &MetricRegistry) -> impl Iterator<Item = (&str, Vec<&str>, &MadeMetric)> {
    registry.made.iter().filter_map(|made| {
        let labels: Vec<&str> = made.description.variable_labels.iter().map(String::as_str).collect();
        (!labels.is_empty()).then_some((made.description.fq_name.as_str(), labels, made))
    })
}

/// The series of a gateway before its first event: it has one of each thing that a configuration can name.
fn series_before_any_event(metrics: &Metrics) -> Vec<String> {
    let _route = metrics.route("r", "fixed");
    let _shadow = metrics.shadows.of_route("r");
    let _issuer = metrics.callers.keys("https://issuer.example");
    let _reviews = metrics.callers.reviews();
    metrics.hooks.of("h");
    metrics.outbound.begin("registry.example");
    metrics.store.begin("commit");
    metrics.routes.set_elements("r", &["present", "absent", "last_known", "unknown"].map(|state| (state, 0)));
    for limit in LIMITS {
        metrics.limits.set("r", limit, LimitUse::default());
    }
    let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Whether `line` is a series of the metric `name` whose `label` has this `value`.
fn is_series(line: &str, name: &str, label: &str, value: &str) -> bool {
    let rest = line.strip_prefix(name).map(|rest| rest.strip_prefix("_count").unwrap_or(rest));
    let Some(labels) = rest.and_then(|rest| rest.strip_prefix('{')) else { return false };
    labels.contains(&format!("{label}=\"{value}\"")) || value.is_empty() && labels.contains(&format!("{label}=\""))
}

#[test]
fn every_series_is_there_before_its_first_event() {
    let mut registry = MetricRegistry::default();
    let metrics = Metrics::register(&mut registry).unwrap();
    let series = series_before_any_event(&metrics);
    for (name, labels, made) in labelled(&registry) {
        let label = *labels.last().unwrap();
        let other = OTHER_VALUES.iter().find(|(of, _)| *of == name).map(|(_, values)| *values);
        let values = match (&*made.values, other) {
            ([], None) if OF_CONFIGURATION.contains(&label) || made.kind == MetricType::GAUGE => &[""],
            ([], None) => panic!("the values of the label `{label}` of `{name}` are fixed: register it by `explained`"),
            ([], Some(values)) | (values, _) => values,
        };
        for value in values {
            let is_there = series.iter().any(|line| is_series(line, name, label, value));
            assert!(is_there, "`{name}` has no series with the {label} \"{value}\" before its first event");
        }
    }
}

/// The texts of docs/metrics.md that describe the metric `name`: its row, or its paragraph with the head of the table that follows, and the
/// paragraphs of its section that are about all metrics there.
fn description(page: &str, name: &str) -> String {
    let named = format!("`{name}`");
    let section = page.split("\n## ").find(|section| section.contains(&named)).unwrap_or_default();
    let blocks: Vec<&str> = section.split("\n\n").collect();
    let mut found = String::new();
    for (index, block) in blocks.iter().enumerate() {
        let is_table = block.starts_with('|');
        if is_table {
            let rows = block.lines().filter(|row| row.contains(&named));
            found.extend(rows.flat_map(|row| [row, "\n"]));
        } else if block.contains(&named) {
            found.push_str(block);
            let head = blocks.get(index + 1).and_then(|next| next.strip_prefix("| ")?.split(" |").next());
            found.extend(head.map(|head| format!(" `{head}`")));
        } else if block.starts_with("These have the label") {
            found.push_str(block);
        }
    }
    found
}

#[test]
fn the_documentation_names_every_label() {
    let page = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md"));
    let page = std::fs::read_to_string(page).unwrap();
    let mut registry = MetricRegistry::default();
    Metrics::register(&mut registry).unwrap();
    let mut missing = Vec::new();
    for (name, labels, _) in labelled(&registry) {
        let text = description(&page, name);
        missing.extend(labels.iter().filter(|label| !text.contains(&format!("`{label}`"))).map(|label| (name, *label)));
    }
    let missing: Vec<String> = missing.iter().map(|(name, label)| format!("`{label}` of `{name}`")).collect();
    assert!(missing.is_empty(), "docs/metrics.md does not name the labels {}", missing.join(", "));
}

#[test]
fn a_label_elsewhere_on_the_page_does_not_count() {
    let page = "# Metrics\n\n## A\n\n| metric | labels |\n|---|---|\n| `one` | `route` |\n| `two` | |\n\n## B\n\nThese have the label \
                `route`.\n\n| metric |\n|---|\n| `three` |\n\n`four` ends:\n\n| reason | means |\n|---|---|\n| `well` | |\n\n`five`, by `x`\n";
    let names = |metric: &str, label: &str| description(page, metric).contains(&format!("`{label}`"));
    assert!(names("one", "route") && !names("two", "route"));
    assert!(names("three", "route") && !names("three", "x") && names("four", "reason") && !names("four", "well"));
    assert!(names("five", "x") && !names("five", "reason"));
}
