//! Compares the list of a route's own backend with the list of its candidate. Pure.

use std::collections::BTreeSet;

use super::noise::{Known, Place};
use crate::{
    domain::{difference::Difference, generator::ParameterSet},
    engine::guard::{
        Identity,
        identity::{USUAL_KEYS, identities},
    },
};

/// The identity of the only set of an answer, if no key identifies it.
const ONLY: u64 = 0;

/// What differs between two lists.
pub(super) struct Comparison {
    /// The difference, without ignored keys and noise.
    pub(super) difference: Difference,
    /// How many values differ, but are noise.
    pub(super) subtracted: u64,
}

/// What differs from `primary` to `candidate`, without the keys in `ignored`, and without the values that are noise by `known`.
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

/// The values that differ in sets of both lists that have one identity. `None` if the sets cannot be told apart.
pub(super) fn varying(before: &[ParameterSet], now: &[ParameterSet], identity: &Identity) -> Option<Vec<Place>> {
    let keys = keys(identity, [before, now]);
    let is_told_apart = if keys.is_empty() {
        before.len() == 1 && now.len() == 1
    } else {
        identities(before, &keys).is_some() && identities(now, &keys).is_some()
    };
    if !is_told_apart {
        return None;
    }
    let changed = Difference::of(before, now, &keys).changed;
    let places = changed.iter().filter_map(|(before, now)| {
        let id = id(before, &keys)?;
        Some(differing(before, now).map(|key| (id, key.into())).collect::<Vec<Place>>())
    });
    Some(places.flatten().collect())
}

/// The keys whose values differ between two sets, each once.
fn differing<'a>(one: &'a ParameterSet, other: &'a ParameterSet) -> impl Iterator<Item = &'a str> {
    let only_other = other.0.keys().filter(|key| !one.0.contains_key(*key));
    one.0.keys().chain(only_other).filter(|key| one.0.get(*key) != other.0.get(*key)).map(String::as_str)
}

/// The identity of `set` by `keys`.
fn id(set: &ParameterSet, keys: &[String]) -> Option<u64> {
    if keys.is_empty() { Some(ONLY) } else { identities(std::slice::from_ref(set), keys)?.first().copied() }
}

/// The keys that identify the sets of both lists. With `auto`, the first usual key that all sets have, and that tells the sets of each
/// list apart. Empty if sets can only be counted.
fn keys(identity: &Identity, lists: [&[ParameterSet]; 2]) -> Vec<String> {
    match identity {
        Identity::Keys(keys) => keys.clone(),
        Identity::Auto => {
            let usual = USUAL_KEYS.into_iter().map(|key| vec![key.to_owned()]);
            let tells_apart = |keys: &Vec<String>| lists.iter().all(|sets| identities(sets, keys).is_some());
            usual.into_iter().find(tells_apart).unwrap_or_default()
        }
    }
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

    #[test]
    fn what_varies_is_found_only_between_sets_that_can_be_told_apart() {
        let found = |before: Value, now: Value, identity: &Identity| {
            let places = varying(&sets(before), &sets(now), identity);
            places.map(|places| places.iter().map(|(_, key)| &**key).collect::<Vec<_>>().join(","))
        };
        let by = Identity::Keys(vec!["k".to_owned()]);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(found(json!([{"k": 1, "t": 1}]), json!([{"t": 2, "k": 1, "u": 1}]), &by), text("t,u"));
        assert_eq!(found(json!([{"k": 1}]), json!([{"k": 2}]), &by), text(""), "another set is no noise");
        assert_eq!(found(json!([{"k": 1}, {"k": 1}]), json!([{"k": 1}]), &by), None, "two sets with one identity");
        assert_eq!(found(json!([{"t": 1}]), json!([{"t": 2}]), &Identity::Auto), text("t"), "the only set");
        assert_eq!(found(json!([{"t": 1}, {"t": 2}]), json!([{"t": 3}, {"t": 4}]), &Identity::Auto), None);
    }
}
