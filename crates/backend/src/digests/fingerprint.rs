//! The fingerprint of a route's `digests`. A build of one configuration is never served under another.
//!
//! The fingerprint covers everything that decides which images belong to a commit: the images, the revision, and the
//! checks of the gate. It leaves out how the gate is reached, its timeout, the signers, and the answers meanwhile. It is made from the
//! configuration's text, so a new key counts unless it is excluded here or in a gate's `ACCESS_KEYS`.

use serde_json::{Map, Value};

use super::gate::CI_SYSTEMS;
use oci::Digest;

/// The fingerprint of a backend's `digests`. The order of keys does not matter.
pub(super) fn fingerprint(digests: &Value) -> String {
    let mut digests = digests.clone();
    if let Some(digests) = digests.as_object_mut() {
        digests.remove("onMissing");
        // Who asks does not change what an image is.
        digests.remove("identity");
        // Each digest of the last build is verified by the present signers before it is served.
        digests.remove("signature");
        digests.get_mut("gate").into_iter().for_each(reduce_gate);
        let images = digests.get_mut("images").and_then(Value::as_object_mut);
        for image in images.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
            image.remove("placeholder");
        }
    }
    digests.sort_all_objects();
    Digest::of(digests.to_string().as_bytes()).hex()[..16].to_owned()
}

/// Removes from a gate, and from the gates within it, everything but the names that must have passed.
fn reduce_gate(gate: &mut Value) {
    for (kind, config) in gate.as_object_mut().into_iter().flatten() {
        match config {
            // `all` and `any`.
            Value::Array(members) => members.iter_mut().for_each(reduce_gate),
            Value::Object(config) => {
                for system in CI_SYSTEMS.iter().filter(|system| system.name == kind) {
                    config.retain(|key, _| !system.access_keys.contains(&&**key));
                }
                if let Some(headers) = config.get_mut("headers").and_then(Value::as_object_mut) {
                    // A header's text may be part of the query; a reference to a secret is not.
                    headers.retain(|_, value| value.is_string());
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::digests::{Config, gate::CiSystem};

    /// Whether `value` at the key `path` changes the fingerprint of `digests`. Missing objects are created.
    fn counts(digests: &Value, path: &str, value: &Value) -> bool {
        let mut changed = digests.clone();
        *path.split('.').fold(&mut changed, |at, key| &mut at[key]) = value.clone();
        fingerprint(&changed) != fingerprint(digests)
    }

    /// The keys of a definition in the schema, with their own schemas.
    fn properties<'a>(schema: &'a Value, definition: &str) -> &'a Map<String, Value> {
        let object = if definition.is_empty() { schema } else { &schema["$defs"][definition] };
        object["properties"].as_object().unwrap_or_else(|| panic!("no definition `{definition}`"))
    }

    /// Every key of the schema outside of gates: the keys that count, and after the bar those that do not.
    #[test]
    fn each_key_counts_or_does_not() {
        let schema = schemars::schema_for!(Config).to_value();
        let plain = json!({"images": {"app": {}}, "revision": {}, "gate": {"http": {}}});
        for (place, definition, keys) in [
            ("", "", "images list revision gate provenance | identity onMissing signature"),
            ("images.app.", "ImageConfig", "image platform requirePlatforms | placeholder"),
            ("revision.", "RevisionConfig", "expect policy |"),
        ] {
            let known: BTreeSet<&str> = properties(&schema, definition).keys().map(String::as_str).collect();
            assert_eq!(keys.split([' ', '|']).filter(|key| !key.is_empty()).collect::<BTreeSet<_>>(), known, "{place}");
            let (counted, others) = keys.split_once('|').unwrap();
            for (keys, expected) in [(counted, true), (others, false)] {
                for key in keys.split_whitespace() {
                    assert_eq!(counts(&plain, &format!("{place}{key}"), &json!("x")), expected, "{place}{key}");
                }
            }
        }
    }

    /// A key that holds a secret, and a key that another system lists, is one of `ACCESS_KEYS`; a listed key exists.
    #[test]
    fn each_key_of_a_gate_counts_unless_it_is_an_access_key() {
        let schema = schemars::schema_for!(Config).to_value();
        let all_access_keys: BTreeSet<&str> =
            CI_SYSTEMS.iter().flat_map(|system| system.access_keys).copied().collect();
        let variants = schema["$defs"]["GateConfig"]["oneOf"].as_array().unwrap();
        for CiSystem { name, access_keys, .. } in CI_SYSTEMS {
            let reference = variants.iter().find_map(|variant| variant["properties"][name]["$ref"].as_str()).unwrap();
            let properties = properties(&schema, reference.rsplit('/').next().unwrap());
            for key in *access_keys {
                assert!(
                    properties.contains_key(*key),
                    "{name}: ACCESS_KEYS has `{key}`, which is not a key of the gate"
                );
            }
            let plain = json!({"gate": {*name: {}}});
            for (key, schema) in properties {
                let is_access_key = access_keys.contains(&&**key);
                let is_counted = counts(&plain, &format!("gate.{name}.{key}"), &json!("x"));
                assert_eq!(is_counted, !is_access_key, "{name}: {key}");
                let must_be = all_access_keys.contains(&**key) || schema.to_string().contains("/SecretRef\"");
                assert!(is_access_key || !must_be, "{name}: ACCESS_KEYS lacks `{key}`");
            }
        }
    }

    #[test]
    fn gates_within_gates_count_the_same_way() {
        let nested = |github: Value| json!({"gate": {"all": [{"any": [{"github": github}, {"gitea": {}}]}]}});
        let of = |github: Value| fingerprint(&nested(github));
        let token = |file: &str| json!({"repository": "o/r", "token": {"file": file}});
        assert_eq!(of(token("one")), of(token("other")));
        assert_ne!(of(token("one")), of(json!({"repository": "o/other", "token": {"file": "one"}})));
        assert_ne!(fingerprint(&json!({"gate": {"all": []}})), fingerprint(&json!({"gate": {"any": []}})));
    }

    #[test]
    fn a_header_counts_where_it_is_text() {
        let plain = json!({"gate": {"http": {"headers": {}}}});
        assert!(counts(&plain, "gate.http.headers.X-Project", &json!("a")));
        assert!(!counts(&plain, "gate.http.headers.Authorization", &json!({"file": "token"})));
        // Every key of the body is part of the query.
        assert!(counts(&plain, "gate.http.body.token", &json!("a")));
    }

    #[test]
    fn the_order_of_keys_does_not_count() {
        let (one, other) =
            (json!({"images": {"a": 1, "b": 2}, "gate": 3}), json!({"gate": 3, "images": {"b": 2, "a": 1}}));
        assert_eq!(fingerprint(&one), fingerprint(&other));
        assert_ne!(fingerprint(&json!(["a", "b"])), fingerprint(&json!(["b", "a"])));
    }
}
