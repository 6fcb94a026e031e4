//! Walks through JSON with the name of each value.

use serde_json::{Map, Value};

/// Keys that do not describe their value: the key above does.
const PLAIN_KEYS: [&str; 4] = ["content", "data", "text", "value"];

/// `value` under `name`, with each key and each value that is not a list or object changed by `change`. A key is changed as a text without
/// a name.
pub fn each(value: Value, name: &str, change: &impl Fn(&str, Value) -> Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| each(item, name, change)).collect(),
        Value::Object(fields) => {
            let name = name_of(&fields).unwrap_or(name).to_owned();
            let fields = fields.into_iter().map(|(key, value)| {
                let value = each(value, name_within(&name, &key), change);
                match change("", Value::String(key)) {
                    Value::String(key) => (key, value),
                    other => (other.to_string(), value),
                }
            });
            Value::Object(fields.collect())
        }
        other => change(name, other),
    }
}

/// The name of the value under `key` in an object under `name`.
pub fn name_within<'a>(name: &'a str, key: &'a str) -> &'a str {
    if PLAIN_KEYS.contains(&key) { name } else { key }
}

/// The name that an object has in itself, as in `{"name": "TOKEN", "value": "…"}`.
pub fn name_of(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("value")?;
    fields.get("name").or_else(|| fields.get("key"))?.as_str()
}
