//! The identity of a parameter set, which selects its Application: the values of the configured keys, or of
//! keys that usually name things (`auto`).

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use domain::{
    generator::{ParameterSet, Parameters},
    problem::{Path, Problems},
    spelling::near,
};

/// Keys that usually name things, the best first. Not `tag`, `digest` or `url`: they change with every version.
pub const USUAL_KEYS: [&str; 9] =
    ["name", "id", "number", "branch", "cluster", "server", "namespace", "path", "repository"];

/// A route's `guard.identity`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Identity {
    /// The first of [`USUAL_KEYS`] that identifies all sets of the old and of the new answer. Where none does, sets
    /// are counted.
    #[default]
    Auto,
    /// The values of these keys together. Sets are counted where there are none.
    Keys(Vec<String>),
}

impl<'de> Deserialize<'de> for Identity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutoOrKeys;
        impl<'de> Visitor<'de> for AutoOrKeys {
            type Value = Identity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto` or a list of keys")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Identity, E> {
                if text == "auto" {
                    return Ok(Identity::Auto);
                }
                Err(E::custom(format!("`{text}` is neither `auto` nor a list of keys such as `[{text}]`")))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Identity, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(Identity::Keys)
            }
        }
        deserializer.deserialize_any(AutoOrKeys)
    }
}

impl JsonSchema for Identity {
    fn schema_name() -> Cow<'static, str> {
        "Identity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "oneOf": [{ "const": "auto" }, { "type": "array", "items": { "type": "string" } }],
            "description": "The keys whose values identify the Application of a parameter set; `auto` picks one of the \
                            usual ones; `[]` only counts the sets.",
        })
    }
}

impl Identity {
    /// Notes below `path` the keys that parameter sets cannot have. They can have the keys `possible`.
    pub fn check_keys(&self, possible: &[&str], path: &Path, problems: &mut Problems) {
        let Self::Keys(keys) = self else { return };
        check_keys(keys, possible, path, problems);
    }

    /// How parameter sets are identified, in words, when their keys are `known` before there is an answer.
    #[must_use]
    pub fn describe(&self, known: Option<&[&str]>) -> String {
        let by = |keys: &[&str]| format!("`{}`", keys.join("`, `"));
        match (self, known) {
            (Self::Keys(keys), _) if keys.is_empty() => "counted".to_owned(),
            (Self::Keys(keys), _) => by(&keys.iter().map(String::as_str).collect::<Vec<_>>()),
            (Self::Auto, None) => "a usual key of its answers".to_owned(),
            (Self::Auto, Some(known)) => match USUAL_KEYS.iter().find(|key| known.contains(key)) {
                Some(key) => format!("`{key}`, if it differs in all sets"),
                None => "counted, since its `output` has no usual key".to_owned(),
            },
        }
    }
}

/// Notes below `path` those of `keys` that are not `possible` keys of parameter sets.
pub fn check_keys(keys: &[String], possible: &[&str], path: &Path, problems: &mut Problems) {
    // Without any key there are no parameter sets.
    for (index, key) in keys.iter().enumerate().filter(|(_, key)| !possible.is_empty() && !possible.contains(&&***key))
    {
        let help = match near(key, possible) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("their keys: {}", possible.join(", ")),
        };
        problems.mistake(&path.index(index), format!("the parameter sets have no key `{key}`"), help);
    }
}

/// The identities of `sets` by `keys`: one hash for each set, in its order. `None` when a set lacks a key, or two sets have
/// one identity.
#[must_use]
pub fn identities(sets: &[ParameterSet], keys: &[String]) -> Option<Vec<u64>> {
    let mut text = Vec::new();
    let hashes: Vec<u64> = sets.iter().map(|set| identity(set, keys, &mut text)).collect::<Option<_>>()?;
    let mut sorted = hashes.clone();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1]).then_some(hashes)
}

/// The identity of `set` by `keys`; `None` when it lacks one of them. The same in every process and version. `text` is a buffer to
/// write in: the canonical form of each value after its length.
fn identity(set: &ParameterSet, keys: &[String], text: &mut Vec<u8>) -> Option<u64> {
    text.clear();
    for key in keys {
        let value = set.0.get(key)?;
        let start = text.len();
        text.extend_from_slice(&[0; 8]);
        if let Value::Array(_) | Value::Object(_) = value {
            text.extend_from_slice(canonical(value).as_bytes());
        } else {
            serde_json::to_writer(&mut *text, value).ok()?;
        }
        let length = (text.len() - start - 8) as u64;
        text[start..start + 8].copy_from_slice(&length.to_le_bytes());
    }
    let mut first = [0; 8];
    first.copy_from_slice(&Sha256::digest(&text)[..8]);
    Some(u64::from_le_bytes(first))
}

/// Whether the value that `set` has under `key` can name something.
pub(super) fn is_name(set: &ParameterSet, key: &str) -> bool {
    match set.0.get(key) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(_)) => true,
        _ => false,
    }
}

/// JSON with the keys of every object in order.
pub(super) fn canonical(value: &Value) -> String {
    if let Value::Array(_) | Value::Object(_) = value {
        let mut sorted = value.clone();
        sorted.sort_all_objects();
        return sorted.to_string();
    }
    value.to_string()
}

/// Names `set` in a message: by `keys`, else by a usual key. Never prints the whole set, which may hold anything.
#[must_use]
pub fn label(set: &ParameterSet, keys: &[String]) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let by = |names: &[&str]| {
        let parts: Vec<String> = names.iter().filter_map(|name| set.0.get(*name)).map(shown).collect();
        (!parts.is_empty()).then(|| super::short(&parts.join("/")))
    };
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let usual = || USUAL_KEYS.iter().chain(&["url"]).find_map(|name| by(&[name]));
    by(&keys).or_else(usual).unwrap_or_else(|| unnamed(&set.0))
}

fn unnamed(set: &Parameters) -> String {
    if set.is_empty() {
        return "an empty one".to_owned();
    }
    let keys: Vec<&str> = set.keys().map(String::as_str).collect();
    super::short(&format!("one with {}", keys.join(", ")))
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::guard) fn sets(all: &[Value]) -> Vec<ParameterSet> {
        all.iter().map(|set| ParameterSet(set.as_object().unwrap().clone())).collect()
    }

    #[test]
    fn the_configuration_says_auto_or_keys() {
        let parse = |value: Value| serde_json::from_value::<Identity>(value).map_err(|error| error.to_string());
        assert_eq!(parse(json!("auto")), Ok(Identity::Auto));
        assert_eq!(parse(json!(["a", "b"])), Ok(Identity::Keys(vec!["a".to_owned(), "b".to_owned()])));
        assert_eq!(parse(json!([])), Ok(Identity::Keys(Vec::new())));
        assert!(parse(json!("name")).unwrap_err().contains("such as `[name]`"));
        assert!(parse(json!(1)).unwrap_err().contains("`auto` or a list of keys"));
    }

    #[test]
    fn an_identity_is_the_same_whatever_the_order_of_keys() {
        let one = |set: Value, keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            identities(&sets(&[set]), &keys).map(|all| all[0])
        };
        let by = |set: Value| one(set, &["o"]);
        assert_eq!(by(json!({"o": {"a": 1, "b": 2}})), by(json!({"o": {"b": 2, "a": 1}, "x": 1})));
        assert_ne!(by(json!({"o": "1"})), by(json!({"o": 1})));
        assert_eq!(by(json!({"x": 1})), None);
        let two = |a: &str, b: &str| one(json!({"a": a, "b": b}), &["a", "b"]);
        assert_ne!(two("ab", "c"), two("a", "bc"));
        // Records of earlier versions hold these numbers.
        assert_eq!(by(json!({"o": "n1"})), Some(14_225_609_595_506_978_066));
        assert_eq!(
            one(json!({"a": "n1", "b": [{"y": 1.5, "x": null}]}), &["a", "b"]),
            Some(13_940_463_325_789_061_951)
        );
    }
}
