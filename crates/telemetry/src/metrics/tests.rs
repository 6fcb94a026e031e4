//! Each metric has a name by Prometheus' rules, a help text in plain English, and a place in the documentation.

mod labels;

use std::{collections::BTreeSet, path::Path};

use prometheus::proto::MetricType;

use super::{Metrics, registry::MetricRegistry};

/// The longest sentence of a help text, in words.
const MAX_WORDS: usize = 25;

/// The name, kind, help text and labels of every metric.
fn every_metric() -> Vec<(String, MetricType, String, Vec<String>)> {
    let mut registry = MetricRegistry::default();
    Metrics::register(&mut registry).unwrap();
    let metric = |made: super::registry::MadeMetric| {
        let description = made.description;
        (description.fq_name, made.kind, description.help, description.variable_labels)
    };
    registry.made.into_iter().map(metric).collect()
}

/// What is wrong with a help text, if something is.
fn complaint_about_help(help: &str) -> Option<String> {
    if !help.starts_with(|first: char| first.is_ascii_uppercase() || first.is_ascii_digit()) {
        return Some("begins with neither a capital letter nor a digit".to_owned());
    }
    if !help.ends_with('.') || help.ends_with("..") {
        return Some("does not end with one full stop".to_owned());
    }
    if help.contains("  ") || help.contains(char::is_control) {
        return Some("has more than single spaces".to_owned());
    }
    let long = help.split(['.', ';', ':']).find(|sentence| sentence.split_whitespace().count() > MAX_WORDS);
    long.map(|sentence| format!("has a sentence of more than {MAX_WORDS} words: {}", sentence.trim()))
}

/// What is wrong with a name, if something is: <https://prometheus.io/docs/practices/naming/>.
fn complaint_about_name(name: &str, kind: MetricType) -> Option<&'static str> {
    let is_own = name.starts_with("appset_gateway_") || name.starts_with("process_");
    if !is_own || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') || name.contains("__")
    {
        return Some("is not appset_gateway_… or process_… in snake case");
    }
    if (kind == MetricType::COUNTER) != name.ends_with("_total") {
        return Some("must end with _total if it is a counter, and only then");
    }
    if ["_count", "_sum", "_bucket"].iter().any(|suffix| name.ends_with(suffix)) {
        return Some("ends as the series of a histogram do");
    }
    if kind == MetricType::HISTOGRAM && !["_seconds", "_bytes"].iter().any(|unit| name.ends_with(unit)) {
        return Some("does not end with its unit");
    }
    let other_units = ["milliseconds", "minutes", "hours", "kilobytes", "megabytes", "percent"];
    other_units.iter().any(|unit| name.contains(unit)).then_some("is not in a base unit (seconds, bytes)")
}

#[test]
fn names_follow_the_rules_of_prometheus() {
    for (name, kind, _, labels) in every_metric() {
        assert_eq!(complaint_about_name(&name, kind), None, "the name `{name}`");
        for label in labels {
            let is_plain = label.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            assert!(is_plain && !["le", "quantile"].contains(&&*label), "the label `{label}` of `{name}`");
        }
    }
}

#[test]
fn help_texts_are_short_sentences() {
    for (name, _, help, _) in every_metric() {
        assert_eq!(complaint_about_help(&help), None, "the help text of `{name}`: {help}");
    }
}

/// `increase` sees the first failure only in a counter that was there before it.
#[test]
fn failures_that_alerts_look_for_are_counted_from_zero() {
    let metrics = Metrics::new().unwrap();
    let _route = metrics.route("r", "fixed");
    let text = String::from_utf8(metrics.encode().unwrap()).unwrap();
    for series in [
        r#"appset_gateway_backend_failures_total{kind="crashed",route="r"} 0"#,
        r#"appset_gateway_backend_failures_total{kind="unavailable",route="r"} 0"#,
        r#"appset_gateway_requests_total{code="internal",route="r"} 0"#,
        r#"appset_gateway_requests_total{code="forbidden",route="none"} 0"#,
        r#"appset_gateway_requests_total{code="overloaded",route="none"} 0"#,
    ] {
        assert!(text.lines().any(|line| line == series), "{series} is not in {text}");
    }
}

#[test]
fn no_two_metrics_have_the_same_help_text() {
    let mut seen = BTreeSet::new();
    for (name, _, help, _) in every_metric() {
        assert!(seen.insert(help), "`{name}` has the help text of another metric");
    }
}

#[test]
fn the_documentation_names_every_metric() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let text: String =
        pages.chain([root.join("README.md")]).map(|page| std::fs::read_to_string(page).unwrap()).collect();
    for (name, _, _, _) in every_metric() {
        assert!(text.contains(&format!("`{name}`")), "`{name}` is neither in README.md nor on a page of docs/");
    }
}

