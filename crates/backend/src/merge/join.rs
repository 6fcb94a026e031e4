//! Joins several lists of items into one, by the values of keys.

use std::collections::HashMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Number, Value};

use domain::{
    document::kind_of,
    generator::{ParameterSet, Parameters},
};

/// Which items the joined list has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Join {
    /// The items of the first backend, as in Argo CD's merge generator.
    #[default]
    Left,
    /// The items that all backends have.
    Inner,
    /// The items that any backend has.
    Outer,
}

impl Join {
    /// The name in the configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Inner => "inner",
            Self::Outer => "outer",
        }
    }
}

/// Why an item has no key.
#[derive(Debug, thiserror::Error)]
enum KeyError {
    /// The value of a key is of a type that no key has.
    #[error("the key `{name}` is {kind}, which no other equals")]
    Type {
        /// The name of the key.
        name: String,
        /// The type.
        kind: &'static str,
    },
    /// It lacks the key of this name.
    #[error("the key `{0}` is missing")]
    Missing(String),
}

/// The values of an item's keys, as texts. Argo CD also receives numbers as text.
type Key = Vec<String>;

/// Joins `lists` by `keys`. Items keep the order of the first list; further items follow in the order of the other lists.
///
/// # Errors
/// When an item lacks a key, or two items of one list have the same keys. The error is the index of the list, and the reason.
pub fn join(lists: Vec<Vec<ParameterSet>>, keys: &[String], join: Join) -> Result<Vec<ParameterSet>, (usize, String)> {
    let count = lists.len();
    let mut joined: IndexMap<Key, (Parameters, usize)> = IndexMap::new();
    for (number, list) in lists.into_iter().enumerate() {
        let mut seen: HashMap<Key, usize> = HashMap::with_capacity(list.len());
        for (index, ParameterSet(set)) in list.into_iter().enumerate() {
            let key = key(&set, keys).map_err(|why| (number, format!("item {index}: {why}")))?;
            if let Some(other) = seen.insert(key.clone(), index) {
                let named: Vec<String> =
                    keys.iter().zip(&key).map(|(name, value)| format!("{name}: {}", short(value))).collect();
                return Err((number, format!("items {other} and {index} have the same key, {}", named.join(", "))));
            }
            match joined.get_mut(&key) {
                Some((base, found)) => {
                    merge(base, set);
                    *found += 1;
                }
                None if number == 0 || join == Join::Outer => _ = joined.insert(key, (set, 1)),
                None => {}
            }
        }
    }
    let stays = |found: usize| join != Join::Inner || found == count;
    Ok(joined.into_values().filter(|(_, found)| stays(*found)).map(|(set, _)| ParameterSet(set)).collect())
}

fn key(set: &Parameters, keys: &[String]) -> Result<Key, KeyError> {
    let value = |name: &String| match find(set, name) {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(as_text(number)),
        Some(Value::Bool(value)) => Ok(value.to_string()),
        Some(other) => Err(KeyError::Type { name: name.clone(), kind: kind_of(other) }),
        None => Err(KeyError::Missing(name.clone())),
    };
    keys.iter().map(value).collect()
}

/// A number as text, which is how Argo CD gets it: `1.10` is the text `"1.10"`, and not `1.1`. Equal whole numbers have the same text: `7`, `7.0` and
/// `"7"` are equal.
fn as_text(number: &Number) -> String {
    match number.as_f64() {
        // Whole numbers that a float holds exactly. `+ 0.0` turns `-0.0` into `0.0`.
        Some(value) if (number.is_f64() || number.as_str() == "-0") && value.fract() == 0.0 && value.abs() < 1e15 => {
            format!("{:.0}", value + 0.0)
        }
        _ => number.to_string(),
    }
}

/// The value at `name`: that of the key with this name, else that of the path along the dots.
fn find<'a>(set: &'a Parameters, name: &str) -> Option<&'a Value> {
    set.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        find(set.get(first)?.as_object()?, rest)
    })
}

/// Writes `over` into `base`, key by key. Values in `over` replace those in `base`; objects are merged.
fn merge(base: &mut Parameters, over: Parameters) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(Value::Object(base)), Value::Object(over)) => merge(base, over),
            (_, value) => _ = base.insert(key, value),
        }
    }
}

