//! Argo CD's plugin protocol, for backends that speak it: writes the request, and reads the answer strictly.
//!
//! Argo CD itself reads the first JSON value of any 2xx. If something is missing in it, Argo CD assumes an empty list, and
//! deletes Applications. Here only an explicit `output.parameters` is an answer.

use serde::Serialize;
use serde_json::{Map, Value};

use super::parameter_sets;
use domain::{
    document::{self, kind_of},
    error::BackendError,
    generator::{ParameterSet, Parameters, Query},
    visible::one_line,
};

/// The body of the request, as Argo CD sent it. In a later step of a pipeline it also holds the items of the previous step,
/// and below `each` the item.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginRequest<'a> {
    application_set_name: &'a str,
    input: Input<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    item: Option<&'a Value>,
}

#[derive(Debug, Serialize)]
struct Input<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<&'a Parameters>,
}

impl<'a> PluginRequest<'a> {
    /// The request for `query`.
    #[must_use]
    pub fn of(query: &'a Query) -> Self {
        Self {
            application_set_name: &query.application_set,
            input: Input { parameters: Some(&query.parameters) },
            items: query.items.as_deref(),
            item: query.item().map(|item| &**item),
        }
    }

    /// The same request without empty `parameters`. Argo CD leaves them out too.
    #[must_use]
    pub(crate) fn without_empty_parameters(mut self) -> Self {
        self.input.parameters = self.input.parameters.filter(|parameters| !parameters.is_empty());
        self
    }
}

/// The parameter sets in the body of an answer. `excerpt` gives the beginning of the body, without secrets, for an error.
///
/// # Errors
/// When there is no explicit list. The text warns if Argo CD would have read an empty list.
pub fn read(body: &[u8], excerpt: impl FnOnce() -> String) -> Result<Vec<ParameterSet>, BackendError> {
    if body.trim_ascii().is_empty() {
        return Err(no_list("the body is blank"));
    }
    let document = document::parse(body).map_err(|error| {
        BackendError::invalid_output(format!("not one JSON document: {error} (it begins with `{}`)", excerpt()))
    })?;
    let Value::Object(mut answer) = document else {
        let found = kind_of(&document);
        let error = format!("expected an object with `output.parameters`, found {found}");
        return Err(if document.is_null() { no_list(&error) } else { BackendError::invalid_output(error) });
    };
    refuse_error(&answer)?;
    let Some(output) = take(&mut answer, "output")? else {
        let is_above = answer.keys().any(|key| key.eq_ignore_ascii_case("parameters"));
        return Err(no_list(if is_above {
            "`parameters` stands at the top, and belongs under `output`"
        } else {
            "it has no `output`"
        }));
    };
    let Value::Object(mut output) = output else {
        return Err(no_list(&format!("`output` is {}, not an object with `parameters`", kind_of(&output))));
    };
    match take(&mut output, "parameters")? {
        None => Err(no_list("`output` has no `parameters`")),
        Some(Value::Null) => Err(no_list("`output.parameters` is null")),
        Some(list) => parameter_sets(list).map_err(|error| error.within("output.parameters")),
    }
}

/// Refuses an answer that reports an error under a key such as `error` or `Error`, whatever else the answer holds.
///
/// # Errors
/// When there is such a key. The error quotes its value.
pub(crate) fn refuse_error(answer: &Map<String, Value>) -> Result<(), BackendError> {
    let found = answer.iter().find(|(key, value)| document::is_error_key(key) && has_content(value));
    let Some((key, value)) = found else { return Ok(()) };
    Err(BackendError::invalid_output(one_line(&format!("it holds `{key}`: {value}"))))
}

/// Whether `value`, the value of an `error` key, reports an error. A blank value does not, since some plugins always write the key.
#[must_use]
pub fn has_content(value: &Value) -> bool {
    document::has_content(&value.into())
}

