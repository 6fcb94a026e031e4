//! What tells the configuration of a route's images from others, for what one built is no answer under another.
//!
//! It is made of what decides which images stand for which commit: the images, the revision, and whom the gate asks for
//! what. How the gate is reached, how long that may take and what is answered meanwhile may change at any time. It is
//! read from the configuration as it stands, so that a key which nobody thought of here counts.

use serde_json::{Map, Value};

use crate::clients::oci::Digest;

/// Keys of a gate that say how it is reached, or how far to look, and not what must have passed.
const MEANS: [&str; 9] =
    ["app", "ca", "clientCertificate", "password", "timeout", "token", "tokenKind", "username", "walkBack"];

/// The fingerprint of a backend's `digests`, whichever order its keys are in.
pub(super) fn fingerprint(digests: &Value) -> String {
    let mut digests = digests.clone();
    if let Some(digests) = digests.as_object_mut() {
        digests.remove("onMissing");
        digests.get_mut("gate").into_iter().for_each(reduce_gate);
        let images = digests.get_mut("images").and_then(Value::as_object_mut);
        for image in images.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
            image.remove("placeholder");
        }
    }
    digests.sort_all_objects();
    Digest::of(digests.to_string().as_bytes()).hex()[..16].to_owned()
}

/// Leaves of a gate, and of those within it, what must have passed.
fn reduce_gate(gate: &mut Value) {
    for (kind, config) in gate.as_object_mut().into_iter().flatten() {
        match config {
            Value::Array(members) if matches!(&**kind, "all" | "any") => members.iter_mut().for_each(reduce_gate),
            Value::Object(config) => {
                config.retain(|key, _| !MEANS.contains(&&**key));
                if let Some(headers) = config.get_mut("headers").and_then(Value::as_object_mut) {
                    // A header's text may say what is asked; where a secret is kept does not.
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
    use crate::backend::digests::Config;

    /// Whether `value` at the key `path` makes another configuration of `digests`. Objects that are not there are made.
    fn counts(digests: &Value, path: &str, value: &Value) -> bool {
        let mut changed = digests.clone();
        *path.split('.').fold(&mut changed, |at, key| &mut at[key]) = value.clone();
        fingerprint(&changed) != fingerprint(digests)
    }

    /// Every key of the schema: what counts, and after the bar what does not.
    #[test]
    fn each_key_counts_or_does_not() {
        let schema = schemars::schema_for!(Config).to_value();
        let gates = json!({"github": {}, "gitlab": {}, "gitea": {}, "bitbucket": {}, "http": {}});
        let plain = json!({"images": {"app": {}}, "revision": {}, "gate": gates});
        for (place, object, keys) in [
            ("", "", "images list revision gate | onMissing"),
            ("images.app.", "ImageConfig", "image platform requirePlatforms | placeholder"),
            ("revision.", "RevisionConfig", "expect policy |"),
            (
                "gate.github.",
                "GithubGate",
                "api repository sha workflows checks statuses events accept | token app ca walkBack",
            ),
            ("gate.gitlab.", "GitlabGate", "api project sha ref sources mergeRequest accept | token tokenKind ca"),
            ("gate.gitea.", "GiteaGate", "api repository sha contexts accept | token ca"),
            ("gate.bitbucket.", "BitbucketGate", "api repository sha keys | token username password ca"),
            (
                "gate.http.",
                "HttpGate",
                "method url allowedHosts headers body sha verdict allowErrors insecureSkipVerify | timeout ca clientCertificate",
            ),
        ] {
            let object = if object.is_empty() { &schema } else { &schema["$defs"][object] };
            let known: BTreeSet<&str> = object["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(keys.split([' ', '|']).filter(|key| !key.is_empty()).collect::<BTreeSet<_>>(), known, "{place}");
            let (counted, others) = keys.split_once('|').unwrap();
            for (keys, expected) in [(counted, true), (others, false)] {
                for key in keys.split_whitespace() {
                    assert_eq!(counts(&plain, &format!("{place}{key}"), &json!("x")), expected, "{place}{key}");
                }
            }
        }
    }

    #[test]
    fn gates_within_gates_are_read_alike() {
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
        // What the body holds is what is asked, whatever it is called.
        assert!(counts(&plain, "gate.http.body.token", &json!("a")));
    }

    #[test]
    fn the_order_of_keys_is_none() {
        let (one, other) =
            (json!({"images": {"a": 1, "b": 2}, "gate": 3}), json!({"gate": 3, "images": {"b": 2, "a": 1}}));
        assert_eq!(fingerprint(&one), fingerprint(&other));
        assert_ne!(fingerprint(&json!(["a", "b"])), fingerprint(&json!(["b", "a"])));
    }
}
