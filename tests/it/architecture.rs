//! The rooms of the program and its crates, and which may use which: the code must follow the table in ARCHITECTURE.md.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::modules::{self, CRATES, Modules};

/// The limit for modules at the top of `src/`, and for crates. A file and its folder are one module.
const MAX_TOP_MODULES: usize = 12;
const MAX_CRATES: usize = 24;

/// The rooms and their rows, from the table in ARCHITECTURE.md.
fn rooms() -> BTreeMap<String, usize> {
    let page = include_str!("../../ARCHITECTURE.md");
    let (_, section) = page.split_once("## The rooms").unwrap();
    let (_, table) = section.split_once("|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|line| line.split('|').nth(1).unwrap());
    let names = |cell: &str| cell.split(',').map(|name| name.trim().trim_matches('`').to_owned()).collect::<Vec<_>>();
    cells.enumerate().flat_map(|(row, cell)| names(cell).into_iter().map(move |name| (name, row))).collect()
}

/// The room of a module such as `engine::cache::key`: the longest name in the table that is a prefix of it.
fn room_of<'r>(rooms: &'r BTreeMap<String, usize>, module: &[String]) -> Option<(&'r str, usize)> {
    let name = |count: usize| module[..count].join("::");
    let found = (1..=module.len()).rev().find_map(|count| rooms.get_key_value(&name(count)));
    found.map(|(name, row)| (&**name, *row))
}

/// Whether a module only groups rooms, such as `engine`, or is the crate itself.
fn is_group(rooms: &BTreeMap<String, usize>, module: &[String]) -> bool {
    let name = module.join("::");
    module.is_empty() || name == "main" || rooms.keys().any(|room| room.starts_with(&format!("{name}::")))
}

#[test]
fn rooms_use_only_rooms_of_later_rows() {
    let rooms = rooms();
    let mut wrong = Vec::new();
    for (file, module, used) in Modules::read().uses() {
        if is_group(&rooms, module) || is_group(&rooms, used) {
            continue;
        }
        let (own, own_row) =
            room_of(&rooms, module).unwrap_or_else(|| panic!("{file} is in no room of ARCHITECTURE.md"));
        let (other, row) = room_of(&rooms, used).unwrap_or_else(|| panic!("{used:?} is in no room of ARCHITECTURE.md"));
        if own != other && row <= own_row {
            wrong.push(format!("{file} must not use {}", used.join("::")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_room_of_the_table_exists() {
    let modules = Modules::read();
    for room in rooms().keys() {
        let path: Vec<String> = room.split("::").map(str::to_owned).collect();
        assert!(modules.contains(&path), "{room} stands in ARCHITECTURE.md and is not there");
    }
    let top: BTreeSet<&String> = modules.all().filter_map(|(_, module)| module.first()).collect();
    let (crates, own): (Vec<_>, Vec<_>) = top.into_iter().partition(|name| CRATES.contains(*name));
    assert!(own.len() <= MAX_TOP_MODULES, "{} modules at the top: {own:?}", own.len());
    assert!(crates.len() <= MAX_CRATES, "{} crates: {crates:?}", crates.len());
}

/// The names in backquotes in a cell of a table.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The crates of the workspace that the crate `name` uses, by its Cargo.toml.
fn used_by(name: &str) -> BTreeSet<String> {
    let manifest = std::fs::read_to_string(modules::repository().join("crates").join(name).join("Cargo.toml")).unwrap();
    let (_, dependencies) = manifest.split_once("\n[dependencies]\n").unwrap_or_default();
    let own = dependencies.lines().take_while(|line| !line.starts_with('['));
    let names = own.filter_map(|line| line.split(['.', ' ']).next());
    names.filter(|name| CRATES.contains(*name)).map(str::to_owned).collect()
}

#[test]
fn the_decision_on_the_workspace_lists_every_crate_and_what_it_uses() {
    let page = include_str!("../../docs/decisions/0032-workspace.md");
    let (_, table) = page.split_once("| crate | uses |\n|---|---|\n").unwrap();
    let mut listed = BTreeMap::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.split('|').collect();
        let names = quoted(cells[1]).into_iter().filter(|name| CRATES.contains(name));
        listed.extend(names.map(|name| (name, quoted(cells[2]))));
    }
    let actual: BTreeMap<String, _> = CRATES.iter().map(|name| (name.clone(), used_by(name))).collect();
    assert_eq!(listed, actual);
}

/// A feature of a crate that only the tests use is on in the tests, and missing in the program.
#[test]
fn features_of_the_program_are_those_of_its_own_dependencies() {
    let manifest = include_str!("../../Cargo.toml");
    let section = |name: &str| {
        let (_, rest) = manifest.split_once(&format!("\n[{name}]\n")).unwrap();
        rest.split_once("\n[").unwrap().0
    };
    let own = section("dependencies");
    let of_crates = section("features").split('"').filter_map(|text| text.split_once('/').map(|(name, _)| name));
    let missing: Vec<&str> =
        of_crates.filter(|name| !own.lines().any(|line| line.starts_with(&format!("{name}.")))).collect();
    assert!(missing.is_empty(), "[features] names crates that are not in [dependencies]: {missing:?}");
}

/// No files use each other in a circle. A file and the files of its own folder count as one.
#[test]
fn no_files_use_each_other_in_a_circle() {
    let modules = Modules::read();
    let circles = modules.circles();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn axum_and_status_codes_are_used_only_in_their_room() {
    for (file, source) in modules::sources() {
        assert!(file.starts_with("http/") || !source.contains("axum::"), "{file} speaks axum");
        if ["backend/digests", "engine/answer", "engine/cache"].iter().any(|room| file.starts_with(room)) {
            assert!(!source.contains("StatusCode"), "{file} knows a status code");
        }
        assert!(!file.ends_with("mod.rs"), "{file}: foo.rs with foo/, never mod.rs");
    }
}

/// Invariant I1, as far as the source text shows it: only one file makes a 2xx.
#[test]
fn only_one_file_makes_a_success() {
    let is_success = |(file, source): &(String, String)| file.starts_with("http") && source.contains("StatusCode::OK");
    let places: Vec<String> = modules::sources().into_iter().filter(is_success).map(|(file, _)| file).collect();
    assert_eq!(places, ["http/server/completion.rs"]);
}

/// A crate that is missing there would lose its log lines below `warn`.
#[test]
fn the_log_has_the_lines_of_every_crate() {
    let missing: Vec<&String> =
        CRATES.iter().filter(|name| !telemetry::log::OWN_TARGETS.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "telemetry::log::OWN_TARGETS lacks {missing:?}");
}

/// The longest Rust file, in lines. A longer one has several subjects.
const MAX_LINES: usize = 400;

#[test]
fn no_rust_file_is_longer_than_400_lines() {
    let long: Vec<String> = modules::rust_files()
        .into_iter()
        .map(|(file, text)| (file, text.lines().count()))
        .filter(|(_, lines)| *lines > MAX_LINES)
        .map(|(file, lines)| format!("{file} has {lines} lines: split it by subject"))
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}
