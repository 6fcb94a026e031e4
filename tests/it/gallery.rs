//! The gallery in `config/gallery`: each recipe is a good configuration, and its cases play good days and bad ones. Its pages are
//! compared in [`crate::docs`], its ApplicationSets by `deploy/check`.

use std::{collections::BTreeSet, path::PathBuf};

use serde_json::Value;

use crate::support::binary::command;

/// The folder of the recipes.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config/gallery")
}

/// The names of the `.yaml` files in `part` of the gallery, without their ends.
fn names(part: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder().join(part)).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The names of all recipes. Each has a configuration, cases, and an ApplicationSet.
pub(crate) fn recipes() -> BTreeSet<String> {
    let recipes = names("");
    assert_eq!((names("tests"), names("applicationsets")), (recipes.clone(), recipes.clone()));
    recipes
}

/// No error, no warning, and no key that an editor would mark.
#[test]
fn each_recipe_passes_check() {
    let schema = std::fs::read_to_string(folder().join("../schema.json")).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    for name in recipes() {
        let file = folder().join(format!("{name}.yaml"));
        let output = command().args(["check", "--no-secrets", "--strict", "-c"]).arg(&file).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && said.is_empty(), "{name}: {said}");
        let value: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}

/// All steps of the cases in `document`, each with what it expects.
fn expectations(document: &Value) -> Vec<Value> {
    let cases = document["cases"].as_array().unwrap();
    let then = cases.iter().flat_map(|case| case["then"].as_array().into_iter().flatten());
    cases.iter().chain(then).map(|step| step["expect"].clone()).collect()
}

/// A good day gives parameter sets. On a bad day the answer is an error or an older one.
#[test]
fn the_cases_of_each_recipe_play_a_good_day_and_a_bad_one() {
    for name in recipes() {
        let file = format!("{name}.yaml");
        let cases = folder().join("tests").join(&file);
        let output = command().args(["test", "-c"]).arg(folder().join(&file)).arg(&cases).output().unwrap();
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success(), "{name}: {printed}");
        let document: Value = serde_saphyr::from_str(&std::fs::read_to_string(&cases).unwrap()).unwrap();
        let expected = expectations(&document);
        let is_good = |expect: &Value| expect["parameters"].as_array().is_some_and(|sets| !sets.is_empty());
        let is_bad = |expect: &Value| expect.get("error").or(expect.get("because")).is_some();
        assert!(expected.iter().any(|expect| is_good(expect) && !is_bad(expect)), "{name} has no good day");
        assert!(expected.iter().any(is_bad), "{name} has no bad day");
    }
}
