//! Every CI system is shown to users: a new one that is missing in a file fails here, and the failure names the step that was forgotten.

use std::{collections::BTreeSet, path::Path};

use backend::digests::gate::{CI_SYSTEMS, CiSystem};
use serde_json::Value;

/// Systems whose events are those of [a generic sender](../../../docs/senders.md).
const WITHOUT_HOOK: [&str; 1] = ["http"];

/// The text of a file of this repository.
fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The part of a page from the heading `title` to the next heading.
fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("# {title}\n")).unwrap_or_else(|| panic!("no heading `{title}`"));
    rest.split_once("\n#").map_or(rest, |(section, _)| section)
}

/// The rows of the tables of `section` that begin with `name`.
fn row<'a>(section: &'a str, name: &str) -> Option<&'a str> {
    section.lines().find(|line| {
        let row = line.strip_prefix("| ").map(|row| row.trim_start_matches('`').to_lowercase());
        let rest = row.as_deref().and_then(|row| row.strip_prefix(name));
        rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    })
}

/// Adds the kinds of the gate at `gate`, and of the gates within it.
fn collect_kinds(gate: &Value, kinds: &mut BTreeSet<String>) {
    for (kind, config) in gate.as_object().unwrap() {
        kinds.insert(kind.clone());
        config.as_array().into_iter().flatten().for_each(|member| collect_kinds(member, kinds));
    }
}

#[test]
fn every_module_of_a_system_is_in_the_list() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/backend/src/digests/gate");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut systems = 0;
    for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        if std::fs::read_to_string(&path).unwrap().contains("impl SystemConfig for Config") {
            systems += 1;
            let module = path.file_stem().unwrap().to_str().unwrap();
            let is_listed = CI_SYSTEMS.iter().any(|system| system.module == module);
            assert!(is_listed, "`ci_systems!` in crates/backend/src/digests/gate.rs has no entry for {module}.rs");
        }
    }
    assert_eq!(systems, CI_SYSTEMS.len(), "each system has a file of its own");
}

#[test]
fn every_kind_of_gate_is_in_the_reference_and_the_docs() {
    let reference: Value = serde_saphyr::from_str(&read("config/reference.yaml")).unwrap();
    let mut shown = BTreeSet::new();
    for route in reference["routes"].as_array().unwrap() {
        if let Some(gate) = route.pointer("/backend/digests/gate") {
            collect_kinds(gate, &mut shown);
        }
    }
    let page = read("docs/gates.md");
    for kind in CI_SYSTEMS.iter().map(|system| system.name).chain(["all", "any"]) {
        assert!(shown.contains(kind), "config/reference.yaml shows no gate `{kind}`");
        let has_row = row(section(&page, "Choose a gate"), kind).is_some();
        assert!(has_row, "the table of systems in docs/gates.md has no row for `{kind}`");
    }
}

/// The keys of a system, and whether each is required, by the schema, which a test of `cli` compares with the code.
fn keys(system: &str) -> Vec<(String, bool)> {
    let schema: Value = serde_json::from_str(&read("config/schema.json")).unwrap();
    let kinds = schema["$defs"]["GateConfig"]["oneOf"].as_array().unwrap();
    let link = kinds.iter().find_map(|kind| kind["properties"][system]["$ref"].as_str());
    let link = link.unwrap_or_else(|| panic!("config/schema.json has no gate `{system}`: run `make schema`"));
    let gate = schema.pointer(&link[1..]).unwrap();
    let required: Vec<&str> = gate["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let keys = gate["properties"].as_object().unwrap().keys();
    keys.map(|key| (key.clone(), required.contains(&&**key))).collect()
}

#[test]
fn the_table_of_systems_names_every_key() {
    let page = read("docs/gates.md");
    for CiSystem { name, .. } in CI_SYSTEMS {
        let row = row(section(&page, "Choose a gate"), name).unwrap_or_default();
        let cells: Vec<&str> = row.split(" | ").collect();
        for (key, is_required) in keys(name) {
            // One of several required keys is optional by itself.
            let columns = if is_required { &[1][..] } else { &[1, 3] };
            let is_named = |column: &usize| cells.get(*column).is_some_and(|cell| cell.contains(&format!("`{key}`")));
            let column = if is_required { "required keys" } else { "optional keys" };
            assert!(
                columns.iter().any(is_named),
                "the row of `{name}` in the table of systems in docs/gates.md lacks `{key}` in the column \"{column}\""
            );
        }
    }
}

#[test]
fn the_page_of_gates_says_the_rights_of_every_credential() {
    let page = read("docs/gates.md");
    for CiSystem { name, .. } in CI_SYSTEMS {
        let has_row = row(section(&page, "Give it a token"), name).is_some();
        assert!(has_row, "the table of \"Give it a token\" in docs/gates.md has no row for `{name}`");
    }
}

#[test]
fn the_page_of_digests_names_every_access_key() {
    let page = read("docs/digests.md");
    let table = section(&page, "Another configuration");
    for CiSystem { name, access_keys, .. } in CI_SYSTEMS {
        for key in *access_keys {
            let is_named = table.contains(&format!("`{key}`"));
            assert!(
                is_named,
                "the last table of \"Another configuration\" in docs/digests.md lacks `{key}` of the gate `{name}`"
            );
        }
    }
}

#[test]
fn every_system_has_an_integration_test() {
    let modules = read("tests/it/gates.rs");
    for CiSystem { name, module, .. } in CI_SYSTEMS {
        let file = format!("tests/it/gates/{module}.rs");
        let is_there = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file).exists();
        assert!(is_there, "the gate `{name}` has no integration test: write {file}");
        assert!(modules.contains(&format!("\nmod {module};")), "tests/it/gates.rs has no `mod {module};`");
    }
}

#[test]
fn every_system_sends_events_or_is_known_to_send_none() {
    let schema: Value = serde_json::from_str(&read("config/schema.json")).unwrap();
    let kinds = schema["$defs"]["Kind"].to_string();
    let senders = read("docs/senders.md");
    for CiSystem { name, .. } in CI_SYSTEMS.iter().filter(|system| !WITHOUT_HOOK.contains(&system.name)) {
        let advice = "if it sends no events of its own, add it to WITHOUT_HOOK in tests/it/gates/systems.rs";
        let is_kind = kinds.contains(&format!("{:?}", *name));
        assert!(
            is_kind,
            "no kind of hook for the CI system `{name}`: add it to crates/hooks/src/kind.rs and run `make schema`; {advice}"
        );
        let is_shown = senders.contains(&format!("kind: {name}"));
        assert!(is_shown, "docs/senders.md does not say how `{name}` is set up as a sender; {advice}");
    }
}