/// The types of fields that hold a metric.
const KINDS: [&str; 8] =
    ["Counter", "Histogram", "HistogramVec", "IntCounter", "IntCounterVec", "IntGauge", "IntGaugeVec", "Gauge"];

/// What is done with a metric that counts, directly or by who is handed it.
const USES: [&str; 12] = [
    ".add(",
    ".clone()",
    ".dec()",
    ".inc()",
    ".inc_by(",
    ".local()",
    ".observe(",
    ".remove_label_values(",
    ".reset()",
    ".set(",
    ".with_label_values(",
    ".with_label_values::<",
];

/// All Rust files below `folder` with what they hold, tests excepted.
fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            if !path.ends_with("tests") && !path.ends_with("target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("tests.rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            found.push(without_registration(text));
        }
    }
}

/// `text` without the functions that register metrics and create their zeros, and without breaks in chains of calls.
fn without_registration(text: &str) -> String {
    let (mut kept, mut is_registering) = (String::new(), false);
    for line in text.lines() {
        let is_start = line.contains("registry: &mut MetricRegistry") && line.contains("fn ");
        is_registering |= is_start;
        if !is_registering {
            let line = line.trim();
            if !line.starts_with('.') {
                kept.push('\n');
            }
            kept.push_str(line);
        }
        is_registering &= line != "    }" && line != "}";
    }
    kept
}

#[test]
fn zeros_copies_and_reads_count_nothing() {
    let zeros = "let zero = 0;\nself.lost.with_label_values(&[route]);\n";
    assert_eq!(counts(zeros, "lost"), 0);
    assert_eq!(counts("let zero = 0;\nself.lost.with_label_values(&[route]).inc();\n", "lost"), 1);
    assert_eq!(counts("let now = self.lost.with_label_values(&[route]).get();\n", "lost"), 0);
    assert_eq!(counts("Route { lost: self.lost.with_label_values(&[route]) }", "lost"), 1);
}

/// A metric that is registered and never counted stays at zero, which looks like good news.
#[test]
fn every_metric_is_counted_somewhere() {
    let own = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
    let (mut all, mut ours) = (Vec::new(), Vec::new());
    sources(&own.join("metrics"), &mut ours);
    ours.push(without_registration(&std::fs::read_to_string(own.join("metrics.rs")).unwrap()));
    let root = own.ancestors().nth(3).unwrap();
    sources(&root.join("crates"), &mut all);
    sources(&root.join("src"), &mut all);
    let fields: Vec<&str> = ours.iter().flat_map(|text| text.lines()).filter_map(field).collect();
    for name in &fields {
        // Two structs may have a field of one name: each is counted in a place of its own, if the second is not only a copy of the first.
        let copies: usize = all.iter().map(|text| text.matches(&format!("{name}: self.{name}.clone()")).count()).sum();
        let structs = fields.iter().filter(|other| *other == name).count() - copies;
        let places = all.iter().map(|text| counts(text, name)).sum::<usize>() - copies;
        assert!(places >= structs, "a metric in a field `{name}` is never counted: {structs} of them, {places} places");
    }
}

/// The name of the field that `line` declares, if it is a metric.
fn field(line: &str) -> Option<&str> {
    let (name, kind) = line.trim_end_matches(',').trim_start_matches("pub ").split_once(": ")?;
    (KINDS.contains(&kind) && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')).then_some(name)
}

/// `rest` to the end of its statement.
fn statement(rest: &str) -> &str {
    rest.split(';').next().unwrap_or(rest)
}

/// How often `text` counts with a field `name`, or hands it to a function that does.
fn counts(text: &str, name: &str) -> usize {
    let field = format!(".{name}");
    let is_counted = |at: usize| {
        let rest = &text[at + field.len()..];
        let start = text[..at].rfind(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').map_or(0, |start| start);
        let is_shared = text[..start].ends_with("Arc::clone(");
        let is_handed = text[start..].starts_with('&') && rest.starts_with([')', ',', ';']) && !is_shared;
        // `self.failures.with_label_values(&[route, kind]);` creates a zero.
        let is_statement = text[..at].ends_with("\nself");
        let is_zero = is_statement && rest.starts_with(".with_label_values") && statement(rest).ends_with("])");
        let is_read = statement(rest).ends_with(".get()");
        is_handed || !is_zero && !is_read && USES.iter().any(|used| rest.starts_with(used))
    };
    text.match_indices(&field).filter(|(at, _)| is_counted(*at)).count()
}
