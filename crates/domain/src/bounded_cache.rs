//! Maps of limited size. A map keeps the entries that were used most recently, behind one lock. The lock is held for one operation, never across
//! an `.await`. It runs code of others in few places: weighers, `Clone` of values, and the closures of [`Recent::read`],
//! [`Recent::update`] and [`Recent::get_or_insert_with`]. Values are dropped after it is released.

#[cfg(test)]
mod tests;

use std::{
    borrow::Borrow,
    fmt,
    hash::Hash,
    mem,
    time::{Duration, Instant},
};

use foldhash::quality::RandomState;
use lru::LruCache;
use parking_lot::Mutex;

/// A map of limited size, whose least recently used entries leave first.
pub struct Recent<K, V>(Mutex<Entries<K, V>>);

/// The weight of an entry. It must not use the map.
type Weigher<K, V> = fn(&K, &V) -> usize;

/// The entries, and their limits.
struct Entries<K, V> {
    by_use: LruCache<K, Stored<V>, RandomState>,
    /// The weight of all entries together.
    weight: usize,
    max_weight: usize,
    weigher: Weigher<K, V>,
    /// How long an entry may be found after it was inserted.
    ttl: Option<Duration>,
}

/// A value with its weight, and with the time of its insertion if that matters.
struct Stored<V> {
    value: V,
    weight: usize,
    since: Option<Instant>,
}

/// The entries that an insertion removed.
struct Removed<K, V> {
    /// The former value of the key.
    _replaced: Option<Stored<V>>,
    /// The entries that left, in the order of their last use.
    left: Vec<(K, V)>,
}

impl<K: Hash + Eq, V> Recent<K, V> {
    /// A map of at most `max` entries.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self::weighed(max, |_, _| 1)
    }

    /// A map whose entries weigh at most `max_weight` together. An entry that is heavier by itself is not kept.
    #[must_use]
    pub fn weighed(max_weight: usize, weigher: Weigher<K, V>) -> Self {
        Self(Mutex::new(Entries { by_use: empty(), weight: 0, max_weight, weigher, ttl: None }))
    }

    /// The same map, in which entries are found for the time `ttl` after they were inserted.
    #[must_use]
    pub fn with_ttl(self, ttl: Duration) -> Self {
        Self(Mutex::new(Entries { ttl: Some(ttl), ..self.0.into_inner() }))
    }

    /// Whether there is an entry under `key`. This does not count as a use.
    #[cfg(test)]
    pub fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let entries = self.0.lock();
        entries.by_use.peek(key).is_some_and(|stored| !stored.is_over(entries.ttl, entries.now()))
    }

    /// The result of `read` for the value under `key`. `read` must not use the map.
    pub fn read<Q, T>(&self, key: &Q, read: impl FnOnce(&V) -> T) -> Option<T>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut entries = self.0.lock();
        let now = entries.now();
        entries.get(key, now).map(read)
    }

    /// Stores `value` under `key`. Returns the entries that had to leave. `value` is among them if it is too heavy.
    pub fn insert(&self, key: K, value: V) -> Vec<(K, V)> {
        let mut entries = self.0.lock();
        let now = entries.now();
        let removed = entries.insert(key, value, now);
        drop(entries);
        removed.left
    }

    /// Stores `value` unless there is a value under `key`. Returns whether there was none.
    pub fn insert_if_absent(&self, key: K, value: V) -> bool {
        let mut entries = self.0.lock();
        let now = entries.now();
        if entries.get(&key, now).is_some() {
            return false;
        }
        let removed = entries.insert(key, value, now);
        drop(entries);
        drop(removed);
        true
    }

    /// Replaces the value under `key` by the result of `change` for it. No other thread changes it meanwhile. `change` must not use the map.
    pub fn update(&self, key: K, change: impl FnOnce(Option<&V>) -> V) {
        let mut entries = self.0.lock();
        let now = entries.now();
        let value = change(entries.get(&key, now));
        let removed = entries.insert(key, value, now);
        drop(entries);
        drop(removed);
    }

    /// Removes the entry under `key`, and returns its value.
    pub fn remove<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut entries = self.0.lock();
        let (now, ttl) = (entries.now(), entries.ttl);
        let stored = entries.remove(key);
        drop(entries);
        stored.filter(|stored| !stored.is_over(ttl, now)).map(|stored| stored.value)
    }

    /// Removes all entries.
    pub fn clear(&self) {
        let mut entries = self.0.lock();
        entries.weight = 0;
        let before = mem::replace(&mut entries.by_use, empty());
        // The values are dropped after the lock: that may take long, or run code of others.
        drop(entries);
        drop(before);
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.lock().by_use.len()
    }
}