/// Whether `key` is `name` for Go's JSON decoder, which ignores case. Go uses Unicode's case folding, so the long s (`ſ`) equals
/// an `s`.
#[must_use]
pub fn is_named(key: &str, name: &str) -> bool {
    key.replace('ſ', "s").eq_ignore_ascii_case(name)
}

/// Removes and returns the value that Go's decoder would find under `name`.
///
/// # Errors
/// When two keys equal `name` for Go's decoder. Argo CD would use the last one.
pub fn take(map: &mut Map<String, Value>, name: &str) -> Result<Option<Value>, BackendError> {
    let found: Vec<String> = map.keys().filter(|key| is_named(key, name)).cloned().collect();
    match found.as_slice() {
        [] => Ok(None),
        [key] => Ok(map.remove(key)),
        [one, other, ..] => Err(BackendError::invalid_output(format!("`{one}` and `{other}` are one key to Argo CD"))),
    }
}

fn no_list(what: &str) -> BackendError {
    BackendError::invalid_output(format!(
        "{what}: Argo CD would take that for an empty list; nothing to say is an explicit {{\"output\": {{\"parameters\": []}}}}"
    ))
}

#[cfg(test)]
mod tests {
    fn read(body: &str) -> Result<usize, String> {
        super::read(body.as_bytes(), || "…".to_owned()).map(|sets| sets.len()).map_err(|error| error.message)
    }

    #[test]
    fn explicit_lists() {
        for (body, count) in [
            (r#"{"output":{"parameters":[]}}"#, 0),
            (r#"{"output":{"parameters":[{"a":1},{}]}}"#, 2),
            (r#" {"Output":{"PARAMETERS":[{}]},"error":null,"errors":[]} "#, 1),
            (r#"{"output":{"parameters":[{}],"more":1},"version":2}"#, 1),
        ] {
            assert_eq!(read(body), Ok(count), "{body}");
        }
    }

    #[test]
    fn what_argo_cd_would_take_for_an_empty_list() {
        for (body, says) in [
            ("", "the body is blank"),
            (" \r\n\t", "the body is blank"),
            ("null", "found null"),
            ("{}", "it has no `output`"),
            (r#"{"outputs":{"parameters":[{}]}}"#, "it has no `output`"),
            (r#"{"output":null}"#, "`output` is null"),
            (r#"{"output":{}}"#, "`output` has no `parameters`"),
            (r#"{"output":{"parameters":null}}"#, "`output.parameters` is null"),
            (r#"{"output":{"parameter":[{}]}}"#, "`output` has no `parameters`"),
            (r#"{"parameters":[{"a":1}]}"#, "`parameters` stands at the top"),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.contains(says) && error.contains("an empty list"), "{body}: {error}");
        }
    }

    #[test]
    fn what_is_no_answer() {
        for (body, says) in [
            (r#"{} {"output":{"parameters":[{}]}}"#, "trailing"),
            (r#"{"output":{"parameters":[{}]},"output":{"parameters":[]}}"#, "`output` stands twice"),
            (r#"{"output":{"parameters":[{}]},"Output":{"parameters":[]}}"#, "are one key to Argo CD"),
            (r#"{"output":{"parameters":[{}],"Parameters":[]}}"#, "are one key to Argo CD"),
            (r#"{"output":{"parameters":[{}],"parameterſ":[]}}"#, "are one key to Argo CD"),
            ("[]", "found a list"),
            ("\"[]\"", "found a string"),
            (r#"{"output":{"parameters":[null]}}"#, "output.parameters: item 0 is null"),
            (r#"{"output":{"parameters":{}}}"#, "output.parameters: "),
            (r#"{"output":{"parameters":[]},"error":"down"}"#, "it holds `error`: \"down\""),
            ("{\"error\":\"a\u{7f}\u{9b}b\"}", "it holds `error`: \"a  b\""),
            (r#"{"Error":"down","Output":{"Parameters":[]}}"#, "it holds `Error`: \"down\""),
            (r#"{"output":{"parameters":[{"a":1}"#, "not one JSON document"),
            ("<html>", "not one JSON document"),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.contains(says), "{body}: {error}");
        }
    }
}
