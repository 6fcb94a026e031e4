//! Code spans that name files of the repository or items of its code.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use regex::Regex;

use super::page::{Page, repository};
use crate::support::modules::{self, CRATES};

/// The folders at the top whose files are named on pages.
const FOLDERS: [&str; 9] = ["crates", "src", "tests", "docs", "deploy", "tools", "benches", "fuzz", "config"];

/// Names of files in examples.
const EXAMPLES: [&str; 2] = ["foo.rs", "mod.rs"];

/// What spans may name.
struct Known {
    /// The files and folders, by their paths within the repository.
    paths: BTreeSet<String>,
    /// The Rust files of the program and its crates, with their texts.
    sources: BTreeMap<String, String>,
}

impl Known {
    fn read() -> Self {
        let mut paths = BTreeSet::new();
        for folder in FOLDERS {
            collect(&repository().join(folder), &mut paths);
        }
        let is_source = |path: &str| path.starts_with("src/") || path.starts_with("crates/") && path.contains("/src/");
        let sources = modules::rust_files().into_iter().filter(|(path, _)| is_source(path)).collect();
        Self { paths, sources }
    }

    /// Whether `path` is a file or a folder, or the end of such a path.
    fn has_path(&self, path: &str) -> bool {
        let (path, end) = (path.trim_end_matches('/'), format!("/{}", path.trim_end_matches('/')));
        self.paths.iter().any(|known| known == path || known.ends_with(&end))
    }

    /// The texts of the module with these names, and of all below it. Empty if there is none.
    fn texts<'k>(&'k self, module: &[&str]) -> Vec<&'k str> {
        let (base, inner) = match module.split_first() {
            Some((name, inner)) if CRATES.iter().any(|known| known == name) => (format!("crates/{name}/src"), inner),
            _ => ("src".to_owned(), module),
        };
        let path = [&[base.as_str()], inner].concat().join("/");
        let (file, folder) = (format!("{path}.rs"), format!("{path}/"));
        let is_meant = |name: &str| name == file || name.starts_with(&folder);
        self.sources.iter().filter(|(name, _)| is_meant(name)).map(|(_, text)| text.as_str()).collect()
    }

    /// Whether `item`, such as `flight::Flights`, is there. A path that begins with a type is there if the code has its names. True
    /// for paths that begin with a crate from outside.
    fn has_item(&self, item: &str) -> bool {
        let parts: Vec<&str> = item.split("::").collect();
        if parts[0].starts_with(char::is_uppercase) {
            let all: Vec<&str> = self.sources.values().map(String::as_str).collect();
            return has_words(&all, &parts);
        }
        if self.texts(&parts[..1]).is_empty() {
            return true;
        }
        let count = (1..parts.len()).rev().find(|count| !self.texts(&parts[..*count]).is_empty()).unwrap_or(1);
        let of_module = self.texts(&parts[..count]);
        count == parts.len() || has_words(&of_module, &parts[count..]) || !self.texts(&parts).is_empty()
    }
}

/// Whether each of `words` is in one of `texts`.
fn has_words(texts: &[&str], words: &[&str]) -> bool {
    let has = |word: &&str| {
        let whole = Regex::new(&format!(r"\b{}\b", regex::escape(word))).unwrap();
        texts.iter().any(|text| whole.is_match(text))
    };
    words.iter().all(has)
}

/// Adds all that is below `folder`, except what builds leave there.
fn collect(folder: &Path, paths: &mut BTreeSet<String>) {
    let shown = |path: &Path| path.strip_prefix(repository()).unwrap().to_str().unwrap().to_owned();
    paths.insert(shown(folder));
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") && !path.is_symlink() {
            collect(&path, paths);
        } else {
            paths.insert(shown(&path));
        }
    }
}

/// The code spans of `page`, each with its line.
fn spans(page: &Page) -> Vec<(usize, String)> {
    let span = Regex::new("`([^`]+)`").unwrap();
    let of_line =
        |(number, line): (usize, &str)| span.captures_iter(line).map(|s| (number, s[1].to_owned())).collect::<Vec<_>>();
    page.prose().into_iter().flat_map(of_line).collect()
}

#[test]
fn every_file_and_every_item_that_a_page_names_is_there() {
    let known = Known::read();
    let file = Regex::new(&format!(r"^(?:(?:{})/[\w./-]*|[\w/-]+\.rs)$", FOLDERS.join("|"))).unwrap();
    let item = Regex::new(r"^\w+(?:::\w+)+$").unwrap();
    let (mut seen, mut missing) = (0, Vec::new());
    for page in Page::all() {
        for (line, span) in spans(&page) {
            let is_there = if file.is_match(&span) {
                EXAMPLES.contains(&&*span) || known.has_path(&span)
            } else if item.is_match(&span) {
                known.has_item(&span)
            } else {
                continue;
            };
            seen += 1;
            if !is_there {
                missing.push(format!("{}:{line}: there is no `{span}`", page.path));
            }
        }
    }
    assert!(seen >= 100, "only {seen} spans were found");
    assert!(missing.is_empty(), "{missing:#?}");
}