impl<K: Hash + Eq, V: Clone> Recent<K, V> {
    /// The value under `key`.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.read(key, V::clone)
    }

    /// The value under `key`. If there is none, it stores the one that `make` returns, which must not use the map. All callers who come
    /// together get the same value.
    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> V) -> V {
        let mut entries = self.0.lock();
        let now = entries.now();
        if let Some(value) = entries.get(&key, now) {
            return value.clone();
        }
        let value = make();
        let removed = entries.insert(key, value.clone(), now);
        drop(entries);
        drop(removed);
        value
    }

    /// All entries, the most recently used first. This does not count as a use.
    pub fn snapshot(&self) -> Vec<(K, V)>
    where
        K: Clone,
    {
        let entries = self.0.lock();
        let now = entries.now();
        let valid = entries.by_use.iter().filter(|(_, stored)| !stored.is_over(entries.ttl, now));
        valid.map(|(key, stored)| (key.clone(), stored.value.clone())).collect()
    }
}

impl<K: Hash + Eq, V> Entries<K, V> {
    /// The time, if it matters to this map.
    fn now(&self) -> Option<Instant> {
        self.ttl.map(|_| Instant::now())
    }

    /// The value under `key`, which is now the most recently used one.
    fn get<Q>(&mut self, key: &Q, now: Option<Instant>) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let stored = self.by_use.get(key)?;
        if stored.is_over(self.ttl, now) { None } else { Some(&stored.value) }
    }

    /// Stores `value`, and removes entries that have no room beside it. Old entries whose time is over leave too.
    fn insert(&mut self, key: K, value: V, now: Option<Instant>) -> Removed<K, V> {
        let weight = (self.weigher)(&key, &value);
        if weight > self.max_weight {
            return Removed { _replaced: self.remove(&key), left: vec![(key, value)] };
        }
        let replaced = self.by_use.put(key, Stored { value, weight, since: now });
        self.weight -= replaced.as_ref().map_or(0, |stored| stored.weight);
        self.weight += weight;
        let mut left = Vec::new();
        // The new entry is the last one to leave. It fits, and its time has just begun.
        while let Some((_, oldest)) = self.by_use.peek_lru() {
            if self.weight <= self.max_weight && !oldest.is_over(self.ttl, now) {
                break;
            }
            let Some((key, stored)) = self.by_use.pop_lru() else { break };
            self.weight -= stored.weight;
            left.push((key, stored.value));
        }
        Removed { _replaced: replaced, left }
    }

    /// Removes the entry under `key`.
    fn remove<Q>(&mut self, key: &Q) -> Option<Stored<V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let stored = self.by_use.pop(key)?;
        self.weight -= stored.weight;
        Some(stored)
    }
}

impl<V> Stored<V> {
    /// Whether the value was inserted at least the time `ttl` before `now`.
    fn is_over(&self, ttl: Option<Duration>, now: Option<Instant>) -> bool {
        let (Some(ttl), Some(now), Some(since)) = (ttl, now, self.since) else { return false };
        now.saturating_duration_since(since) >= ttl
    }
}

/// A map without entries, which takes no memory for them yet.
fn empty<K: Hash + Eq, V>() -> LruCache<K, V, RandomState> {
    LruCache::unbounded_with_hasher(RandomState::default())
}

impl<K: Hash + Eq + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for Recent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.snapshot()).finish()
    }
}
