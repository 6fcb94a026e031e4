//! The identities of the parameter sets of one answer. They are made once for each answer.

use serde_json::Value;

use crate::guard::identity::{Identity, USUAL_KEYS, identities, is_name};
use domain::generator::ParameterSet;

/// The number of parameter sets in one answer, and their identities by some keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identities {
    pub(super) count: usize,
    /// The keys; empty if sets are only counted.
    pub(super) keys: Vec<String>,
    /// The identities in ascending order; empty if sets are only counted.
    pub(super) sorted: Vec<u64>,
}

impl Identities {
    /// `count` sets that are only counted.
    #[must_use]
    pub(super) const fn counted(count: usize) -> Self {
        Self { count, keys: Vec::new(), sorted: Vec::new() }
    }

    /// `sets` by `keys`. `None` without keys, when a set lacks one, or when two sets have one identity.
    #[must_use]
    pub(super) fn by(sets: &[ParameterSet], keys: &[String]) -> Option<Self> {
        let mut sorted = if keys.is_empty() { None } else { identities(sets, keys) }?;
        sorted.sort_unstable();
        Some(Self { count: sets.len(), keys: keys.to_vec(), sorted })
    }

    /// `sets` alone, by `identity`. They are counted if its keys do not identify them.
    #[must_use]
    pub(super) fn of(identity: &Identity, sets: &[ParameterSet]) -> Self {
        let identities = match identity {
            Identity::Keys(keys) => Self::by(sets, keys),
            Identity::Auto => by_usual_key(&[sets]).and_then(|mut all| all.pop()),
        };
        identities.unwrap_or_else(|| Self::counted(sets.len()))
    }

    /// The keys; empty if sets are only counted.
    #[must_use]
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Whether two of `sets`, which these are, may be equal as a whole. They cannot if all have another text under a key. Equal numbers
    /// may be written in two ways.
    #[must_use]
    pub(super) fn may_have_duplicates(&self, sets: &[ParameterSet]) -> bool {
        let differs = |key: &String| sets.iter().all(|set| set.0.get(key).is_some_and(Value::is_string));
        !matches!(&self.keys[..], [key] if differs(key))
    }
}

/// The first usual key that every set of all `answers` has, with different values within each answer. `None` if an answer
/// has fewer than two sets, since it then proves nothing about a key.
#[must_use]
pub(crate) fn usual_key(answers: &[&[ParameterSet]]) -> Option<Vec<String>> {
    by_usual_key(answers)?.pop().map(|last| last.keys)
}

/// Each of `answers` by their [`usual_key`].
fn by_usual_key(answers: &[&[ParameterSet]]) -> Option<Vec<Identities>> {
    if answers.iter().any(|sets| sets.len() < 2) {
        return None;
    }
    USUAL_KEYS.iter().find_map(|key| {
        let by_key = |sets: &&[ParameterSet]| {
            let has_names = sets.iter().all(|set| is_name(set, key));
            if has_names { Identities::by(sets, &[(*key).to_owned()]) } else { None }
        };
        answers.iter().map(by_key).collect()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::identity::tests::sets, *};

    #[test]
    fn the_first_usual_key_that_identifies_all_sets_is_used() {
        let usual = |answers: &[&[Value]]| {
            let answers: Vec<_> = answers.iter().map(|answer| sets(answer)).collect();
            let answers: Vec<&[ParameterSet]> = answers.iter().map(Vec::as_slice).collect();
            usual_key(&answers).map(|keys| keys.join(","))
        };
        let key = |name: &str| Some(name.to_owned());
        assert_eq!(usual(&[&[json!({"id": 1, "name": "a"}), json!({"id": 2, "name": "b"})]]), key("name"));
        assert_eq!(usual(&[&[json!({"id": 1, "name": "a"}), json!({"id": 2, "name": "a"})]]), key("id"));
        let old = [json!({"id": 1, "name": "a"}), json!({"id": 2, "name": "b"})];
        let new = [json!({"id": 3, "name": "x"}), json!({"id": 4, "name": "x"})];
        assert_eq!(usual(&[&old, &new]), key("id"));
        for unfit in [
            vec![json!({"tag": "1"}), json!({"tag": "2"})],
            vec![json!({"name": "a"})],
            vec![json!({"name": "a"}), json!({"x": "b"})],
            vec![json!({"name": ""}), json!({"name": "b"})],
            vec![json!({"name": null}), json!({"name": "b"})],
            vec![json!({"name": ["a"]}), json!({"name": ["b"]})],
        ] {
            assert_eq!(usual(&[&unfit]), None, "{unfit:?}");
        }
    }
}
