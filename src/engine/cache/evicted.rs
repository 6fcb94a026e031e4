//! The keys that a bounded map evicted. A missing entry under such a key never counts as "there was nothing".

use std::collections::HashSet;

use super::Key;

/// How many keys are stored, at 8 bytes each.
const MAX_KEYS: usize = 200_000;

/// Keys that were evicted, by their first bytes.
#[derive(Debug, Default)]
pub(crate) struct EvictedKeys {
    keys: HashSet<[u8; 8]>,
    /// Set if there were too many keys to store. Then any key may have been evicted.
    is_full: bool,
}

impl EvictedKeys {
    /// Notes that `key` was evicted.
    pub(crate) fn insert(&mut self, key: &Key) {
        self.is_full |= self.keys.len() >= MAX_KEYS;
        if !self.is_full {
            self.keys.insert(first_bytes(key));
        }
    }

    /// Whether `key` may have been evicted.
    #[must_use]
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.is_full || self.keys.contains(&first_bytes(key))
    }
}

fn first_bytes(key: &Key) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&key.as_bytes()[..8]);
    bytes
}
