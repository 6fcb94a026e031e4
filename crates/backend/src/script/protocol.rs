//! The formats of a program's stdin and stdout. In every format only an explicit empty list means "no items" (invariant I2).

pub(super) mod json;
mod krm;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::{getparams, parameter_sets};
use domain::{
    document::{self, kind_of, yaml},
    error::BackendError,
    generator::{ParameterSet, Query},
    secret::Secrets,
};

/// The format of a program's stdin and stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Protocol {
    /// The request as JSON on stdin. On stdout one JSON document: a list of objects, or Argo CD's own
    /// `{"output":{"parameters":[…]}}`.
    #[default]
    Json,
    /// The same on stdin. On stdout a JSON document in each line: an object, or a list of objects.
    JsonLines,
    /// The same on stdin. On stdout a stream of YAML documents: mappings, or lists of mappings.
    Yaml,
    /// A KRM function: a `ResourceList` (`config.kubernetes.io/v1`) on stdin and on stdout, whose `items` are the list.
    Krm,
}

/// The list that a program returned.
#[derive(Debug, PartialEq)]
pub struct Reading {
    /// The list, whole.
    pub items: Vec<ParameterSet>,
    /// How long the list is valid, if the program sets it.
    pub ttl: Option<Duration>,
}

impl From<Vec<ParameterSet>> for Reading {
    fn from(items: Vec<ParameterSet>) -> Self {
        Self { items, ttl: None }
    }
}

impl Protocol {
    /// The program's stdin.
    #[must_use]
    pub fn input(self, query: &Query) -> Vec<u8> {
        if self == Self::Krm {
            document::line(&krm::input(query))
        } else {
            document::line(&getparams::PluginRequest::of(query))
        }
    }

    /// Whether the program gets the name of the ApplicationSet.
    #[must_use]
    pub fn has_application_set(self) -> bool {
        self != Self::Krm
    }

    /// Whether a short text may take long to read, as with aliases in YAML.
    #[must_use]
    pub(crate) fn expands(self) -> bool {
        matches!(self, Self::Yaml | Self::Krm)
    }

    /// Whether the format marks its own end, so that a missing rest makes the output invalid.
    #[must_use]
    pub fn has_end(self) -> bool {
        self == Self::Json
    }

    /// Reads stdout. The error may quote stdout, and thereby secrets.
    ///
    /// # Errors
    /// When stdout is not a whole list.
    pub fn read(self, output: &[u8], secrets: &Secrets) -> Result<Reading, BackendError> {
        match self {
            Self::Json => json::read(one_json(output, secrets)?),
            Self::JsonLines => read_lines(output, secrets).map(Reading::from),
            Self::Yaml => read_yaml(output, secrets).map(Reading::from),
            Self::Krm => krm::read(documents(output, secrets)?).map(Reading::from),
        }
    }
}

/// An error that quotes the beginning of `output`.
fn unreadable(what: &str, error: &str, output: &[u8], secrets: &Secrets) -> BackendError {
    let shown = secrets.excerpt(output, 120);
    let shown = if shown.is_empty() { String::new() } else { format!(" (it begins with `{shown}`)") };
    BackendError::invalid_output(format!("{what}: {error}{shown}"))
}

fn one_json(output: &[u8], secrets: &Secrets) -> Result<Value, BackendError> {
    document::parse(output).map_err(|error| unreadable("not one JSON document", &error.to_string(), output, secrets))
}

/// The documents of a YAML stream, at least one.
fn documents(output: &[u8], secrets: &Secrets) -> Result<Vec<Value>, BackendError> {
    let documents = yaml::parse(output).map_err(|error| unreadable("not YAML", &error.to_string(), output, secrets))?;
    if documents.is_empty() {
        return Err(BackendError::invalid_output("it is blank; an empty list must be an explicit []"));
    }
    Ok(documents)
}

fn read_yaml(output: &[u8], secrets: &Secrets) -> Result<Vec<ParameterSet>, BackendError> {
    let mut items = Vec::new();
    for (index, document) in documents(output, secrets)?.into_iter().enumerate() {
        items.extend(one_or_many(document).map_err(|error| match index {
            // Plain text is YAML too, so show the text.
            0 => unreadable("document 1", &error.message, output, secrets),
            _ => error.within(format_args!("document {}", index + 1)),
        })?);
    }
    Ok(items)
}

