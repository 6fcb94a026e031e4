//! Answers in memory: [`Sharded`] stores them, and [`Shares`] selects those to evict. [`super::policy`] evaluates their age, and
//! [`flight`] joins the runs that renew them.

use std::{path::PathBuf, sync::Arc};

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::cache::{
    Entry, EvictedKeys, Key, RouteId,
    sharded::Sharded,
    shares::{Shares, Usage},
};
use domain::units::ByteSize;
use store::StoreConfig;

/// How much is remembered.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CacheLimits {
    /// The most memory that answers take. Routes share it: when it is full, the route that uses the most loses its
    /// least recently used answers. Beside the answers, recent requests are remembered in up to a quarter of this size, so that the
    /// next ones like them take less time.
    pub memory: ByteSize,
    /// The file in which last good answers outlive a restart and `kill -9`, relative to the configuration file. Without
    /// it they live in memory only. Four more files stand beside it (`.journal`, `.journal-2`, `.lost`, and `.new` for a
    /// moment), so its folder must be writable. One gateway to a file.
    pub path: Option<PathBuf>,
    /// The limit of the file and those beside it together, about. Routes share it, as they share `memory`.
    pub disk: ByteSize,
    /// A Valkey or Redis server that several replicas share. Each replica keeps a copy in memory, and in its own file if `path` is
    /// set. Takes effect at the next start.
    pub shared: Option<StoreConfig>,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { memory: ByteSize::mib(64), path: None, disk: ByteSize::mib(256), shared: None }
    }
}

/// How many answers that were used since they were last checked are passed over before one leaves all the same.
const MAX_CHECKS: usize = 64;

/// A bounded map that routes share. A hit waits for no other hit here: the time of the call is in the answer itself ([`super::LastServed`]), and it
/// is read when an answer has to leave.
#[derive(Debug, Clone)]
pub struct Memory {
    entries: Arc<Sharded>,
    book: Arc<Mutex<Book>>,
}

/// The records in memory, and the evicted ones.
#[derive(Debug)]
struct Book {
    /// The answers, with the time of their last call when they were last checked.
    shares: Shares<Key, u64>,
    evicted: EvictedKeys,
}

impl Memory {
    /// Memory for about as many bytes of answers as `limits` allow.
    #[must_use]
    pub fn new(limits: &CacheLimits) -> Self {
        let book = Book { shares: Shares::new(limits.memory.0), evicted: EvictedKeys::default() };
        Self { entries: Arc::new(Sharded::new()), book: Arc::new(Mutex::new(book)) }
    }

    /// Whether an answer under `key` was evicted.
    #[must_use]
    pub(crate) fn has_evicted(&self, key: &Key) -> bool {
        self.book.lock().evicted.contains(key)
    }

