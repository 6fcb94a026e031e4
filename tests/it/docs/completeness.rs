//! The documentation lists exactly the metrics and the kinds of backends of the code.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use regex::Regex;
use serde_json::Value;

use super::page::{Page, repository};

/// The page of all metrics.
const METRICS: &str = "docs/metrics.md";
/// The pages that have a table or a list of all kinds of backends.
const KINDS: [&str; 4] = ["README.md", "docs/configuration.md", "docs/pipelines.md", "docs/glossary.md"];

/// The first group of each match of `pattern` in `text`.
fn matches(pattern: &str, text: &str) -> BTreeSet<String> {
    Regex::new(pattern).unwrap().captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// The texts of all files below `folder`.
fn sources(folder: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    let paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    for path in paths {
        if path.is_dir() {
            texts.extend(sources(&path));
        } else {
            texts.push(std::fs::read_to_string(&path).unwrap());
        }
    }
    texts
}

#[test]
fn the_documented_metrics_are_those_of_the_code() {
    let code = sources(&repository().join("src"));
    let known: BTreeSet<String> =
        code.iter().flat_map(|text| matches(r#""(appset_gateway_[a-z0-9_]+)""#, text)).collect();
    assert!(known.len() > 20, "{known:?}");
    for page in Page::all() {
        let mut named = matches("(appset_gateway_[a-z0-9_]+)", page.text());
        if page.path == METRICS {
            let missing: Vec<_> = known.difference(&named).collect();
            assert!(missing.is_empty(), "{METRICS} lacks {missing:?}");
        }
        named.retain(|name| !known.contains(name) && !is_of_histogram(name, &known));
        assert!(named.is_empty(), "{} names {named:?}, which no metric has", page.path);
    }
}

/// Whether `name` is a series of a histogram among `known`.
fn is_of_histogram(name: &str, known: &BTreeSet<String>) -> bool {
    ["_bucket", "_sum", "_count"].iter().any(|end| name.strip_suffix(end).is_some_and(|name| known.contains(name)))
}

#[test]
fn every_kind_of_backend_is_documented() {
    let schema = std::fs::read_to_string(repository().join("config/schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let kinds = schema["$defs"]["BackendConfig"]["oneOf"].as_array().unwrap();
    let kinds: Vec<&String> = kinds.iter().flat_map(|kind| kind["properties"].as_object().unwrap().keys()).collect();
    assert!(kinds.len() > 5, "{kinds:?}");
    for path in KINDS {
        let page = Page::read(path);
        let missing: Vec<_> = kinds.iter().filter(|kind| !page.text().contains(&format!("`{kind}`"))).collect();
        assert!(missing.is_empty(), "{path} lacks the backend {missing:?}");
    }
}
