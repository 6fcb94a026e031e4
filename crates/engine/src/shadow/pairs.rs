//! Pairs of sets that have one identity in two answers, and the values that differ in them. Pure.

use std::sync::Arc;

use crate::guard::{
    Identity,
    identity::{USUAL_KEYS, identities},
};
use domain::{difference::Difference, generator::ParameterSet};

/// The identity of the only set of an answer, if no key identifies it.
const ONLY: u64 = 0;

/// A value of an answer: the identity of its set, and its key.
pub(super) type Place = (u64, Arc<str>);

/// The values that differ in sets of both lists that have one identity. `None` if nothing identifies the sets.
pub(super) fn varying(before: &[ParameterSet], now: &[ParameterSet], identity: &Identity) -> Option<Vec<Place>> {
    let keys = keys(identity, [before, now]);
    let is_identified = if keys.is_empty() {
        before.len() == 1 && now.len() == 1
    } else {
        identities(before, &keys).is_some() && identities(now, &keys).is_some()
    };
    if !is_identified {
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
pub(super) fn differing<'a>(one: &'a ParameterSet, other: &'a ParameterSet) -> impl Iterator<Item = &'a str> {
    let only_other = other.0.keys().filter(|key| !one.0.contains_key(*key));
    one.0.keys().chain(only_other).filter(|key| one.0.get(*key) != other.0.get(*key)).map(String::as_str)
}

/// The identity of `set` by `keys`.
pub(super) fn id(set: &ParameterSet, keys: &[String]) -> Option<u64> {
    if keys.is_empty() { Some(ONLY) } else { identities(std::slice::from_ref(set), keys)?.first().copied() }
}

/// The keys that identify the sets of both lists. With `auto`, the first usual key that all sets have, and that identifies the sets of each
/// list. Empty if sets can only be counted.
pub(super) fn keys(identity: &Identity, lists: [&[ParameterSet]; 2]) -> Vec<String> {
    match identity {
        Identity::Keys(keys) => keys.clone(),
        Identity::Auto => {
            let usual = USUAL_KEYS.into_iter().map(|key| vec![key.to_owned()]);
            let identifies = |keys: &Vec<String>| lists.iter().all(|sets| identities(sets, keys).is_some());
            usual.into_iter().find(identifies).unwrap_or_default()
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

    #[test]
    fn what_varies_is_found_only_between_sets_that_are_identified() {
        let found = |before: Value, now: Value, identity: &Identity| {
            let places = varying(&sets(before), &sets(now), identity);
            places.map(|places| places.iter().map(|(_, key)| &**key).collect::<Vec<_>>().join(","))
        };
        let by = Identity::Keys(vec!["k".to_owned()]);
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(found(json!([{"k": 1, "t": 1}]), json!([{"t": 2, "k": 1, "u": 1}]), &by), text("t,u"));
        assert_eq!(found(json!([{"k": 1}]), json!([{"k": 2}]), &by), text(""), "another set is not noise");
        assert_eq!(found(json!([{"k": 1}, {"k": 1}]), json!([{"k": 1}]), &by), None, "two sets with one identity");
        assert_eq!(found(json!([{"t": 1}]), json!([{"t": 2}]), &Identity::Auto), text("t"), "the only set");
        assert_eq!(found(json!([{"t": 1}, {"t": 2}]), json!([{"t": 3}, {"t": 4}]), &Identity::Auto), None);
    }
}
