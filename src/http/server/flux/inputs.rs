//! Parameter sets as Flux's inputs: each has an `id` of its own, by which the templates of a `ResourceSet` name their objects.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use domain::generator::ParameterSet;
use engine::guard::Identity;
use lang::label::{MAX_CHARS, hashed, is_label};

/// flux-operator refuses a longer body.
const MAX_BODY: usize = 900 * 1024;

/// Why an answer has no form for Flux.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    #[error(
        "parameter set {0}: Flux needs an `id` for each input; name the keys that identify it in `guard.identity`, or give `output` an `id`"
    )]
    NoId(usize),
    #[error("two parameter sets have the id `{0}`, and Flux accepts each id once; name more keys in `guard.identity`")]
    Twice(String),
    #[error(
        "the answer has {count} inputs, and Flux drops all after the first {limit}: set `spec.filter.limit` of the ResourceSetInputProvider to a higher number, and repeat it in its URL as `?flux.limit=<number>`"
    )]
    TooMany { count: usize, limit: usize },
    #[error(
        "the answer has {0} bytes in Flux's form, and Flux reads at most {MAX_BODY}; select fewer keys in `output`"
    )]
    TooLong(usize),
}

/// The body for Flux.
///
/// # Errors
/// When Flux would refuse it, or would drop some of it without an error.
pub(super) fn body(sets: &[ParameterSet], identity: &Identity, limit: usize) -> Result<Bytes, Unfit> {
    if sets.len() > limit {
        return Err(Unfit::TooMany { count: sets.len(), limit });
    }
    let mut ids = HashSet::new();
    let mut inputs = Vec::with_capacity(sets.len());
    for (index, set) in sets.iter().enumerate() {
        let id = id(&set.0, identity).ok_or(Unfit::NoId(index))?;
        if !ids.insert(id.clone()) {
            return Err(Unfit::Twice(id));
        }
        let mut input = Map::from_iter([("id".to_owned(), Value::String(id))]);
        input.extend(set.0.iter().filter(|(key, _)| *key != "id").map(|(key, value)| (key.clone(), value.clone())));
        inputs.push(Value::Object(input));
    }
    let body = json!({ "inputs": inputs }).to_string();
    if body.len() > MAX_BODY { Err(Unfit::TooLong(body.len())) } else { Ok(body.into()) }
}

/// The id of `set`: its own, or else one of the values of the configured keys. Not by keys that the guard picks itself: another answer may have
/// others, and with other ids Flux would make everything anew.
fn id(set: &Map<String, Value>, identity: &Identity) -> Option<String> {
    if let Some(own) = set.get("id") {
        return text(own).filter(|own| !own.is_empty());
    }
    let Identity::Keys(keys) = identity else { return None };
    let values: Vec<String> = keys.iter().map(|key| set.get(key).and_then(text)).collect::<Option<_>>()?;
    match &*values {
        [] => None,
        [one] if is_label(one) => Some(one.clone()),
        // `feature/login` and `Feature-Login` differ by their hashes.
        _ => Some(hashed(&values.join("-"), &joined(&values), MAX_CHARS)),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// The identities of others are never joined to the same text: each value has its length before it.
fn joined(values: &[String]) -> Vec<u8> {
    let with_length = values.iter().map(|value| [&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat());
    with_length.collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Identity {
        Identity::Keys(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn of(sets: &Value, identity: &Identity, limit: usize) -> Result<Value, Unfit> {
        let sets: Vec<_> =
            sets.as_array().unwrap().iter().map(|set| ParameterSet(set.as_object().unwrap().clone())).collect();
        body(&sets, identity, limit).map(|body| serde_json::from_slice(&body).unwrap())
    }

    fn ids(sets: &Value, identity: &Identity) -> Vec<String> {
        let body = of(sets, identity, 100).unwrap();
        body["inputs"].as_array().unwrap().iter().map(|input| input["id"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn an_id_is_the_identity_or_the_own_one() {
        let sets = json!([{"number": 7, "tag": "a"}, {"number": "8", "tag": "b"}]);
        assert_eq!(ids(&sets, &keys(&["number"])), ["7", "8"]);
        assert_eq!(ids(&json!([{"id": 7, "number": 1}, {"id": "x", "number": 2}]), &keys(&["number"])), ["7", "x"]);
        assert_eq!(of(&sets, &Identity::Auto, 100), Err(Unfit::NoId(0)));
        assert_eq!(of(&sets, &keys(&[]), 100), Err(Unfit::NoId(0)));
        assert_eq!(of(&json!([{"number": 1}, {"tag": "a"}]), &keys(&["number"]), 100), Err(Unfit::NoId(1)));
        assert_eq!(of(&json!([{"id": ""}]), &Identity::Auto, 100), Err(Unfit::NoId(0)));
        assert_eq!(of(&json!([]), &Identity::Auto, 100), Ok(json!({"inputs": []})));
    }

    #[test]
    fn other_identities_become_labels_that_differ() {
        let branches = ["feature/login", "Feature-Login", "feature-login", "ß", "-a", &"a".repeat(64)];
        let sets: Value = branches.iter().map(|branch| json!({"branch": branch})).collect();
        let made = ids(&sets, &keys(&["branch"]));
        assert_eq!(made[2], "feature-login");
        assert!(made.iter().all(|id| is_label(id)), "{made:?}");
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), branches.len());
        // No two pairs of values are joined to one id.
        let pairs = json!([{"a": "x-y", "b": "z"}, {"a": "x", "b": "y-z"}]);
        let made = ids(&pairs, &keys(&["a", "b"]));
        assert!(made.iter().all(|id| id.starts_with("x-y-z-")) && made[0] != made[1], "{made:?}");
    }

    #[test]
    fn what_flux_would_refuse_or_cut_is_an_error() {
        let sets = json!([{"n": 1}, {"n": 2}, {"n": 3}]);
        assert_eq!(of(&sets, &keys(&["n"]), 2), Err(Unfit::TooMany { count: 3, limit: 2 }));
        assert!(of(&sets, &keys(&["n"]), 3).is_ok());
        assert_eq!(of(&json!([{"id": 1}, {"id": "1"}]), &Identity::Auto, 9), Err(Unfit::Twice("1".to_owned())));
        let long = json!([{"id": "1", "text": "a".repeat(MAX_BODY)}]);
        assert_eq!(of(&long, &Identity::Auto, 9), Err(Unfit::TooLong(MAX_BODY + 33)));
    }
}
