//! Reads one JSON document strictly: exactly one value, no repeated keys, limited depth.
//!
//! `serde_json` by itself keeps the last of two equal keys. A repeated `output` key could so become an empty answer by mistake.
//! Here it is an error.

mod digits;
mod errors;
pub mod exact;
mod failure;
pub mod number;
mod scan;
pub mod strict;
pub mod yaml;
pub mod yaml_tree;

use std::borrow::Cow;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Number, Value};

pub use self::{
    errors::{has_content, is_error_key, reported_error},
    failure::DocumentError,
};
use super::visible::one_line;

/// The memory of one value without its content, in bytes. An estimate that all limits of documents share.
pub const NODE: usize = 64;

/// The most values in one document. At some 40 bytes each they take 20 MB, and a short document can have many values.
const MAX_VALUES: usize = 500_000;

/// A JSON value that borrows its texts from the input, unless they have escapes. Most of a document is only read and dropped.
/// The parts that stay become a [`Value`].
#[derive(Debug, Clone, PartialEq)]
pub enum Document<'a> {
    /// `null`
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, with the text in which it was written.
    Number(Number),
    /// A string.
    Text(Cow<'a, str>),
    /// A list.
    List(Vec<Self>),
    /// An object.
    Object(Object<'a>),
}

/// The keys and values of an object, in their order. Each key occurs once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object<'a>(Vec<(Cow<'a, str>, Document<'a>)>);

/// About how much memory `object` takes, in bytes. Lists and maps have room for up to twice as many values.
#[must_use]
pub fn memory_of(object: &Map<String, Value>) -> usize {
    let mut left = usize::MAX;
    let _ = Document::from(object).spend(&mut left);
    2 * (usize::MAX - left)
}

/// Reads exactly one JSON value.
///
/// # Errors
/// On blank input, anything after the value, a repeated key, more than 128 levels, more than 500,000 values, a number out of
/// range, or a whole number beyond 64 bits. The text has line and column.
pub fn read(bytes: &[u8]) -> Result<Document<'_>, DocumentError> {
    if bytes.trim_ascii().is_empty() {
        return Err(DocumentError::Blank);
    }
    // A value takes at least two bytes: itself, and a separator.
    if bytes.len() / 2 >= MAX_VALUES && scan::values(bytes) > MAX_VALUES {
        return Err(DocumentError::TooManyValues);
    }
    let document = strict::read(bytes)?;
    digits::too_long(bytes)
        .map_or(Ok(document), |number| Err(DocumentError::NumberTooLong(excerpt(number.as_bytes(), 60))))
}

/// Parses exactly one JSON value.
///
/// # Errors
/// Those of [`read`].
pub fn parse(bytes: &[u8]) -> Result<Value, DocumentError> {
    read(bytes).map(Value::from)
}

/// Parses JSON that the gateway wrote itself: without the limits for documents from outside.
///
/// # Errors
/// When it is not JSON.
pub fn read_back(bytes: &[u8]) -> Result<Value, DocumentError> {
    Ok(strict::read(bytes)?.into())
}

/// Parses exactly one JSON object into `T`, as strictly as [`parse`].
///
/// # Errors
/// When it is not such a document, or does not fit `T`.
pub fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DocumentError> {
    parse(bytes).and_then(read_object)
}

/// Reads an object into `T`. Serde by itself would also take a list, as the fields in their order.
///
/// # Errors
/// When it is not an object, or does not fit `T`.
pub fn read_object<T: DeserializeOwned>(value: Value) -> Result<T, DocumentError> {
    if !value.is_object() {
        return Err(DocumentError::NotAnObject(kind_of(&value)));
    }
    Ok(serde_json::from_value(value)?)
}

