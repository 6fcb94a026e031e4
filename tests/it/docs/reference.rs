//! The pages in `docs/reference` are those that `tools/reference` makes of the schema, the code's defaults and `config/reference.yaml` with its comments.

use std::{fs, path::Path, process::Command};

use super::page::repository;

/// `tools/reference --check` for the files of `root`: whether it succeeds, and its errors.
fn check(root: &Path) -> (bool, String) {
    let done = Command::new("python3").arg(root.join("tools/reference")).arg("--check").output().unwrap();
    (done.status.success(), String::from_utf8(done.stderr).unwrap())
}

#[test]
fn the_reference_is_that_of_the_schema() {
    assert_eq!(check(repository()), (true, String::new()));
}

/// A page that somebody edited, one that is missing, and one that nothing makes.
#[test]
fn an_old_page_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("docs")).unwrap();
    for name in ["tools", "config", "crates", "docs/reference"] {
        let copied =
            Command::new("cp").arg("-r").arg(repository().join(name)).arg(folder.path().join(name)).status().unwrap();
        assert!(copied.success(), "{name}");
    }
    let pages = folder.path().join("docs/reference");
    fs::write(pages.join("http.md"), "# `http`\n").unwrap();
    fs::remove_file(pages.join("sql.md")).unwrap();
    fs::write(pages.join("none.md"), "").unwrap();
    let (is_current, said) = check(folder.path());
    assert!(!is_current);
    let lines = ["http", "none", "sql"].map(|name| format!("docs/reference/{name}.md is old: run `make reference`\n"));
    assert_eq!(said.trim_end(), lines.concat().trim_end());
}
