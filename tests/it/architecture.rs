//! The rooms and who may know whom: `src/` is read, and each `crate::` path checked against the table.

use std::{collections::BTreeMap, path::Path};

/// From the top to the bottom. A module knows only those of later rows, and itself.
const ROWS: &[&[&str]] = &[
    &["cli"],
    &["server"],
    &["edge"],
    &["app"],
    &["config"],
    &["auth", "answer"],
    &["route"],
    &["guard"],
    &["cache", "shape"],
    &["backend"],
    &["oci", "collector", "evaluator"],
    &["outbound", "launcher", "tls"],
    &["template", "expression", "telemetry", "secret", "certificate", "landing"],
    &["error"],
    &["base_dir", "bounded", "clock", "document", "file", "flight", "generator", "problem", "renewal", "units"],
    &["trace"],
];

fn sources(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            found.push((name, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

fn all() -> Vec<(String, String)> {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found
}

/// The modules that `source` names as `crate::x` or in `use crate::{x, y}`.
fn named(source: &str) -> Vec<String> {
    let code: String =
        source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut names = Vec::new();
    for (position, _) in code.match_indices("crate::") {
        let rest = &code[position + "crate::".len()..];
        if let Some(group) = rest.strip_prefix('{') {
            let (mut depth, mut item) = (0, String::new());
            for c in group.chars() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => names.push(std::mem::take(&mut item)),
                    c => item.push(c),
                }
            }
            names.push(item);
        } else {
            names.push(rest.to_owned());
        }
    }
    let head = |name: String| name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    names.into_iter().map(head).filter(|name| !name.is_empty()).collect()
}

#[test]
fn nobody_looks_upward() {
    let row: BTreeMap<&str, usize> =
        ROWS.iter().enumerate().flat_map(|(row, names)| names.iter().map(move |name| (*name, row))).collect();
    for (file, source) in all() {
        let module = file.split(['/', '.']).next().unwrap();
        if matches!(module, "lib" | "main") {
            continue;
        }
        let own = *row.get(module).unwrap_or_else(|| panic!("{module} stands in no row"));
        for name in named(&source) {
            let other =
                *row.get(name.as_str()).unwrap_or_else(|| panic!("{file} names {name}, which stands in no row"));
            assert!(name == module || other > own, "src/{file} must not know `{name}`");
        }
    }
}

#[test]
fn axum_and_status_codes_stay_in_their_room() {
    for (file, source) in all() {
        let is_server = file.starts_with("server") || file.starts_with("edge");
        assert!(is_server || !source.contains("axum::"), "src/{file} speaks axum");
        if file.starts_with("backend/digests") || file.starts_with("answer") || file.starts_with("cache") {
            assert!(!source.contains("StatusCode"), "src/{file} knows a status code");
        }
        assert!(!file.ends_with("mod.rs"), "{file}: foo.rs with foo/, never mod.rs");
    }
}

/// Invariant I1 as far as text can show it: one place sets a 2xx.
#[test]
fn one_place_makes_a_success() {
    let places: Vec<String> = all()
        .into_iter()
        .filter(|(file, source)| file.starts_with("server") && source.contains("StatusCode::OK"))
        .map(|(file, _)| file)
        .collect();
    assert_eq!(places, ["server/completion.rs"]);
}
