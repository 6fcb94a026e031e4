//! Compares the list of a route's own backend with the list of its candidate. Pure.

use std::collections::BTreeSet;

use crate::{
    guard::Identity,
    shadow::{
        noise::Known,
        pairs::{differing, id, keys},
    },
};
use domain::{difference::Difference, generator::ParameterSet};

/// The differences between two lists.
pub(super) struct Comparison {
    /// The difference, without ignored keys and noise.
    pub(super) difference: Difference,
    /// How many values differ, but are noise.
    pub(super) subtracted: u64,
}

/// The differences from `primary` to `candidate`, without the keys in `ignored`, and without the values that are noise by `known`.
pub(super) fn compare(
    mut primary: Vec<ParameterSet>,
    mut candidate: Vec<ParameterSet>,
    identity: &Identity,
    ignored: &BTreeSet<String>,
    known: Option<&Known>,
) -> Comparison {
    for set in primary.iter_mut().chain(&mut candidate) {
        set.0.retain(|key, _| !ignored.contains(key));
    }
    let keys = keys(identity, [&primary, &candidate]);
    let mut difference = Difference::of(&primary, &candidate, &keys);
    let mut subtracted = 0;
    if let Some(known) = known.filter(|_| !keys.is_empty() || (primary.len() == 1 && candidate.len() == 1)) {
        difference.changed.retain_mut(|(primary, candidate)| {
            subtracted += subtract(primary, candidate, &keys, known);
            primary.0 != candidate.0
        });
    }
    Comparison { difference, subtracted }
}

/// Removes the values that differ and are noise from both sets. Returns how many.
fn subtract(primary: &mut ParameterSet, candidate: &mut ParameterSet, keys: &[String], known: &Known) -> u64 {
    let Some(id) = id(primary, keys) else { return 0 };
    let noise: Vec<String> =
        differing(primary, candidate).filter(|key| known.is_noise(id, key)).map(str::to_owned).collect();
    for key in &noise {
        primary.0.shift_remove(key);
        candidate.0.shift_remove(key);
    }
    noise.len() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn sets(all: Value) -> Vec<ParameterSet> {
        serde_json::from_value::<Vec<_>>(all).unwrap().into_iter().map(ParameterSet).collect()
    }

    fn ignoring(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn ignored_keys_are_not_compared_and_others_are() {
        let primary = json!([{"name": "a", "v": 1, "etag": "x"}, {"name": "b", "v": 1, "etag": "x"}]);
        let candidate = json!([{"name": "b", "v": 1, "etag": "y"}, {"name": "a", "v": 1}]);
        let compared = |ignored: &[&str]| {
            compare(sets(primary.clone()), sets(candidate.clone()), &Identity::Auto, &ignoring(ignored), None)
                .difference
        };
        assert!(compared(&["etag"]).is_empty());
        let Difference { added, removed, changed } = compared(&[]);
        assert_eq!((added.len(), removed.len(), changed.len()), (0, 0, 2));
    }

    #[test]
    fn a_usual_key_identifies_even_a_single_set() {
        let one = |name: &str| sets(json!([{ "name": name, "v": "1" }]));
        let Difference { added, removed, changed } =
            compare(one("a"), one("b"), &Identity::Auto, &ignoring(&[]), None).difference;
        assert_eq!((added.len(), removed.len(), changed.len()), (1, 1, 0));
        let by = Identity::Keys(Vec::new());
        assert_eq!(compare(one("a"), one("b"), &by, &ignoring(&[]), None).difference.changed.len(), 1);
    }
}
