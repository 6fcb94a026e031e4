//! Relative links and the book's list of pages.

use std::collections::HashMap;

use regex::Regex;

use super::page::{Page, repository};

/// The book's list of pages.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The targets of the links of `page`, each with its line.
fn links(page: &Page) -> Vec<(usize, String)> {
    let code = Regex::new("`[^`]*`").unwrap();
    let inline = Regex::new(r"\]\(<?([^)\s>]+)").unwrap();
    let reference = Regex::new(r"^\[[^\]]+\]:\s+(\S+)").unwrap();
    let mut found = Vec::new();
    for (number, line) in page.prose() {
        // A link's text may be code, its target may not.
        let line = code.replace_all(line, "code");
        for pattern in [&inline, &reference] {
            found.extend(pattern.captures_iter(&line).map(|link| (number, link[1].to_owned())));
        }
    }
    found
}

/// `target`, a path as a link in the file `page` writes it, within the repository.
fn resolve(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

#[test]
fn every_relative_link_leads_somewhere() {
    let pages = Page::all();
    let anchors: HashMap<&str, Vec<String>> = pages.iter().map(|page| (page.path.as_str(), page.anchors())).collect();
    let (mut seen, mut broken) = (0, Vec::new());
    for page in &pages {
        for (line, target) in links(page) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            seen += 1;
            let (path, anchor) = target.split_once('#').map_or((target.as_str(), None), |(path, at)| (path, Some(at)));
            let path = if path.is_empty() { page.path.clone() } else { resolve(&page.path, path) };
            let place = format!("{}:{line}: {target}", page.path);
            if !repository().join(&path).exists() {
                broken.push(format!("{place}: there is no {path}"));
            } else if let (Some(anchor), Some(known)) = (anchor, anchors.get(path.as_str()))
                && !known.iter().any(|known| known == anchor)
            {
                broken.push(format!("{place}: {path} has no such heading"));
            }
        }
    }
    assert!(seen > 50, "{seen} links");
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn the_books_summary_lists_every_page() {
    let listed: Vec<String> =
        links(&Page::read(SUMMARY)).into_iter().map(|(_, target)| resolve(SUMMARY, &target)).collect();
    let pages: Vec<String> = Page::all()
        .into_iter()
        .map(|page| page.path)
        .filter(|path| path.starts_with("docs/") && path != SUMMARY)
        .collect();
    let missing: Vec<&String> = pages.iter().filter(|page| !listed.contains(page)).collect();
    assert!(missing.is_empty(), "not in {SUMMARY}: {missing:?}");
    let unknown: Vec<&String> = listed.iter().filter(|page| !repository().join(page).is_file()).collect();
    assert!(unknown.is_empty(), "in {SUMMARY}, and no page: {unknown:?}");
    let twice: Vec<&String> =
        listed.iter().filter(|page| listed.iter().filter(|other| other == page).count() > 1).collect();
    assert!(twice.is_empty(), "twice in {SUMMARY}: {twice:?}");
}