impl Document<'_> {
    /// The value of `key`, if this is an object that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        if let Self::Object(object) = self { object.get(key) } else { None }
    }

    /// The items, if this is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    /// The text, if this is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The kind of value for a message, in the words of [`kind_of`].
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// Subtracts the weight from `left`, in bytes: [`NODE`] for each value and key, and the lengths of texts. Returns whether
    /// `left` sufficed. Stops as soon as it does not.
    #[must_use]
    pub fn spend(&self, left: &mut usize) -> bool {
        let mut take = |bytes: usize| left.checked_sub(bytes).map(|remaining| *left = remaining).is_some();
        match self {
            Self::Null | Self::Bool(_) => take(NODE),
            Self::Number(number) => take(NODE + number.as_str().len()),
            Self::Text(text) => take(NODE + text.len()),
            Self::List(items) => take(NODE) && items.iter().all(|item| item.spend(left)),
            Self::Object(object) => {
                take(NODE)
                    && object.iter().all(|(key, value)| {
                        left.checked_sub(NODE + key.len()).map(|remaining| *left = remaining).is_some()
                            && value.spend(left)
                    })
            }
        }
    }

    /// A copy with the keys of every object in alphabetical order.
    #[must_use]
    pub fn to_sorted(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String((**text).to_owned()),
            Self::List(items) => items.iter().map(Self::to_sorted).collect(),
            Self::Object(object) => {
                let mut entries: Vec<_> = object.iter().collect();
                entries.sort_unstable_by_key(|(key, _)| *key);
                Value::Object(entries.into_iter().map(|(key, value)| (key.to_owned(), value.to_sorted())).collect())
            }
        }
    }
}

impl<'a> Object<'a> {
    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Document<'a>> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Removes the value of `key`. The order of the others is lost.
    pub fn take(&mut self, key: &str) -> Option<Document<'a>> {
        let index = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.swap_remove(index).1)
    }

    /// The keys and values.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Document<'a>)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }
}

/// The keys must be unique.
impl<'a> FromIterator<(Cow<'a, str>, Document<'a>)> for Object<'a> {
    fn from_iter<T: IntoIterator<Item = (Cow<'a, str>, Document<'a>)>>(entries: T) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl From<Object<'_>> for Map<String, Value> {
    fn from(object: Object<'_>) -> Self {
        object.0.into_iter().map(|(key, value)| (key.into_owned(), value.into())).collect()
    }
}

impl From<Document<'_>> for Value {
    fn from(document: Document<'_>) -> Self {
        match document {
            Document::Null => Self::Null,
            Document::Bool(value) => Self::Bool(value),
            Document::Number(number) => Self::Number(number),
            Document::Text(text) => Self::String(text.into_owned()),
            Document::List(items) => items.into_iter().map(Self::from).collect(),
            Document::Object(object) => Self::Object(object.into()),
        }
    }
}

impl<'a> From<&'a Value> for Document<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(map) => map.into(),
        }
    }
}

impl<'a> From<&'a Map<String, Value>> for Document<'a> {
    fn from(map: &'a Map<String, Value>) -> Self {
        Self::Object(Object(map.iter().map(|(key, value)| (Cow::Borrowed(&**key), value.into())).collect()))
    }
}

/// The kind of a JSON value, for a message: `an object`, `a string`.
#[must_use]
pub const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// `value` for a message that expects a list: its kind, and the first keys of an object, since the list is often below one of them.
#[must_use]
pub fn found(value: &Value) -> String {
    match value {
        Value::Object(object) if !object.is_empty() => format!("an object with {}", keys(object)),
        other => kind_of(other).to_owned(),
    }
}

/// The first keys of `object` for a message.
#[must_use]
pub fn keys(object: &Map<String, Value>) -> String {
    const MOST: usize = 5;
    let keys: Vec<String> = object.keys().take(MOST).map(|key| format!("`{}`", excerpt(key.as_bytes(), 40))).collect();
    keys.join(", ") + if object.len() > MOST { ", …" } else { "" }
}

/// `message` as JSON, with a newline at its end.
///
/// # Panics
/// When a key of `message` is not a text.
#[must_use]
pub fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = text(message);
    line.push('\n');
    line.into_bytes()
}

