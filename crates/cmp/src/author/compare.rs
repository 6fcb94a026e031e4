//! What two servers give differently for one folder.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    grpc::{message::RepositoryResponse, status::Status},
    guard::resources::{documents, identity},
};

/// How many differences of one resource are shown.
const SHOWN: usize = 20;
/// The longest shown value, in bytes.
const LONGEST: usize = 100;

/// A difference of verdicts, if there is one.
pub(super) fn verdicts(own: RepositoryResponse, theirs: Result<RepositoryResponse, Status>) -> Option<String> {
    let shown = |is_supported| if is_supported { "this folder" } else { "not this folder" };
    let own = shown(own.is_supported);
    let theirs = theirs.map_or_else(|error| format!("an error: {error}"), |one| shown(one.is_supported).to_owned());
    (own != theirs).then(|| format!("discovery: {own} here, {theirs} there"))
}

/// Differences of manifests: a line for each resource or value. Order, comments and the dialect of YAML do not matter.
pub(super) fn manifests(own: Result<Vec<String>, Status>, theirs: Result<Vec<String>, Status>) -> Vec<String> {
    match (own, theirs) {
        (Ok(own), Ok(theirs)) => match (resources(&own), resources(&theirs)) {
            (Ok(own), Ok(theirs)) => of_resources(&own, &theirs),
            _ if own == theirs => Vec::new(),
            (Err(error), _) | (_, Err(error)) => {
                vec![format!("the texts differ, and are not compared further: {error}")]
            }
        },
        (Err(_), Err(_)) => Vec::new(),
        (Ok(_), Err(error)) => vec![format!("manifests here, an error there: {error}")],
        (Err(error), Ok(_)) => vec![format!("an error here, manifests there: {error}")],
    }
}

type Resources = BTreeMap<String, Value>;

fn resources(manifests: &[String]) -> Result<Resources, serde_saphyr::Error> {
    let mut left = documents::<Value>(manifests)?;
    left.reverse();
    let mut found = Resources::new();
    while let Some(mut document) = left.pop() {
        let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
        if let (true, Some(items)) = (is_list, document.get_mut("items").and_then(Value::as_array_mut)) {
            left.extend(std::mem::take(items).into_iter().rev());
            continue;
        }
        let (group, name) = identity(&document["apiVersion"], &document["kind"], &document["metadata"]);
        let mut key = format!("{group}: {name}");
        while found.contains_key(&key) {
            key.push_str(" (again)");
        }
        found.insert(key, document);
    }
    Ok(found)
}

fn of_resources(own: &Resources, theirs: &Resources) -> Vec<String> {
    let mut lines = Vec::new();
    for key in own.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
        match (own.get(key), theirs.get(key)) {
            (Some(_), None) => lines.push(format!("{key}: only here")),
            (None, Some(_)) => lines.push(format!("{key}: only there")),
            (Some(own), Some(theirs)) => {
                let mut differences = Vec::new();
                of_values("", own, theirs, &mut differences);
                let more = differences.len().saturating_sub(SHOWN);
                lines.extend(differences.into_iter().take(SHOWN).map(|line| format!("{key}: {line}")));
                if more > 0 {
                    lines.push(format!("{key}: {more} more differences"));
                }
            }
            (None, None) => {}
        }
    }
    lines
}

fn of_values(path: &str, own: &Value, theirs: &Value, differences: &mut Vec<String>) {
    match (own, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let value = |map: &serde_json::Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                of_values(&format!("{path}.{key}"), &value(a), &value(b), differences);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                of_values(&format!("{path}[{at}]"), a, b, differences);
            }
        }
        _ if own == theirs => {}
        _ => differences.push(format!("{path} is {} here, {} there", shown(own), shown(theirs))),
    }
}

fn shown(value: &Value) -> String {
    domain::document::excerpt(value.to_string().as_bytes(), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(own: &str, theirs: &str) -> Vec<String> {
        manifests(Ok(vec![own.to_owned()]), Ok(vec![theirs.to_owned()]))
    }

    #[test]
    fn differences_are_named_by_resource_and_path() {
        let one = "kind: A\nmetadata: {name: x}\nspec: {a: [1, {b: c}]}\n";
        let json = r#"{"metadata":{"name":"x"},"kind":"A","spec":{"a":[1,{"b":"c"}]}}"#;
        assert_eq!(of(one, &format!("# x\n---\n{json}\n")), Vec::<String>::new());
        let list = format!("kind: List\nitems:\n- {json}\n---\n{one}");
        assert_eq!(of(one, &list), ["A: x (again): only there"]);
        let other = one.replace("b: c", "b: d");
        assert_eq!(of(one, &other), [r#"A: x: .spec.a[1].b is "c" here, "d" there"#]);
        let without = "kind: A\nmetadata: {name: x}\n";
        assert_eq!(of(one, without), [r#"A: x: .spec is {"a":[1,{"b":"c"}]} here, null there"#]);
        assert_eq!(of(one, ""), ["A: x: only here"]);
        let many: Vec<String> = (0..99).map(|at| format!("k{at}: 1\n")).collect();
        let lines = of(&format!("kind: A\n{}", many.join("")), "kind: A\n");
        assert_eq!((lines.len(), lines[SHOWN].as_str()), (SHOWN + 1, "A: *: 79 more differences"));
        assert_eq!(of("a: [", "a: ["), Vec::<String>::new());
        assert!(of("a: [", one)[0].contains("not compared further"));
    }

    #[test]
    fn errors_are_differences_unless_both_fail() {
        let failed = || Err(Status::unknown("no"));
        assert_eq!(manifests(failed(), failed()), Vec::<String>::new());
        assert_eq!(manifests(failed(), Ok(Vec::new())), ["an error here, manifests there: no"]);
        assert_eq!(manifests(Ok(Vec::new()), failed()), ["manifests here, an error there: no"]);
        let verdict = |is_supported| RepositoryResponse { is_supported, is_discovery_enabled: true };
        assert_eq!(verdicts(verdict(true), Ok(verdict(true))), None);
        let line = verdicts(verdict(true), Ok(verdict(false))).unwrap();
        assert_eq!(line, "discovery: this folder here, not this folder there");
        assert!(verdicts(verdict(false), Err(Status::unknown("no"))).is_some());
    }
}