fn read_lines(output: &[u8], secrets: &Secrets) -> Result<Vec<ParameterSet>, BackendError> {
    let lines = output.split(|byte| *byte == b'\n').enumerate();
    let mut lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty()).peekable();
    if lines.peek().is_none() {
        return Err(BackendError::invalid_output("it is blank; an empty list must be an explicit []"));
    }
    let mut items = Vec::new();
    for (index, line) in lines {
        let sets = document::parse(line)
            // serde counts lines within this one document. The message names the line of the output.
            .map_err(|error| error.to_string().replace(" at line 1 column ", " at column "))
            .map_err(|error| unreadable("not one JSON document", &error, line, secrets))
            .and_then(one_or_many);
        items.extend(sets.map_err(|error| error.within(format_args!("line {}", index + 1)))?);
    }
    Ok(items)
}

/// One parameter set, or a list of them.
fn one_or_many(document: Value) -> Result<Vec<ParameterSet>, BackendError> {
    match document {
        Value::Object(map) => Ok(vec![ParameterSet(map)]),
        Value::Array(_) => parameter_sets(document),
        other => Err(BackendError::invalid_output(format!(
            "expected an object or a list of objects, found {}",
            kind_of(&other)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(protocol: Protocol, output: &str) -> Result<String, String> {
        let reading = protocol.read(output.as_bytes(), &Secrets::default()).map_err(|error| error.message)?;
        Ok(Value::Array(reading.items.into_iter().map(|item| Value::Object(item.0)).collect()).to_string())
    }

    fn check(protocol: Protocol, whole: &[(&str, &str)], unknown: &[(&str, &str)]) {
        for (output, items) in whole {
            assert_eq!(read(protocol, output).as_deref(), Ok(*items), "{output}");
        }
        for (output, says) in unknown {
            let error = read(protocol, output).unwrap_err();
            assert!(error.contains(says), "{output}: {error}");
        }
    }

    #[test]
    fn lines_of_json() {
        let whole = [
            ("{\"a\":1}\n{\"a\":2}\n", r#"[{"a":1},{"a":2}]"#),
            ("\r\n{\"a\":1}\r\n\r\n[{\"a\":2},{}]", r#"[{"a":1},{"a":2},{}]"#),
            ("[]\n", "[]"),
            ("[]\n{}\n", "[{}]"),
        ];
        let unknown = [
            ("", "it is blank"),
            ("\r\n \n", "it is blank"),
            ("{}\n{\"a\":\n", "line 2: not one JSON document: EOF while parsing a value at column"),
            ("{}\n\n{\"a\":1,\"a\":2}\n", "line 3: not one JSON document: the key `a` stands twice at column"),
            ("{} {}\n", "line 1: not one JSON document: trailing characters"),
            (
                "[]\nno branches\n",
                "line 2: not one JSON document: expected ident at column 2 (it begins with `no branches`)",
            ),
            ("[\n{}\n]\n", "line 1"),
            ("[1]\n", "line 1: item 0 is a number"),
            ("{}\nnull\n", "line 2: expected an object or a list of objects, found null"),
        ];
        check(Protocol::JsonLines, &whole, &unknown);
    }

    #[test]
    fn a_stream_of_yaml() {
        let whole = [
            ("a: no\n---\n- {a: 2}\n- a: x\n---\n---\n", r#"[{"a":"no"},{"a":2},{"a":"x"}]"#),
            ("[]\n", "[]"),
            ("---\n[]\n---\n{}\n", "[{}]"),
            ("[{\"a\": \"x\"}]", r#"[{"a":"x"}]"#),
        ];
        let unknown = [
            ("", "it is blank"),
            ("---\n---\n# none\n", "it is blank"),
            ("null\n", "it is blank"),
            ("no branches\n", "found a string (it begins with `no branches`)"),
            ("{}\n---\n<html>\n", "document 2: expected an object or a list of objects, found a string"),
            ("{}\n---\n- 1\n", "document 2: item 0 is a number"),
            ("a: 1\na: 2\n", "the key `a` stands twice"),
            ("a: 010\n", "put it in quotes"),
            ("a: .inf\n", "non-finite"),
            ("a: [1\n", "not YAML"),
        ];
        check(Protocol::Yaml, &whole, &unknown);
    }
}
