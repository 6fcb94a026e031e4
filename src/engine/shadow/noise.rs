//! What varies between successive answers of a route's own backend to one question. A candidate cannot have the same values there, so they
//! are not compared. The backend is never asked more often for this.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use moka::sync::Cache;

use super::comparison::varying;
use crate::{
    bounded_cache::{self, Bounded},
    engine::{
        cache::{Encoded, Key},
        guard::Identity,
    },
};

/// The size of all answers that are remembered for one route, in bytes. Those of the cache are not stored twice.
const LARGEST: u64 = 32 * 1024 * 1024;
/// The size of a question beside its answer, in bytes.
const BESIDE: usize = 512;
/// How many keys are remembered for one question.
const MAX_KEYS: usize = 256;
/// A key is noise if it varied in one of this many successive pairs of answers. A value that changes with the source now and then, such as
/// a digest, is compared again after a while.
const RARE: u32 = 10;
/// After this many pairs, older ones count half.
const MAX_PAIRS: u32 = 100;

/// What varies, by question.
pub(super) struct Noise(Bounded<Key, Arc<Known>>);

/// What is known of one question.
#[derive(Debug, Clone)]
struct Known {
    /// The last answer.
    last: Encoded,
    /// How many pairs of successive answers were compared.
    pairs: u32,
    /// In how many of them each key varied.
    varied: BTreeMap<String, u32>,
}

impl Default for Noise {
    fn default() -> Self {
        let size = |_: &Key, known: &Arc<Known>| {
            u32::try_from(known.last.body().len().saturating_add(BESIDE)).unwrap_or(u32::MAX)
        };
        Self(bounded_cache::build_recent(Cache::builder().max_capacity(LARGEST).weigher(size)))
    }
}

impl Noise {
    /// Compares `now` with the last answer to the question `key`, and remembers it.
    pub(super) fn learn(&self, key: Key, now: Encoded, identity: &Identity) {
        let known = match self.0.get(&key) {
            Some(before) => before.after(now, identity),
            None => Known { last: now, pairs: 0, varied: BTreeMap::new() },
        };
        self.0.insert(key, Arc::new(known));
    }

    /// The keys that are noise in answers to the question `key`.
    pub(super) fn of(&self, key: &Key) -> BTreeSet<String> {
        self.0.get(key).map(|known| known.noise().cloned().collect()).unwrap_or_default()
    }

    /// The keys that are noise in answers to any question.
    pub(super) fn all(&self) -> BTreeSet<String> {
        let all = self.0.iter().flat_map(|(_, known)| known.noise().cloned().collect::<Vec<_>>());
        all.take(MAX_KEYS).collect()
    }
}

impl Known {
    /// What is known after one more answer, `now`.
    fn after(&self, now: Encoded, identity: &Identity) -> Self {
        let is_same = self.last.body() == now.body();
        let varying =
            if is_same { Some(BTreeSet::new()) } else { varying(&self.last.decode(), &now.decode(), identity) };
        let mut known = Self { last: now, ..self.clone() };
        let Some(varying) = varying else { return known };
        known.pairs += 1;
        for key in varying {
            if known.varied.len() < MAX_KEYS || known.varied.contains_key(&key) {
                *known.varied.entry(key).or_default() += 1;
            }
        }
        if known.pairs > MAX_PAIRS {
            known.pairs /= 2;
            known.varied.values_mut().for_each(|count| *count /= 2);
            known.varied.retain(|_, count| *count > 0);
        }
        known
    }

    fn noise(&self) -> impl Iterator<Item = &String> {
        self.varied.iter().filter(|(_, count)| count.saturating_mul(RARE) >= self.pairs).map(|(key, _)| key)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::domain::generator::ParameterSet;

    const KEY: Key = Key::of_bytes([1; 32]);

    fn answer(value: u32) -> Encoded {
        let set = json!({"name": "a", "etag": value, "v": "1"});
        Encoded::encode(&[ParameterSet(set.as_object().unwrap().clone())]).unwrap()
    }

    fn noise_after(values: impl IntoIterator<Item = u32>) -> Vec<String> {
        let noise = Noise::default();
        values.into_iter().for_each(|value| noise.learn(KEY, answer(value), &Identity::Auto));
        assert_eq!(noise.of(&KEY), noise.all());
        noise.of(&KEY).into_iter().collect()
    }

    #[test]
    fn a_key_that_varies_from_answer_to_answer_is_noise() {
        assert!(noise_after([1]).is_empty());
        assert!(noise_after([1, 1]).is_empty());
        assert_eq!(noise_after([1, 2]), ["etag"]);
        assert_eq!(noise_after(0..1000), ["etag"]);
        assert!(Noise::default().of(&KEY).is_empty());
    }

    #[test]
    fn a_key_that_changes_now_and_then_is_compared_again() {
        let stable = |runs: usize| [1].into_iter().chain(std::iter::repeat_n(2, runs));
        assert_eq!(noise_after(stable(10)), ["etag"]);
        assert!(noise_after(stable(11)).is_empty());
        assert!(noise_after(stable(1000)).is_empty());
    }
}