/// The first 80 characters of a value, for a message.
fn short(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};
    use serde_json::json;

    use super::*;

    fn sets(list: &Value) -> Vec<ParameterSet> {
        list.as_array().unwrap().iter().map(|item| ParameterSet(item.as_object().unwrap().clone())).collect()
    }

    fn joined(lists: &[Value], keys: &[&str], how: Join) -> Result<Value, (usize, String)> {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let sets = join(lists.iter().map(sets).collect(), &keys, how)?;
        Ok(sets.into_iter().map(|ParameterSet(set)| Value::Object(set)).collect())
    }

    #[test]
    fn which_items_there_are() {
        let lists = [
            json!([{"c": "a", "x": 1}, {"c": "b", "x": 2}, {"c": "d", "x": 4}]),
            json!([{"c": "b", "y": 3}, {"c": "e", "y": 5}, {"c": "a", "x": 6}]),
        ];
        let (a, b) = (json!({"c": "a", "x": 6}), json!({"c": "b", "x": 2, "y": 3}));
        let (d, e) = (json!({"c": "d", "x": 4}), json!({"c": "e", "y": 5}));
        assert_eq!(joined(&lists, &["c"], Join::Inner).unwrap(), json!([a, b]));
        assert_eq!(joined(&lists, &["c"], Join::Left).unwrap(), json!([a, b, d]));
        assert_eq!(joined(&lists, &["c"], Join::Outer).unwrap(), json!([a, b, d, e]));
    }

    #[test]
    fn a_number_is_the_same_however_it_is_written() {
        let lists =
            |first: &str, second: &str| [first, second].map(|text| serde_json::from_str::<Value>(text).unwrap());
        for (first, second, count) in [
            ("7", "7.0", 1),
            ("7", "\"7\"", 1),
            ("-0.0", "0", 1),
            ("7e2", "700", 1),
            ("7.5", "\"7.5\"", 1),
            ("1.10", "\"1.10\"", 1),
            ("1.10", "1.1", 0),
            ("-0", "0", 1),
            ("7", "7.5", 0),
            ("9007199254740993", "9007199254740992", 0),
        ] {
            let lists = lists(&format!("[{{\"c\": {first}}}]"), &format!("[{{\"c\": {second}}}]"));
            let found = joined(&lists, &["c"], Join::Inner).unwrap();
            assert_eq!(found.as_array().unwrap().len(), count, "{first} {second}");
        }
    }

    #[test]
    fn objects_are_merged_and_all_else_is_replaced() {
        let lists = [
            json!([{"v": {"id": 7}, "deep": {"a": {"b": 1, "c": 2}}, "list": [1, 2], "o": {}}]),
            json!([{"v": {"id": "7", "w": 1}, "deep": {"a": {"b": null}}, "list": [3], "o": "x"}]),
        ];
        assert_eq!(
            joined(&lists, &["v.id"], Join::Left).unwrap(),
            json!([{"v": {"id": "7", "w": 1}, "deep": {"a": {"b": null, "c": 2}}, "list": [3], "o": "x"}])
        );
        let flat = [json!([{"v.id": "1", "v": {"id": "2"}}]), json!([{"v": {"id": "1"}, "x": 1}])];
        assert_eq!(joined(&flat, &["v.id"], Join::Inner).unwrap().as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_key_is_there_once() {
        let says = |second: Value| joined(&[json!([{"c": "a", "d": 1}]), second], &["c", "d"], Join::Left).unwrap_err();
        let (twice, missing) =
            (json!([{"c": "x", "d": 1}, {"c": "a", "d": 1}, {"c": "x", "d": "1"}]), json!([{"c": "a"}]));
        assert_eq!(says(twice), (1, "items 0 and 2 have the same key, c: x, d: 1".into()));
        assert_eq!(says(missing), (1, "item 0: the key `d` is missing".into()));
        assert_eq!(says(json!([{"c": null, "d": 1}])).1, "item 0: the key `c` is null, which no other equals");
        assert_eq!(says(json!([{"c": {}, "d": 1}])).1, "item 0: the key `c` is an object, which no other equals");
    }

    /// A list without duplicate keys. Each item is a key, and a value that shows from which list the item came.
    fn list() -> impl Strategy<Value = Vec<(u8, u8)>> {
        vec((0..6_u8, 0..9_u8), 0..6).prop_map(|mut list| {
            let mut seen = Vec::new();
            list.retain(|(key, _)| !seen.contains(key) && (seen.push(*key), true).1);
            list
        })
    }

    proptest! {
        /// Compares the join with a naive one that follows the documentation item by item.
        #[test]
        fn as_a_naive_join_does(lists in vec(list(), 2..4), shared in any::<bool>()) {
            let field = |number: usize| if shared { "x".to_owned() } else { format!("x{number}") };
            let documents: Vec<Value> = lists.iter().enumerate().map(|(number, list)| {
                list.iter().map(|(key, value)| json!({"key": key, field(number): value})).collect()
            }).collect();
            for how in [Join::Inner, Join::Left, Join::Outer] {
                let mut expected = Vec::new();
                let mut order: Vec<u8> = Vec::new();
                for (key, _) in lists.iter().flatten() {
                    if !order.contains(key) {
                        order.push(*key);
                    }
                }
                for key in order {
                    let has = |list: &Vec<(u8, u8)>| list.iter().any(|(other, _)| *other == key);
                    let is_wanted = match how {
                        Join::Inner => lists.iter().all(has),
                        Join::Left => has(&lists[0]),
                        Join::Outer => true,
                    };
                    if is_wanted {
                        let mut item = Parameters::from_iter([("key".to_owned(), json!(key))]);
                        for (number, list) in lists.iter().enumerate() {
                            let value = list.iter().find(|(other, _)| *other == key);
                            item.extend(value.map(|(_, value)| (field(number), json!(value))));
                        }
                        expected.push(Value::Object(item));
                    }
                }
                prop_assert_eq!(joined(&documents, &["key"], how).unwrap(), Value::Array(expected));
            }
        }
    }
}
