//! The fields of a YAML mapping, found without case, as Go's `encoding/json` finds them.

use serde_json::{Map, Value};
use serde_saphyr::{DuplicateKeyPolicy, options::MergeKeyPolicy};

use crate::grpc::message::ParameterAnnouncement;

/// Why a file's fields cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FieldsError {
    /// It is not YAML. The text has the line.
    #[error("{0}")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// A field has a wrong value.
    #[error("{path} {why}")]
    Mistake {
        /// The field.
        path: String,
        /// The end of the sentence.
        why: String,
    },
}

impl FieldsError {
    pub(super) fn mistake(path: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Mistake { path: path.into(), why: why.into() }
    }
}

/// The fields of a mapping, and which of them were looked for.
#[derive(Debug)]
pub(super) struct Fields {
    /// The mapping's place, such as `spec.discover`. Empty for the whole document.
    pub(super) path: String,
    left: Map<String, Value>,
    known: Vec<&'static str>,
    /// Values that mean something else than their author may think.
    pub(super) surprises: Vec<String>,
}

impl Fields {
    /// The fields of the first document in `text`.
    pub(super) fn parse(text: &str) -> Result<Self, FieldsError> {
        let options = serde_saphyr::options! {
            duplicate_keys: DuplicateKeyPolicy::LastWins,
            merge_keys: MergeKeyPolicy::Merge,
            with_snippet: false,
        };
        let document: Value =
            serde_saphyr::from_str_with_options(text, options).map_err(|error| FieldsError::Syntax(Box::new(error)))?;
        match document {
            Value::Object(left) => Ok(Self { path: String::new(), left, known: Vec::new(), surprises: Vec::new() }),
            _ => Err(FieldsError::mistake("the document", "must be a mapping")),
        }
    }

    /// The mapping `key`. Empty if it is not there.
    pub(super) fn fields(&mut self, key: &'static str) -> Result<Self, FieldsError> {
        let path = self.path_of(key);
        match self.take(key) {
            None | Some(Value::Null) => Ok(Self { path, left: Map::new(), known: Vec::new(), surprises: Vec::new() }),
            Some(Value::Object(left)) => Ok(Self { path, left, known: Vec::new(), surprises: Vec::new() }),
            Some(_) => Err(FieldsError::mistake(path, "must be a mapping")),
        }
    }

    /// The text `key`. Empty if it is not there.
    pub(super) fn text(&mut self, key: &'static str) -> Result<String, FieldsError> {
        let path = self.path_of(key);
        let Some(value) = self.take(key) else { return Ok(String::new()) };
        let is_number = value.is_number();
        let text = as_text(value, &path)?;
        if is_number {
            self.surprises.push(format!("{path} is a number, which Argo CD reads as `{text}`; write it in quotes"));
        }
        Ok(text)
    }

    /// The list of texts `key`. Empty if it is not there.
    pub(super) fn texts(&mut self, key: &'static str) -> Result<Vec<String>, FieldsError> {
        let path = self.path_of(key);
        match self.take(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                items.into_iter().enumerate().map(|(at, item)| as_text(item, &format!("{path}[{at}]"))).collect()
            }
            Some(_) => Err(FieldsError::mistake(path, "must be a list of texts, such as `[sh, -c, \"…\"]`")),
        }
    }

    /// The flag `key`. False if it is not there.
    pub(super) fn flag(&mut self, key: &'static str) -> Result<bool, FieldsError> {
        let path = self.path_of(key);
        match self.take(key) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(FieldsError::mistake(path, "must be true or false")),
        }
    }

    /// The announcements `key`. Empty if it is not there.
    pub(super) fn announcements(&mut self, key: &'static str) -> Result<Vec<ParameterAnnouncement>, FieldsError> {
        let path = self.path_of(key);
        let value = texts_within(self.take(key).unwrap_or_default());
        announcements(value)
            .map_err(|error| FieldsError::mistake(path, format!("is not a list of parameters: {error}")))
    }

    /// The field `key` may be there, and does not matter.
    pub(super) fn ignore(&mut self, key: &'static str) {
        self.take(key);
    }

    /// A warning for each field that Argo CD does not have.
    pub(super) fn unknown(&self) -> Vec<String> {
        let warning = |key: &String| {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let known = self.known.join(", ");
            format!("{path} is unknown and has no effect; known: {known}")
        };
        self.left.keys().map(warning).collect()
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        let found = self.left.keys().find(|name| name.eq_ignore_ascii_case(key))?.clone();
        self.left.shift_remove(&found)
    }
}

/// A text. A number becomes one as Kubernetes' YAML reader makes it: `1.10` is `1.1`.
fn as_text(value: Value, path: &str) -> Result<String, FieldsError> {
    match value {
        Value::String(text) => Ok(text),
        Value::Null => Ok(String::new()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => Ok(match number.as_i64() {
            Some(whole) => whole.to_string(),
            None => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        }),
        Value::Array(_) | Value::Object(_) => Err(FieldsError::mistake(path, "must be a text")),
    }
}

/// `value` with texts in place of numbers and flags, as Kubernetes' YAML reader makes them for fields that are texts. `required` is a flag.
fn texts_within(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(texts_within).collect()),
        Value::Object(fields) => {
            let within = |(key, value): (String, Value)| {
                let value = if key.eq_ignore_ascii_case("required") { value } else { texts_within(value) };
                (key, value)
            };
            Value::Object(fields.into_iter().map(within).collect())
        }
        Value::Number(_) | Value::Bool(_) => Value::String(as_text(value, "").unwrap_or_default()),
        Value::Null | Value::String(_) => value,
    }
}

/// Announcements of parameters, whose keys match without case. Null counts as an empty list, as in Go.
///
/// # Errors
/// When `value` is something else.
pub(crate) fn announcements(value: Value) -> serde_json::Result<Vec<ParameterAnnouncement>> {
    let lower = |item: Value| match item {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(key, value)| (key.to_ascii_lowercase(), value)).collect())
        }
        other => other,
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(items) => items.into_iter().map(|item| serde_json::from_value(lower(item))).collect(),
        other => serde_json::from_value(other),
    }
}
