//! The pages of the gallery show the files in `config/gallery`, and the index names all pages.

use std::path::Path;

use super::page::{Block, Page, repository};
use crate::gallery::recipes;

/// The index of the gallery.
const INDEX: &str = "docs/gallery/README.md";

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn each_recipe_has_a_page_with_its_files() {
    for name in recipes() {
        let page = Page::read(&format!("docs/gallery/{name}.md"));
        let lines = page.text().lines().count();
        assert!((40..=90).contains(&lines), "{}: {lines} lines", page.path);
        let (yaml, others): (Vec<Block>, Vec<Block>) =
            page.blocks().into_iter().partition(|block| block.language == "yaml");
        let shown: Vec<String> = yaml.into_iter().map(|block| block.text).collect();
        let files = [format!("config/gallery/{name}.yaml"), format!("config/gallery/applicationsets/{name}.yaml")];
        assert_eq!(shown, files.map(|file| read(&file)), "{}", page.path);
        for block in others {
            check_program(&page, &block);
        }
        for needed in [format!("`appset-gateway init {name} "), format!("(../../config/gallery/tests/{name}.yaml)")] {
            assert!(page.text().contains(&needed), "{} lacks {needed}", page.path);
        }
    }
}

/// `block` is a program of the gallery, which the line before it names.
fn check_program(page: &Page, block: &Block) {
    let mut before = page.prose().into_iter().filter(|(line, text)| *line < block.line && !text.is_empty());
    let (_, named) = before.next_back().unwrap();
    let name = named.strip_prefix('`').and_then(|rest| rest.strip_suffix("`:")).unwrap();
    assert_eq!(block.text, read(&format!("config/gallery/{name}")), "{}", block.position());
}

#[test]
fn the_index_has_each_recipe_once_and_no_other_page() {
    let index = read(INDEX);
    let pages = repository().join("docs/gallery").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let pages: std::collections::BTreeSet<String> =
        pages.map(|path| stem(&path)).filter(|name| name != "README").collect();
    assert_eq!(pages, recipes());
    for name in pages {
        assert_eq!(index.matches(&format!("]({name}.md) |")).count(), 1, "{INDEX}: {name}");
    }
}
