//! Every CI system is shown to users: a new one that is missing in a file fails here, and the failure names the file.

use std::{collections::BTreeSet, path::Path};

use backend::digests::gate::CI_SYSTEMS;
use serde_json::Value;

/// Adds the kinds of the gate at `gate`, and of the gates within it.
fn collect_kinds(gate: &Value, kinds: &mut BTreeSet<String>) {
    for (kind, config) in gate.as_object().unwrap() {
        kinds.insert(kind.clone());
        config.as_array().into_iter().flatten().for_each(|member| collect_kinds(member, kinds));
    }
}

#[test]
fn every_kind_of_gate_is_in_the_reference_and_the_docs() {
    let read = |file: &str| std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let reference: Value = serde_saphyr::from_str(&read("config/reference.yaml")).unwrap();
    let mut shown = BTreeSet::new();
    for route in reference["routes"].as_array().unwrap() {
        if let Some(gate) = route.pointer("/backend/digests/gate") {
            collect_kinds(gate, &mut shown);
        }
    }
    let docs = read("docs/gates.md");
    let rows: Vec<&str> = docs.lines().filter_map(|line| line.strip_prefix("| ")).collect();
    for kind in CI_SYSTEMS.iter().map(|system| system.name).chain(["all", "any"]) {
        assert!(shown.contains(kind), "config/reference.yaml shows no gate `{kind}`");
        let has_row = rows.iter().any(|row| row.starts_with(&format!("`{kind}")));
        assert!(has_row, "the table of systems in docs/gates.md has no row for `{kind}`");
    }
}
