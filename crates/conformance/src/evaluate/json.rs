//! JSON as Go's `encoding/json` reads it.

use serde_json::Value;

use super::http::CUT;

/// JSON's white space.
pub(super) const BLANK: [char; 4] = [' ', '\t', '\r', '\n'];

/// The first JSON value of a text that does not start with white space, and the rest.
pub(super) fn first_value(text: &str) -> Result<(Value, &str), String> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter();
    let value = stream.next().ok_or(CUT)?.map_err(|error| error.to_string())?;
    if is_beyond_float(&value) {
        return Err("number out of range".to_owned());
    }
    Ok((value, &text[stream.byte_offset()..]))
}

/// Whether it holds a number that no float64 can be.
fn is_beyond_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_none(),
        Value::Array(items) => items.iter().any(is_beyond_float),
        Value::Object(members) => members.values().any(is_beyond_float),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Each member called `name` in the JSON object at the start of a text, and the text from there on. (A `Value` keeps only the
/// last of repeated members.)
pub(super) fn members<'a>(mut text: &'a str, name: &str) -> Vec<(Value, &'a str)> {
    let skip = |text: &'a str, mark: [char; 2]| text.trim_start_matches(BLANK).trim_start_matches(mark).trim_start();
    let mut found = Vec::new();
    while let Ok((Value::String(key), after)) = first_value(skip(text, ['{', ','])) {
        let start = skip(after, [':', ':']);
        let Ok((value, after)) = first_value(start) else { break };
        if folds(&key, name) {
            found.push((value, start));
        }
        text = after;
    }
    found
}

/// Go folds case as Unicode does, where the long s is an `s`.
pub(super) fn folds(key: &str, name: &str) -> bool {
    key.replace('ſ', "s").eq_ignore_ascii_case(name)
}

/// A value as Go decodes it into an `any`: every number is a float64.
pub(super) fn float64(value: Value) -> Value {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            let exact = float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0;
            let whole = format!("{float}").parse::<i64>().ok().filter(|_| exact);
            whole.map_or(float.into(), Value::from)
        }
        Value::Array(items) => items.into_iter().map(float64).collect(),
        Value::Object(members) => members.into_iter().map(|(key, value)| (key, float64(value))).collect(),
        other => other,
    }
}
