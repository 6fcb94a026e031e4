//! A KRM function (the KRM Functions Specification, v1): a `ResourceList` in, a `ResourceList` out.

use serde_json::{Map, Value, json};

use crate::{parameter_sets, script::environment};
use domain::{
    document::kind_of,
    error::BackendError,
    generator::{ParameterSet, Query},
    visible::one_line,
};

const API_VERSION: &str = "config.kubernetes.io/v1";
const KIND: &str = "ResourceList";

/// A `ResourceList` with the parameters as a `ConfigMap`, whose values are text. Null parameters are left out. Below `each` its one item is that
/// of the element.
pub(super) fn input(query: &Query) -> Value {
    let data: Map<String, Value> = query
        .parameters
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), environment::text(value)?.into_owned().into())))
        .collect();
    let mut list = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "functionConfig": { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "input" }, "data": data },
    });
    // `json!` would rewrite the numbers of items.
    let of_element = query.item().map(|item| Value::Array(vec![Value::clone(item)]));
    list["items"] = query.items.as_deref().cloned().or(of_element).unwrap_or(Value::Array(Vec::new()));
    list
}

/// The items of the one `ResourceList` in `documents`, unless its results hold an error.
pub(super) fn read(documents: Vec<Value>) -> Result<Vec<ParameterSet>, BackendError> {
    let invalid = |why: String| Err(BackendError::invalid_output(why));
    let [document] = <[Value; 1]>::try_from(documents)
        .map_err(|documents| BackendError::invalid_output(format!("{} documents, not one", documents.len())))?;
    let Value::Object(mut list) = document else {
        return invalid(format!("expected a {KIND}, found {}", kind_of(&document)));
    };
    for (key, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        match list.get(key) {
            Some(Value::String(found)) if found == expected => {}
            Some(found) => return invalid(format!("its {key} is {found}, not `{expected}`")),
            None => return invalid(format!("it has no {key}; it should be `{expected}`")),
        }
    }
    check_results(list.get("results"))?;
    let items = list.get_mut("items").map(Value::take);
    let Some(items) = items else {
        return invalid("it has no `items`; an empty list must be an explicit []".to_owned());
    };
    parameter_sets(items).map_err(|error| error.within("items"))
}

/// Checks that no result is an error, and that every severity is known.
fn check_results(results: Option<&Value>) -> Result<(), BackendError> {
    let results = match results {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(results)) => results,
        Some(other) => {
            return Err(BackendError::invalid_output(format!("results: expected a list, found {}", kind_of(other))));
        }
    };
    let mut errors = Vec::new();
    for (index, result) in results.iter().enumerate() {
        let severity = result.get("severity").unwrap_or(&Value::Null);
        match (severity.as_str(), result.is_object()) {
            (Some("error"), true) => errors.push(match result.get("message") {
                Some(Value::String(message)) => message.clone(),
                _ => format!("result {index} has no message"),
            }),
            (Some("warning" | "info"), true) => {}
            (None, true) if severity.is_null() => {}
            (_, true) => {
                let error = format!("results: the severity of result {index} is {severity}: error, warning or info");
                return Err(BackendError::invalid_output(error));
            }
            _ => return Err(BackendError::invalid_output(format!("results: result {index} is {}", kind_of(result)))),
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(BackendError::unavailable(format!("the function says: {}", one_line(&errors.join("; ")))))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::script::protocol::Protocol;
    use domain::{error::ErrorKind, secret::Secrets};

    #[tokio::test]
    async fn parameters_become_a_config_map() {
        let parameters =
            json!({"branch": "main", "n": 3, "on": true, "none": null, "list": ["a", 1], "map": {"a": null}});
        let parameters = Arc::new(parameters.as_object().unwrap().clone());
        let mut query = Query::new("set".into(), parameters, tokio::time::Instant::now());
        let document = input(&query);
        let data = json!({"branch": "main", "n": "3", "on": "true", "list": "[\"a\",1]", "map": "{\"a\":null}"});
        assert_eq!(document["functionConfig"]["data"], data);
        assert_eq!(document["items"], json!([]));
        query.items = Some(Arc::new(json!([{"kind": "A"}])));
        assert_eq!(input(&query)["items"], json!([{"kind": "A"}]));
    }

    #[test]
    fn only_a_whole_resource_list_without_errors_is_an_answer() {
        let read = |rest: &str| {
            let output = format!("apiVersion: config.kubernetes.io/v1\nkind: ResourceList\n{rest}");
            let reading = Protocol::Krm.read(output.as_bytes(), &Secrets::default());
            reading.map(|reading| reading.items.len()).map_err(|error| (error.kind, error.message))
        };
        assert_eq!(read("items: []"), Ok(0));
        assert_eq!(read("items:\n- {kind: A}\n- {kind: B}\nresults: null"), Ok(2));
        assert_eq!(read("items: [{}]\nresults: [{message: m, severity: warning}, {message: n}]"), Ok(1));
        for (rest, kind, says) in [
            ("", ErrorKind::InvalidOutput, "no `items`"),
            ("items:", ErrorKind::InvalidOutput, "items: expected a list of objects, found null"),
            ("items: {}", ErrorKind::InvalidOutput, "found an object"),
            ("items: [x]", ErrorKind::InvalidOutput, "items: item 0 is a string"),
            ("items: []\n---\nitems: [{}]", ErrorKind::InvalidOutput, "2 documents, not one"),
            ("items: []\nkind: List", ErrorKind::InvalidOutput, "stands twice"),
            ("items: []\nresults: {}", ErrorKind::InvalidOutput, "results: expected a list"),
            ("items: []\nresults: [x]", ErrorKind::InvalidOutput, "result 0 is a string"),
            ("items: []\nresults: [{severity: Error}]", ErrorKind::InvalidOutput, "severity of result 0 is \"Error\""),
            (
                "items: [{}]\nresults: [{message: a, severity: error}, {message: \"b\\nc\", severity: error}]",
                ErrorKind::Unavailable,
                "the function says: a; b c",
            ),
            ("items: [{}]\nresults: [{severity: error}]", ErrorKind::Unavailable, "result 0 has no message"),
        ] {
            let (found, message) = read(rest).unwrap_err();
            assert!(found == kind && message.contains(says), "{rest}: {message}");
        }
        for (output, says) in [
            ("", "blank"),
            ("[]", "expected a ResourceList, found a list"),
            ("kind: ResourceList\nitems: []", "it has no apiVersion"),
            ("apiVersion: config.kubernetes.io/v1\nkind: List\nitems: []", "its kind is \"List\""),
            (
                "{\"apiVersion\":\"config.kubernetes.io/v1beta1\",\"kind\":\"ResourceList\",\"items\":[]}",
                "its apiVersion",
            ),
        ] {
            let error = Protocol::Krm.read(output.as_bytes(), &Secrets::default()).unwrap_err().message;
            assert!(error.contains(says), "{output}: {error}");
        }
    }
}
