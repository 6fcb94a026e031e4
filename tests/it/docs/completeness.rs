//! The documentation lists exactly the metrics and the kinds of backends of the code.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use regex::Regex;
use serde_json::Value;

use super::page::{Page, repository};
use crate::support::binary::command;

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
    let code = [sources(&repository().join("src")), sources(&repository().join("crates"))].concat();
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

/// The help of `appset-gateway` with these arguments.
fn help(arguments: &[&str]) -> String {
    let output = command().args(arguments).arg("--help").output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The commands of the program.
fn commands() -> BTreeSet<String> {
    let help = help(&[]);
    let (_, rest) = help.split_once("Commands:\n").unwrap();
    let all = rest.lines().take_while(|line| !line.is_empty());
    let names = all.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_is_documented() {
    let page = Page::read("docs/configuration.md");
    let (_, table) = page.text().split_once("| command | does |\n|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells: Vec<&str> = rows.map(|row| row.split('|').nth(1).unwrap()).collect();
    let shown: BTreeSet<String> = cells.iter().flat_map(|cell| matches(r"`([a-z-]+)", cell)).collect();
    assert_eq!(shown, commands());
}

/// Each exit code that a command's help explains has a row, and the other way round.
#[test]
fn every_exit_code_is_documented() {
    let of_help = |command: &String| {
        let help = help(&[command]).replace('\n', " ");
        let codes = help.split("Exit codes: ").nth(1).unwrap_or_default().to_owned();
        matches(r"(?:^|[,;.] )(\d+) [a-z`-]", &codes)
    };
    let mut known: BTreeSet<String> = commands().iter().flat_map(of_help).collect();
    // Of all commands, by clap.
    known.insert("2".to_owned());
    let page = Page::read("docs/operations.md");
    let (_, table) = page.text().split_once("| code | of | means |\n|---|---|---|\n").unwrap();
    let rows: String = table.lines().take_while(|line| line.starts_with('|')).flat_map(|row| [row, "\n"]).collect();
    assert_eq!(matches(r"(?m)^\| (\d+) \|", &rows), known);
}

#[test]
fn every_kind_of_hook_is_documented() {
    let schema = std::fs::read_to_string(repository().join("config/schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let kinds: Vec<&str> =
        schema["$defs"]["Kind"]["oneOf"].as_array().unwrap().iter().filter_map(|kind| kind["const"].as_str()).collect();
    assert!(kinds.len() > 10, "{kinds:?}");
    let pages = [Page::read("docs/push.md"), Page::read("docs/senders.md")];
    let is_shown = |kind: &&&str| {
        pages
            .iter()
            .any(|page| page.text().contains(&format!("`{kind}`")) || page.text().contains(&format!("kind: {kind}")))
    };
    let missing: Vec<_> = kinds.iter().filter(|kind| !is_shown(kind)).collect();
    assert!(missing.is_empty(), "docs/push.md and docs/senders.md lack the kind {missing:?}");
}

/// The container cannot be started here. That it has what the tests need is compared with the list that installs this.
#[test]
fn the_dev_container_has_the_packages_of_the_tests() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    let makefile = read("Makefile");
    let (_, of_tests) = makefile.split_once("\nunit: ## ").unwrap();
    let of_tests = matches(r"[a-z0-9+-]+:([a-z0-9+-]+)", of_tests.lines().nth(1).unwrap());
    assert!(of_tests.len() > 10, "{of_tests:?}");
    let container = read(".devcontainer/devcontainer.json");
    let (_, installed) = container.split_once("--no-install-recommends ").unwrap();
    let installed: BTreeSet<String> = installed.split('"').next().unwrap().split(' ').map(str::to_owned).collect();
    assert_eq!(installed, of_tests);
}