/// `message` as JSON.
///
/// # Panics
/// When a key of `message` is not a text.
#[must_use]
pub fn text(message: &impl Serialize) -> String {
    #[expect(clippy::expect_used, reason = "only keys that are not texts cannot be written")]
    serde_json::to_string(message).expect("a document")
}

/// The first characters of `bytes` for a message: one line, without control characters and other hidden ones.
#[must_use]
pub fn excerpt(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(max.saturating_mul(4))]);
    let text = text.trim();
    let mut shown = one_line(&text.chars().take(max).collect::<String>());
    if text.chars().nth(max).is_some() || bytes.len() > max.saturating_mul(4) {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_value_is_accepted() {
        assert_eq!(parse(b" {\"a\":[1,null,\"x\"]}\n").unwrap().to_string(), r#"{"a":[1,null,"x"]}"#);
        for (bad, says) in [
            (&b""[..], "blank"),
            (b" \n", "blank"),
            (b"{} {}", "trailing characters"),
            (br#"{"a":1,"a":2}"#, "the key `a` stands twice"),
            (br#"{"o":{"b":1,"b":[]}}"#, "the key `b` stands twice"),
            (b"NaN", "line 1 column"),
            (b"1e999", "out of range"),
            (br#"{"a":18446744073709551616}"#, "the number 18446744073709551616 is too long"),
            (br#"{"a":"#, "EOF"),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn an_object_in_place_of_a_list_is_shown_by_its_keys() {
        let shown = |text: &str| found(&parse(text.as_bytes()).unwrap());
        assert_eq!(shown(r#"{"items":[],"total":0}"#), "an object with `items`, `total`");
        assert_eq!(shown(r#"{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}"#), "an object with `a`, `b`, `c`, `d`, `e`, …");
        assert_eq!((shown("{}"), shown("7")), ("an object".to_owned(), "a number".to_owned()));
        let long = format!(r#"{{"{}":1}}"#, "k\\n".repeat(500));
        assert!(shown(&long).len() < 80 && !shown(&long).contains('\n'), "{}", shown(&long));
    }

    #[test]
    fn numbers_are_not_changed() {
        for number in ["18607474370.955162", "0.1", "1.7976931348623157e308", "5e-324", "18446744073709551615"] {
            assert_eq!(parse(number.as_bytes()).unwrap().to_string(), number);
        }
    }

    #[test]
    fn a_list_is_not_read_as_the_fields_of_an_object() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Fields {
            a: Option<bool>,
        }
        assert_eq!(parse_object::<Fields>(br#"{"a":true,"b":1}"#).unwrap(), Fields { a: Some(true) });
        for bad in ["[true]", "[null]", "[]", "null", "{} {}"] {
            assert!(parse_object::<Fields>(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_number_of_values_is_limited() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 2));
        assert!(read(list(MAX_VALUES).as_bytes()).is_ok());
        let error = read(list(MAX_VALUES + 1).as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "it holds more than 500000 values");
        let text = format!("[\"{}\"]", ",".repeat(2 * MAX_VALUES));
        assert!(read(text.as_bytes()).is_ok());
    }

    #[test]
    fn the_depth_is_limited() {
        let deep = "[".repeat(100_000);
        let error = parse(deep.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("recursion limit"));
        assert!(std::error::Error::source(&error).is_some_and(<dyn std::error::Error>::is::<serde_json::Error>));
    }

    #[test]
    fn an_excerpt_is_one_clean_line() {
        assert_eq!(excerpt(b"<html>\r\n\x1b[31mred", 80), "<html>   [31mred");
        assert_eq!(excerpt("äöüß".as_bytes(), 2), "äö…");
        assert_eq!(excerpt(b"ab", 2), "ab");
        assert_eq!(excerpt("a\u{202e}b\u{2028}c".as_bytes(), 80), r"a\u{202e}b\u{2028}c");
        assert_eq!(excerpt("a\u{9b}b \n".as_bytes(), 80), "a b", "nothing is missing");
    }
}
