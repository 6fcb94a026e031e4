//! JSON values in structs that serde reads. Their numbers keep the text in which they were written; serde by itself
//! would rewrite them. For `#[serde(deserialize_with = "exact::read")]`, with JSON as text or as a [`Value`].

use std::sync::Arc;

use serde::{
    Serialize,
    de::{Deserialize, Deserializer, Error},
};
use serde_json::{Map, Value, value::RawValue};

use super::DocumentError;

/// Reads a field.
///
/// # Errors
/// When the value is of another kind.
pub fn read<'de, T: Exact, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::read(deserializer)
}

/// `value` as JSON.
///
/// # Errors
/// When a key is not a text.
pub fn to_value(value: &impl Serialize) -> Result<Value, DocumentError> {
    super::read_back(&serde_json::to_vec(value)?)
}

/// A value, or something that holds values.
pub trait Exact: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// When the value is of another kind.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

impl Exact for Value {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        super::read_back(raw.get().as_bytes()).map_err(D::Error::custom)
    }
}

impl Exact for Map<String, Value> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::read(deserializer)? {
            Value::Object(map) => Ok(map),
            // It fails, with serde's words.
            other => serde_json::from_value(other).map_err(D::Error::custom),
        }
    }
}

impl<T: Exact> Exact for Arc<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Self::new)
    }
}

impl<T: Exact> Exact for Option<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<One<T>>::deserialize(deserializer)?.map(|one| one.0))
    }
}

impl<T: Exact> Exact for Vec<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<One<T>>::deserialize(deserializer)?.into_iter().map(|one| one.0).collect())
    }
}

/// One of several: so serde reports the place of an error.
struct One<T>(T);

impl<'de, T: Exact> Deserialize<'de> for One<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Fields {
        #[serde(deserialize_with = "read")]
        one: Value,
        #[serde(default, deserialize_with = "read")]
        map: Arc<Map<String, Value>>,
        #[serde(default, deserialize_with = "read")]
        list: Option<Vec<Map<String, Value>>>,
    }

    const TEXT: &str = r#"{"one":7222e2,"map":{"a":1E5,"b":[1.10,0.00001,-0]},"list":[{"c":1e+06}]}"#;

    #[test]
    fn fields_keep_the_texts_of_their_numbers() {
        let value = crate::document::read_back(TEXT.as_bytes()).unwrap();
        let with_path: Fields = serde_path_to_error::deserialize(&value).unwrap();
        for fields in [serde_json::from_str(TEXT).unwrap(), serde_json::from_value(value).unwrap(), with_path] {
            let Fields { one, map, list } = fields;
            let list: Value = list.unwrap().into_iter().map(Value::Object).collect();
            let all = [("one", one), ("map", Value::Object((*map).clone())), ("list", list)];
            let all: Map<String, Value> = all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            assert_eq!(to_value(&all).unwrap().to_string(), TEXT);
            assert_eq!(Value::Object(all).to_string(), TEXT);
        }
    }

    #[test]
    fn an_error_has_its_place() {
        let wrong = serde_json::json!({"one": 1, "list": [{}, 7]});
        let error = serde_path_to_error::deserialize::<_, Fields>(&wrong).err().unwrap();
        assert_eq!(error.path().to_string(), "list[1]");
        assert!(error.inner().to_string().contains("expected a map"), "{error}");
        let none: Fields = serde_json::from_str(r#"{"one":null,"list":null}"#).unwrap();
        assert!(none.one.is_null() && none.list.is_none());
    }
}