    /// The answer under `key`.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.entries.get(key)
    }

    /// Stores `entry`, which takes over when the question was last answered.
    pub fn insert(&self, key: Key, entry: Arc<Entry>) {
        if let Some(before) = self.get(&key).filter(|before| before.question == entry.question) {
            entry.last_served.follow(&before.last_served);
        }
        let mut book = self.book.lock();
        self.put(&mut book, key, entry);
    }

    /// Stores `entry` unless there is an answer already. Returns the answer that is there now.
    pub fn restore(&self, key: Key, entry: Arc<Entry>) -> Arc<Entry> {
        let mut book = self.book.lock();
        if let Some(other) = self.get(&key) {
            return other;
        }
        self.put(&mut book, key, Arc::clone(&entry));
        entry
    }

    /// Stores `entry`, and evicts answers while the limit is exceeded.
    fn put(&self, book: &mut Book, key: Key, entry: Arc<Entry>) {
        let weight = (size_of::<Key>() + entry.weight()) as u64;
        if !book.shares.fits(weight) {
            book.shares.note_left(key.route());
            return self.leave(book, &key);
        }
        book.shares.put(key, entry.last_served.stamp(), weight);
        self.entries.insert(key, entry);
        while let Some(victim) = self.next(&mut book.shares, &key) {
            self.leave(book, &victim);
        }
    }

    /// Evicts the answer under `key`.
    fn leave(&self, book: &mut Book, key: &Key) {
        book.shares.remove(key);
        book.evicted.insert(key);
        self.entries.remove(key);
    }

    /// The answer to evict next, if the limit is exceeded: the one that was not used since it was last checked. If all were,
    /// the one that was checked first. The answer under `new` has just come, and is evicted last.
    fn next(&self, shares: &mut Shares<Key, u64>, new: &Key) -> Option<Key> {
        let mut checks = 0;
        let victim = shares.next(|key, seen| {
            if key == new {
                return true;
            }
            let Some(entry) = self.get(key) else { return false };
            let before = std::mem::replace(seen, entry.last_served.stamp());
            checks += 1;
            *seen != before && checks <= MAX_CHECKS
        });
        victim.or_else(|| shares.next(|_, _| false)).map(|(key, _)| key)
    }

    /// Evicts the answer under `key`, as an exceeded limit would.
    #[cfg(test)]
    pub(crate) fn evict(&self, key: &Key) {
        self.leave(&mut self.book.lock(), key);
    }

    /// All answers.
    pub fn iter(&self) -> impl Iterator<Item = (Key, Arc<Entry>)> {
        self.entries.iter()
    }

    /// How many answers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.book.lock().shares.len()
    }

    /// About how many bytes the answers take.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.book.lock().shares.weight()
    }

    /// How much the answers of `route` take, and how much they may take before some of them leave.
    #[must_use]
    pub fn usage(&self, route: RouteId) -> (Usage, u64) {
        let book = self.book.lock();
        (book.shares.usage(route), book.shares.share(route))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::cache::{Encoded, LastServed, Life, MadeUnder, PackedQuestion, Revision};
    use domain::{clock::Timestamp, generator::Question};

    fn entry(question: &str) -> Arc<Entry> {
        Arc::new(Entry {
            encoded: Encoded::encode(&[]).unwrap(),
            question: PackedQuestion::from(&Question {
                route: question.into(),
                application_set: None,
                parameters: Arc::default(),
                part: None,
            }),
            made_under: MadeUnder { revision: Revision::of(&json!({})), trust: 0 },
            stored_at: Timestamp(0),
            queried_at: Timestamp(0),
            first_at: Timestamp(0),
            run_number: 1,
            life: Life::For(Duration::ZERO),
            took: Duration::ZERO,
            evidence: Vec::new(),
            note: None,
            elements: None,
            last_served: LastServed::default(),
        })
    }

    /// The key with this number, of this route.
    fn key(route: u8, number: u32) -> Key {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[31] = route;
        Key::of_bytes(bytes)
    }

    /// A memory for so many answers.
    fn limited_to(answers: u64) -> Memory {
        let weight = (size_of::<Key>() + entry("r").weight()) as u64;
        Memory::new(&CacheLimits { memory: ByteSize(weight * answers), ..CacheLimits::default() })
    }

    fn there(memory: &Memory, route: u8, numbers: std::ops::Range<u32>) -> Vec<u32> {
        numbers.filter(|n| memory.get(&key(route, *n)).is_some()).collect()
    }

    #[test]
    fn who_had_to_leave_is_known() {
        let memory = limited_to(10);
        for n in 0..200 {
            memory.insert(key(1, n), entry("r"));
        }
        assert_eq!((memory.len(), there(&memory, 1, 0..200)), (10, (190..200).collect()));
        assert!((0..190).all(|n| memory.has_evicted(&key(1, n))));
        assert!(!(190..201).any(|n| memory.has_evicted(&key(1, n))));
    }

    #[test]
    fn what_was_used_stays() {
        let memory = limited_to(10);
        let mut now = 1;
        for n in 0..200 {
            memory.insert(key(1, n), entry("r"));
            memory.get(&key(1, 0)).unwrap().last_served.note(Timestamp(now));
            now += 1;
        }
        let left: Vec<u32> = std::iter::once(0).chain(191..200).collect();
        assert_eq!(there(&memory, 1, 0..200), left);
        // If all were, the one that came first leaves, and not the new one.
        for n in left {
            memory.get(&key(1, n)).unwrap().last_served.note(Timestamp(now));
        }
        memory.insert(key(1, 300), entry("r"));
        assert_eq!((memory.len(), there(&memory, 1, 300..301)), (10, vec![300]));
    }

    #[test]
    fn a_route_does_not_push_out_the_answers_of_another() {
        let memory = limited_to(10);
        (0..5).for_each(|n| memory.insert(key(1, n), entry("quiet")));
        (0..1000).for_each(|n| memory.insert(key(2, n), entry("loud")));
        assert_eq!(there(&memory, 1, 0..5).len(), 5);
        assert_eq!(there(&memory, 2, 0..1000), (995..1000).collect::<Vec<_>>());
        assert!(!(0..1000).any(|n| memory.has_evicted(&key(1, n))));
        assert_eq!(memory.usage(key(1, 0).route()).0.records, 5);
    }
}
