//! The values that vary between successive answers of a route's own backend to one question. A candidate cannot have the same values there, so they
//! are not compared. It is learned for each parameter set, so a value that changes in one set is still compared in all others. The backend
//! is never called more often for this.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    cache::{Encoded, Key},
    guard::Identity,
    shadow::pairs::{Place, varying},
};
use domain::bounded_cache::Recent;

/// The size of the memory for one route, in bytes. The answers of the cache are counted, but not stored twice.
const LARGEST: usize = 8 * 1024 * 1024;
/// The size of a question beside its answer and its values, in bytes.
const BESIDE: usize = 512;
/// The size of one value that varied, in bytes.
const VALUE: usize = 64;
/// How many values are remembered for one question. Further values that vary are compared.
const MAX_VALUES: usize = 20_000;
/// How many keys are listed for one route.
const MAX_KEYS: usize = 256;
/// A value is noise if it varied in one of this many successive pairs of answers. A value that changes with the source now and then, such
/// as a digest, is compared again after a while.
const RARE: u32 = 10;
/// After this many pairs, older ones count half.
const MAX_PAIRS: u32 = 100;

/// The varying values, by question.
pub(super) struct Noise(Recent<Key, Arc<Known>>);

/// The varying values of one question.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The last answer.
    last: Encoded,
    /// How many pairs of successive answers were compared.
    pairs: u32,
    /// The values that varied.
    varied: HashMap<Place, Varied>,
}

/// How often a value varied.
#[derive(Debug, Clone, Copy)]
struct Varied {
    /// The number of the pair from which it is counted.
    since: u32,
    /// In how many pairs it varied.
    count: u32,
}

impl Default for Noise {
    fn default() -> Self {
        Self(Recent::weighed(LARGEST, |_, known| known.last.body().len() + BESIDE + known.varied.len() * VALUE))
    }
}

impl Noise {
    /// Compares `now` with the last answer to the question `key`, and remembers it.
    pub(super) fn learn(&self, key: Key, now: Encoded, identity: &Identity) {
        let known = match self.0.get(&key) {
            Some(before) => before.after(now, identity),
            None => Known { last: now, pairs: 0, varied: HashMap::new() },
        };
        self.0.insert(key, Arc::new(known));
    }

    /// The varying values of the question `key`.
    pub(super) fn of(&self, key: &Key) -> Option<Arc<Known>> {
        self.0.get(key)
    }

    /// The keys whose values are noise in some set of an answer to any question.
    pub(super) fn keys(&self) -> BTreeSet<String> {
        let mut keys = BTreeSet::new();
        for (_, known) in self.0.snapshot() {
            keys.extend(known.noise().map(|(_, key)| key.to_string()));
            if keys.len() >= MAX_KEYS {
                break;
            }
        }
        keys.into_iter().take(MAX_KEYS).collect()
    }
}

impl Known {
    /// Whether the value under `key` in the set with the identity `set` is noise.
    pub(super) fn is_noise(&self, set: u64, key: &str) -> bool {
        self.varied.get(&(set, key.into())).is_some_and(|varied| varied.is_noise(self.pairs))
    }

    /// The varying values after one more answer, `now`.
    fn after(&self, now: Encoded, identity: &Identity) -> Self {
        let is_same = self.last.body() == now.body();
        let varying = if is_same { Some(Vec::new()) } else { varying(&self.last.decode(), &now.decode(), identity) };
        let mut known = Self { last: now, ..self.clone() };
        let Some(varying) = varying else { return known };
        known.pairs += 1;
        let number = known.pairs;
        for place in varying {
            if known.varied.len() < MAX_VALUES || known.varied.contains_key(&place) {
                known.varied.entry(place).or_insert(Varied { since: number, count: 0 }).count += 1;
            }
        }
        known.varied.values_mut().for_each(|varied| varied.age(number));
        // A value that changes now and then stays recorded as long as the limit allows.
        if known.varied.len() > MAX_VALUES / 2 {
            known.varied.retain(|_, varied| varied.count > 0);
        }
        known
    }

    fn noise(&self) -> impl Iterator<Item = &Place> {
        self.varied.iter().filter(|(_, varied)| varied.is_noise(self.pairs)).map(|(place, _)| place)
    }
}

impl Varied {
    /// Whether the value varied often enough until the pair `number`.
    const fn is_noise(self, number: u32) -> bool {
        self.count.saturating_mul(RARE) > number - self.since
    }

    /// Lets older pairs count half after the pair `number`, if there are many.
    const fn age(&mut self, number: u32) {
        if number - self.since >= MAX_PAIRS {
            self.since = number - MAX_PAIRS / 2;
            self.count /= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use domain::generator::ParameterSet;

    const KEY: Key = Key::of_bytes([1; 32]);

    fn answer(sets: &serde_json::Value) -> Encoded {
        let sets: Vec<_> = serde_json::from_value::<Vec<_>>(sets.clone()).unwrap();
        Encoded::encode(&sets.into_iter().map(ParameterSet).collect::<Vec<_>>()).unwrap()
    }

    fn learned(answers: impl IntoIterator<Item = serde_json::Value>) -> Noise {
        let noise = Noise::default();
        answers.into_iter().for_each(|sets| noise.learn(KEY, answer(&sets), &Identity::Auto));
        noise
    }

    fn noise_after(values: impl IntoIterator<Item = u32>) -> Vec<String> {
        let answers = values.into_iter().map(|value| json!([{"name": "a", "etag": value, "v": "1"}]));
        learned(answers).keys().into_iter().collect()
    }

    #[test]
    fn a_key_that_varies_from_answer_to_answer_is_noise() {
        assert!(noise_after([1]).is_empty());
        assert!(noise_after([1, 1]).is_empty());
        assert_eq!(noise_after([1, 2]), ["etag"]);
        assert_eq!(noise_after(0..1000), ["etag"]);
        assert!(Noise::default().of(&KEY).is_none());
    }

    #[test]
    fn a_key_that_changes_now_and_then_is_compared_again() {
        let stable = |runs: usize| [1].into_iter().chain(std::iter::repeat_n(2, runs));
        assert_eq!(noise_after(stable(10)), ["etag"]);
        assert!(noise_after(stable(11)).is_empty());
        assert!(noise_after(stable(1000)).is_empty());
    }

    #[test]
    fn what_varies_in_one_set_is_compared_in_the_others() {
        let sets: Vec<_> = (0..1000).map(|n| json!({"name": format!("t{n}"), "at": 1})).collect();
        let mut later = sets.clone();
        later[7]["at"] = json!(2);
        let noise = learned([json!(sets), json!(later)]);
        let known = noise.of(&KEY).unwrap();
        let is_noise = |n: usize| {
            let ids = crate::guard::identity::identities(
                &[ParameterSet(sets[n].as_object().unwrap().clone())],
                &["name".to_owned()],
            );
            known.is_noise(ids.unwrap()[0], "at")
        };
        assert_eq!((0..1000).filter(|n| is_noise(*n)).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn many_values_that_vary_are_bounded() {
        let sets = |value: u32| -> serde_json::Value {
            (0..MAX_VALUES + 5).map(|n| json!({"name": n, "at": value})).collect::<Vec<_>>().into()
        };
        let noise = learned((0..3).map(sets));
        assert_eq!(noise.of(&KEY).unwrap().varied.len(), MAX_VALUES);
    }
}
