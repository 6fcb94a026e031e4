//! The difference of two lists of parameter sets: which sets were added, removed and changed. Pure.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;

use super::generator::ParameterSet;

/// The difference of two lists of parameter sets. Their order does not count.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Difference {
    /// Sets of the second list only.
    pub added: Vec<ParameterSet>,
    /// Sets of the first list only.
    pub removed: Vec<ParameterSet>,
    /// Sets of both lists, with other values in the second one.
    pub changed: Vec<(ParameterSet, ParameterSet)>,
}

/// Pairs of sets, and the sets of both lists that found no other.
type Paired<'a> = (Vec<(&'a ParameterSet, &'a ParameterSet)>, Vec<&'a ParameterSet>, Vec<&'a ParameterSet>);

impl Difference {
    /// The difference from `before` to `after`. Two sets with the same values of `keys` are the same set. Without keys, only equal sets are
    /// the same. Of the others, as many as both lists have count as changed, because nothing identifies them.
    #[must_use]
    pub fn of(before: &[ParameterSet], after: &[ParameterSet], keys: &[String]) -> Self {
        let whole = |set: &ParameterSet| canonical(Value::Object(set.0.clone()));
        let (_, left, rest) = paired(before.iter().collect(), after.iter().collect(), whole);
        let (changed, removed, added) = if keys.is_empty() {
            let both = left.len().min(rest.len());
            let pairs = left.iter().copied().zip(rest.iter().copied()).collect();
            (pairs, left[both..].to_vec(), rest[both..].to_vec())
        } else {
            paired(left, rest, |set| canonical(keys.iter().map(|key| set.0.get(key).cloned()).collect()))
        };
        Self {
            added: added.into_iter().cloned().collect(),
            removed: removed.into_iter().cloned().collect(),
            changed: changed.into_iter().map(|(before, after)| (before.clone(), after.clone())).collect(),
        }
    }

    /// Whether nothing differs.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

/// Pairs each of `before` with the first one of `after` that has the same identity and is in no pair yet.
fn paired<'a>(
    before: Vec<&'a ParameterSet>,
    after: Vec<&'a ParameterSet>,
    identity: impl Fn(&ParameterSet) -> String,
) -> Paired<'a> {
    let mut known: HashMap<String, VecDeque<&ParameterSet>> = HashMap::new();
    for set in &after {
        known.entry(identity(set)).or_default().push_back(set);
    }
    let (mut pairs, mut left, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    for set in before {
        match known.get_mut(&identity(set)).and_then(VecDeque::pop_front) {
            Some(other) => pairs.push((set, other)),
            None => left.push(set),
        }
    }
    for set in after {
        // Those that are left in `known`, in the order of `after`. Pointers identify them: equal sets may occur twice.
        let others = known.get_mut(&identity(set));
        if let Some(others) = others.filter(|others| others.front().is_some_and(|first| std::ptr::eq(*first, set))) {
            others.pop_front();
            rest.push(set);
        }
    }
    (pairs, left, rest)
}

/// JSON with the keys of every object in order.
fn canonical(mut value: Value) -> String {
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sets(all: Value) -> Vec<ParameterSet> {
        serde_json::from_value::<Vec<_>>(all).unwrap().into_iter().map(ParameterSet).collect()
    }

    fn counts(before: Value, after: Value, keys: &[&str]) -> (usize, usize, usize) {
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        let Difference { added, removed, changed } = Difference::of(&sets(before), &sets(after), &keys);
        (added.len(), removed.len(), changed.len())
    }

    #[test]
    fn sets_are_identified_by_keys() {
        let before = json!([{"n": "a", "v": 1}, {"n": "b", "v": 1}, {"n": "c", "v": 1}]);
        let after = json!([{"n": "d", "v": 1}, {"v": 1, "n": "b"}, {"n": "a", "v": 2}]);
        assert_eq!(counts(before.clone(), after.clone(), &["n"]), (1, 1, 1));
        assert_eq!(counts(before.clone(), after, &[]), (0, 0, 2));
        assert_eq!(counts(before.clone(), json!([]), &["n"]), (0, 3, 0));
        assert_eq!(counts(before.clone(), before, &["n"]), (0, 0, 0));
    }

    #[test]
    fn the_rest_of_a_longer_list_is_added_or_removed() {
        assert_eq!(counts(json!([{"v": 1}]), json!([{"v": 2}, {"v": 3}]), &[]), (1, 0, 1));
        assert_eq!(counts(json!([{"v": 1}, {"v": 1}]), json!([{"v": 1}]), &[]), (0, 1, 0));
    }
}
