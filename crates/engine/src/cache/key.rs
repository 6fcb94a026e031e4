//! The identity of a question: a hash of the route, the input with its keys in order, and the ApplicationSet's name
//! if an answer may depend on it. Also [`MadeUnder`], which names the configuration that made an answer, and by which keys.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use domain::{
    clock::Timestamp,
    generator::{Parameters, Part, Query},
};

/// A question's identity. A cryptographic hash, since branch names come from anyone who may push. Its last 8 bytes are its route's
/// [`RouteId`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key([u8; 32]);

/// Which route a key belongs to: the beginning of the hash of the route's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId([u8; RouteId::LENGTH]);

impl RouteId {
    /// How many bytes it has.
    const LENGTH: usize = 8;

    /// The id of the route `name`.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let mut start = [0; Self::LENGTH];
        start.copy_from_slice(&Sha256::digest(name)[..Self::LENGTH]);
        Self(start)
    }

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; Self::LENGTH] {
        self.0
    }
}

impl Key {
    /// A key of known bytes.
    #[must_use]
    pub const fn of_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The route that it belongs to.
    #[must_use]
    pub fn route(&self) -> RouteId {
        let mut end = [0; RouteId::LENGTH];
        end.copy_from_slice(&self.0[32 - RouteId::LENGTH..]);
        RouteId(end)
    }

    /// Its beginning as a pseudo-random number.
    #[must_use]
    pub fn number(&self) -> u64 {
        let mut start = [0; 8];
        start.copy_from_slice(&self.0[..8]);
        u64::from_be_bytes(start)
    }

    /// The length of its text.
    pub const TEXT: usize = 32;

    /// Its text, which is the first half in hexadecimal.
    #[must_use]
    pub fn text<'t>(&self, digits: &'t mut [u8; Self::TEXT]) -> &'t str {
        base16ct::lower::encode_str(&self.0[..Self::TEXT / 2], digits).unwrap_or_default()
    }

    /// A number in 0..=1, pseudo-random, but the same for the same key and time.
    #[must_use]
    pub(crate) fn spread(&self, now: Timestamp) -> f64 {
        let [a, b, c, d, ..] = self.0;
        // Fibonacci hashing: times that are close get numbers that are not.
        let mixed = (u64::from(u32::from_le_bytes([a, b, c, d])) ^ now.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        f64::from(u32::try_from(mixed >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text(&mut [0; Self::TEXT]))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// The revision of a route: a hash of the parts of its configuration that shape its answers. An answer of another
/// revision is not served. The guard still compares with it, because Argo CD's Applications of it still exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Revision(u64);

impl Revision {
    /// Keys that decide which backend is called, how often, and what is accepted, but do not change the answers.
    const NO_PART: [&'static str; 8] = ["name", "formerly", "match", "cache", "lineage", "guard", "deadline", "shadow"];

    /// Its bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_le_bytes()
    }

    /// The revision of a route's configuration as it is in the file.
    #[must_use]
    pub fn of(route: &Value) -> Self {
        let mut parts = route.clone();
        if let Value::Object(parts) = &mut parts {
            parts.retain(|name, _| !Self::NO_PART.contains(&name.as_str()));
        }
        let mut text = Vec::with_capacity(256);
        write_canonical(&parts, &mut text);
        let mut start = [0; 8];
        start.copy_from_slice(&Sha256::digest(&text)[..8]);
        Self(u64::from_le_bytes(start))
    }
}

/// The configuration that made an answer, and the keys and roots by which it was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MadeUnder {
    /// The route's revision.
    pub revision: Revision,
    /// The fingerprint of the backend's `Trust`. 0: nothing was verified.
    pub trust: u64,
}

/// The part of a key that all questions of one route share, hashed once.
#[derive(Clone)]
pub struct KeyPrefix {
    hasher: Sha256,
    route: RouteId,
    with_application_set: bool,
}

impl KeyPrefix {
    /// For the route `name`.
    #[must_use]
    pub fn new(name: &str, with_application_set: bool) -> Self {
        let mut text = Vec::with_capacity(64);
        write_text(name, &mut text);
        Self { hasher: Sha256::new_with_prefix(&text), route: RouteId::of(name), with_application_set }
    }

    /// The id of the route, as its keys have it.
    #[must_use]
    pub const fn route(&self) -> RouteId {
        self.route
    }

    /// Whether the ApplicationSet's name is part of the keys.
    #[must_use]
    pub const fn has_application_set(&self) -> bool {
        self.with_application_set
    }

    /// The key of `query`.
    #[must_use]
    pub fn key(&self, query: &Query) -> Key {
        self.finish(Vec::with_capacity(256), query, &query.parameters, true)
    }

    /// The key of `query`'s lineage: all queries with the same values of the parameters called `names` share it. So do all items of one
    /// element.
    #[must_use]
    pub fn lineage(&self, query: &Query, names: &[String]) -> Key {
        let kept = query.parameters.iter().filter(|(name, _)| names.contains(name));
        let kept = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        // No question's own key begins like this, because an object and a text's length begin differently.
        self.finish(b"lineage".to_vec(), query, &kept, false)
    }

    fn finish(&self, mut text: Vec<u8>, query: &Query, parameters: &Parameters, has_item: bool) -> Key {
        if self.with_application_set {
            write_text(&query.application_set, &mut text);
        }
        write_object(parameters, &mut text);
        match &query.part {
            None => {}
            Some(Part::List) => text.push(b'L'),
            Some(Part::Element(element)) => {
                text.push(b'E');
                write_text(&element.id, &mut text);
                if has_item {
                    write_canonical(&element.item, &mut text);
                }
            }
        }
        let mut hasher = self.hasher.clone();
        hasher.update(&text);
        let mut key: [u8; 32] = hasher.finalize().into();
        key[32 - RouteId::LENGTH..].copy_from_slice(&self.route.0);
        Key(key)
    }
}

impl fmt::Debug for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPrefix").field("with_application_set", &self.with_application_set).finish_non_exhaustive()
    }
}

