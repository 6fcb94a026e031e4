//! The filter `slug` against the library that Argo CD uses: the facts that its tests compare it with are that library's.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn maker() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/slug")
}

/// Runs Go in the maker's folder. `None` without Go.
fn go(arguments: &[&str]) -> Option<Output> {
    let mut go = Command::new("go");
    go.args(arguments).current_dir(maker()).stdin(Stdio::null()).envs([("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")]);
    go.output().inspect_err(|error| println!("skipped: there is no `go` here ({error})")).ok()
}

#[test]
fn the_facts_are_those_of_argo_cds_library() {
    let Some(fetched) = go(&["mod", "download"]) else { return };
    if !fetched.status.success() {
        println!("skipped: no module proxy is reached: {}", String::from_utf8_lossy(&fetched.stderr));
        return;
    }
    let made = go(&["run", ".", "facts"]).unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let facts = include_str!("../../tools/slug/facts.txt");
    assert!(made.stdout == facts.as_bytes(), "the library makes other slugs: `make slug`");
}
