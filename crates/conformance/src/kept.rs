//! The suite's record of an answer: how many sets it has, and a hash of each. The answer itself may be large.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, Hash as _, Hasher, RandomState},
    sync::LazyLock,
};

use serde_json::{Map, Value};

use super::evaluate::Verdict;

/// Seeded at random, so that no plugin can make two sets look equal.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// An answer as a multiset of hashes. The order of the sets, and of their keys, does not count.
#[derive(Debug)]
pub(crate) struct Kept {
    /// How many Applications Argo CD makes of the answer; `None` if it changes nothing.
    pub count: Option<usize>,
    times: HashMap<u64, usize>,
}

impl Kept {
    /// The record of the answer with this verdict.
    pub(crate) fn of(verdict: &Verdict) -> Self {
        let count = count(verdict);
        Self { count, ..Self::of_sets(sets(verdict)) }
    }

    /// The record of an answer with these sets.
    pub(crate) fn of_sets(sets: &[Map<String, Value>]) -> Self {
        let mut times = HashMap::new();
        for set in sets {
            *times.entry(hash(set)).or_default() += 1;
        }
        Self { count: Some(sets.len()), times }
    }

    /// How another answer to the same question differs from this one.
    pub(crate) fn difference(&self, other: &Verdict) -> Option<String> {
        let shown = |count: Option<usize>| count.map_or_else(|| "an error".to_owned(), |count| format!("{count} sets"));
        let has = count(other);
        if self.count != has {
            return Some(format!("{}, then {}", shown(self.count), shown(has)));
        }
        // As many sets as before. So if one is gone, another one is new.
        let mut left = self.times.clone();
        for set in sets(other) {
            match left.get_mut(&hash(set)) {
                Some(times @ 1..) => *times -= 1,
                _ => return Some(format!("the next time there is another set {}", Value::Object(set.clone()))),
            }
        }
        None
    }
}

/// How many Applications Argo CD makes; `None` if it changes nothing.
pub(crate) fn count(verdict: &Verdict) -> Option<usize> {
    if matches!(verdict, Verdict::Error { .. }) { None } else { Some(sets(verdict).len()) }
}

/// The parameter sets that Argo CD reads.
fn sets(verdict: &Verdict) -> &[Map<String, Value>] {
    if let Verdict::Parameters(sets) = verdict { sets } else { &[] }
}

fn hash(set: &Map<String, Value>) -> u64 {
    let mut hasher = SEED.build_hasher();
    write_object(set, &mut hasher);
    hasher.finish()
}

fn write_object(object: &Map<String, Value>, hasher: &mut impl Hasher) {
    let mut entries: Vec<(&String, &Value)> = object.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries.len().hash(hasher);
    for (key, value) in entries {
        key.hash(hasher);
        write(value, hasher);
    }
}

/// Each kind begins with a byte of its own. Numbers are what a float64 keeps.
fn write(value: &Value, hasher: &mut impl Hasher) {
    match value {
        Value::Null => 0_u8.hash(hasher),
        Value::Bool(value) => (1_u8, value).hash(hasher),
        Value::Number(number) => (2_u8, (number.as_f64().unwrap_or(f64::NAN) + 0.0).to_bits()).hash(hasher),
        Value::String(text) => (3_u8, text).hash(hasher),
        Value::Array(items) => {
            (4_u8, items.len()).hash(hasher);
            for item in items {
                write(item, hasher);
            }
        }
        Value::Object(object) => {
            5_u8.hash(hasher);
            write_object(object, hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(sets: &Value) -> Verdict {
        Verdict::Parameters(serde_json::from_value(sets.clone()).unwrap())
    }

    #[test]
    fn answers_are_multisets() {
        let difference = |one: Value, other: Value| Kept::of(&verdict(&one)).difference(&verdict(&other));
        let [a, b, c] = ["a", "b", "c"].map(|name| json!({ "name": name }));
        assert_eq!(difference(json!([a, b, b]), json!([b, a, b])), None);
        assert_eq!(difference(json!([a, a]), json!([a])).unwrap(), "2 sets, then 1 sets");
        let another = "the next time there is another set ";
        assert_eq!(difference(json!([a, a, b]), json!([a, b, b])).unwrap(), format!("{another}{b}"));
        assert_eq!(difference(json!([a, b]), json!([a, c])).unwrap(), format!("{another}{c}"));
        assert_eq!(difference(json!([{"a": {"x": 1, "y": [1]}}]), json!([{"a": {"y": [1.0], "x": 1}}])), None);
        for (one, other) in [(json!(1), json!("1")), (json!([1]), json!([[1]])), (json!(null), json!({}))] {
            assert!(difference(json!([{"a": one}]), json!([{"a": other}])).is_some(), "{one} {other}");
        }
    }

    /// A set that changes is found wherever it is.
    #[test]
    fn the_last_of_many_sets_is_compared_too() {
        let sets = |last: &str| {
            let fixed = (0..1500).map(|number| json!({"name": number.to_string()}));
            fixed.chain([json!({ "name": last })]).collect::<Value>()
        };
        let before = Kept::of(&verdict(&sets("x")));
        assert_eq!(before.difference(&verdict(&sets("x"))), None);
        assert!(before.difference(&verdict(&sets("y"))).unwrap().ends_with(r#"{"name":"y"}"#));
    }
}
