//! One JSON document, read strictly: exactly one value, no key twice, no depth without end.
//!
//! `serde_json` alone keeps the last of two equal keys, which is how a repeated `output` key becomes
//! an empty answer; whoever wrote such a document did not mean it, so here it is an error.

pub mod yaml;

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value, map::Entry};

/// Parses exactly one JSON value.
///
/// # Errors
/// On blank input, anything after the value, a repeated key, more than 128 levels, a number out of
/// range. The text gives line and column.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    if bytes.trim_ascii().is_empty() {
        return Err("it is blank".to_owned());
    }
    serde_json::from_slice::<Strict>(bytes).map(|strict| strict.0).map_err(|error| error.to_string())
}

/// Parses exactly one JSON object into `T`, as strictly as [`parse`].
///
/// # Errors
/// When it is no such document, or not one of `T`'s.
pub fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    parse(bytes).and_then(read_object)
}

/// Reads an object into `T`. Serde alone would take a list too, for the fields in their order.
///
/// # Errors
/// When it is no object, or not one of `T`'s.
pub fn read_object<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    if !value.is_object() {
        return Err(format!("expected an object, found {}", kind_of(&value)));
    }
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// What a JSON value is, in a message: `an object`, `a string`.
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

/// The first characters of `bytes` for a message: one line, control characters replaced.
#[must_use]
pub fn excerpt(bytes: &[u8], most: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(most.saturating_mul(4))]);
    let mut shown: String = text.trim().chars().take(most).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() < text.trim().len() || bytes.len() > most.saturating_mul(4) {
        shown.push('…');
    }
    shown
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Strict)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            match map.entry(key) {
                Entry::Vacant(place) => _ = place.insert(entries.next_value::<Strict>()?.0),
                Entry::Occupied(first) => {
                    return Err(A::Error::custom(format!("the key `{}` stands twice", first.key().escape_debug())));
                }
            }
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_and_nothing_else() {
        assert_eq!(parse(b" {\"a\":[1,null,\"x\"]}\n").unwrap().to_string(), r#"{"a":[1,null,"x"]}"#);
        for (bad, says) in [
            (&b""[..], "blank"),
            (b" \n", "blank"),
            (b"{} {}", "trailing characters"),
            (br#"{"a":1,"a":2}"#, "the key `a` stands twice"),
            (br#"{"o":{"b":1,"b":[]}}"#, "the key `b` stands twice"),
            (b"NaN", "line 1 column"),
            (b"1e999", "out of range"),
            (br#"{"a":"#, "EOF"),
        ] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_number_stays_what_it_is() {
        for number in ["18607474370.955162", "0.1", "1.7976931348623157e308", "5e-324", "18446744073709551615"] {
            assert_eq!(parse(number.as_bytes()).unwrap().to_string(), number.replace("e308", "e+308"));
        }
    }

    #[test]
    fn an_object_is_no_list_of_its_fields() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Of {
            a: Option<bool>,
        }
        assert_eq!(parse_object(br#"{"a":true,"b":1}"#), Ok(Of { a: Some(true) }));
        for bad in ["[true]", "[null]", "[]", "null", "{} {}"] {
            assert!(parse_object::<Of>(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = "[".repeat(100_000);
        assert!(parse(deep.as_bytes()).unwrap_err().contains("recursion limit"));
    }

    #[test]
    fn an_excerpt_is_one_clean_line() {
        assert_eq!(excerpt(b"<html>\r\n\x1b[31mred", 80), "<html>   [31mred");
        assert_eq!(excerpt("äöüß".as_bytes(), 2), "äö…");
        assert_eq!(excerpt(b"ab", 2), "ab");
    }
}