/// JSON with the keys of every object in order, and each text after its length, so that no two
/// values have the same form.
fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.push(b'n'),
        Value::Bool(true) => out.push(b't'),
        Value::Bool(false) => out.push(b'f'),
        Value::Number(number) => {
            out.push(b'#');
            write_text(&number.to_string(), out);
        }
        Value::String(text) => {
            out.push(b'"');
            write_text(text, out);
        }
        Value::Array(items) => {
            out.push(b'[');
            for item in items {
                write_canonical(item, out);
            }
            out.push(b']');
        }
        Value::Object(map) => write_object(map, out),
    }
}

fn write_object(map: &serde_json::Map<String, Value>, out: &mut Vec<u8>) {
    out.push(b'{');
    let mut write = |(key, value): (&String, &Value)| {
        write_text(key, out);
        write_canonical(value, out);
    };
    if map.len() < 2 {
        map.iter().for_each(write);
    } else {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries.into_iter().for_each(&mut write);
    }
    out.push(b'}');
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    fn key(prefix: &KeyPrefix, application_set: &str, parameters: &Value) -> Key {
        let parameters = parameters.as_object().unwrap().clone().into();
        prefix.key(&Query::new(application_set.into(), parameters, Instant::now()))
    }

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let route = KeyPrefix::new("r", false);
        let one = key(&route, "a", &json!({"x": 1, "y": {"b": 1, "a": [1, 2]}}));
        assert_eq!(one, key(&route, "b", &json!({"y": {"a": [1, 2], "b": 1}, "x": 1})));
        for other in
            [json!({"x": "1", "y": {"b": 1, "a": [1, 2]}}), json!({"x": 1, "y": {"b": 1, "a": [2, 1]}}), json!({})]
        {
            assert_ne!(one, key(&route, "a", &other), "{other}");
        }
        let lineage = |parameters: Value| {
            let parameters = parameters.as_object().unwrap().clone().into();
            let query = Query::new("a".into(), parameters, Instant::now());
            route.lineage(&query, &["branch".to_owned()])
        };
        let first = lineage(json!({"branch": "x", "sha": "1"}));
        assert_eq!(first, lineage(json!({"sha": "2", "branch": "x"})));
        assert_ne!(first, lineage(json!({"branch": "y", "sha": "1"})));
        assert_ne!(first, key(&route, "a", &json!({"branch": "x"})));
        let changed = KeyPrefix::new("s", false);
        assert_ne!(key(&route, "a", &json!({})), key(&changed, "a", &json!({})));
        assert_eq!((first.route(), one.route()), (RouteId::of("r"), RouteId::of("r")));
        assert_eq!(key(&changed, "a", &json!({})).route(), RouteId::of("s"));
        let named = KeyPrefix::new("r", true);
        assert_ne!(key(&named, "a", &json!({})), key(&named, "b", &json!({})));
    }

    #[test]
    fn a_revision_is_what_shapes_the_answers() {
        let of = |route: Value| Revision::of(&route);
        let first = of(json!({"name": "r", "backend": {"fixed": {}}, "echo": ["a"], "cache": {"ttl": "1s"}}));
        assert_eq!(first, of(json!({"echo": ["a"], "backend": {"fixed": {}}, "guard": {}, "lineage": ["a"]})));
        assert_ne!(first, of(json!({"echo": ["b"], "backend": {"fixed": {}}})));
        assert_ne!(first, of(json!({"echo": ["a"], "backend": {"script": {}}})));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-c\"{\\[#]{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::hash_map("[a-c]{0,2}", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn equal_forms_are_equal_values(a in any_json(), b in any_json()) {
            let form = |value: &Value| { let mut out = Vec::new(); write_canonical(value, &mut out); out };
            prop_assert_eq!(form(&a) == form(&b), a == b);
        }
    }
}
