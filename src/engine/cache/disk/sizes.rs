//! The sizes of the answers in the file, and which of them are evicted when there are too many.

use std::collections::{BTreeMap, HashMap};

/// The stored records, by the time of their last use (a write or a read).
#[derive(Default)]
pub(super) struct Sizes {
    /// When it was last used, as a counter, and its size in bytes.
    by_key: HashMap<[u8; 32], (u64, u64)>,
    by_use: BTreeMap<u64, [u8; 32]>,
    uses: u64,
    total: u64,
}

impl Sizes {
    /// A record of `size` bytes was written.
    pub(super) fn note(&mut self, key: [u8; 32], size: u64) {
        self.forget(&key);
        self.uses += 1;
        self.by_key.insert(key, (self.uses, size));
        self.by_use.insert(self.uses, key);
        self.total += size;
    }

    /// A record was removed.
    pub(super) fn forget(&mut self, key: &[u8; 32]) {
        if let Some((uses, size)) = self.by_key.remove(key) {
            self.by_use.remove(&uses);
            self.total -= size;
        }
    }

    /// A record was used.
    pub(super) fn used(&mut self, key: [u8; 32]) {
        if let Some((_, size)) = self.by_key.get(&key) {
            self.note(key, *size);
        }
    }

    /// The records to remove, least recently used first, so that about `max` bytes are left once the
    /// records of `batch` (key and size) are written.
    pub(super) fn victims(&self, batch: &[([u8; 32], u64)], max: u64) -> Vec<[u8; 32]> {
        let new: HashMap<[u8; 32], u64> = batch.iter().copied().collect();
        let replaced: u64 = new.keys().filter_map(|key| Some(self.by_key.get(key)?.1)).sum();
        let mut total = self.total - replaced + new.values().sum::<u64>();
        if total <= max {
            return Vec::new();
        }
        let mut victims = Vec::new();
        let old = self.by_use.values().filter(|key| !new.contains_key(*key));
        let old = old.filter_map(|key| Some((*key, self.by_key.get(key)?.1)));
        let mut rest = new.clone();
        // A key that was written twice counts at its last write. This matters only for a batch larger than `max`.
        let own = batch.iter().rev().filter_map(|(key, _)| rest.remove_entry(key)).collect::<Vec<_>>();
        for (key, size) in old.chain(own.into_iter().rev()) {
            if total <= max {
                break;
            }
            total -= size;
            victims.push(key);
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_use_least_recently_leave_first() {
        let key = |n: u8| [n; 32];
        let mut sizes = Sizes::default();
        (1..=4).for_each(|n| sizes.note(key(n), 10));
        sizes.used(key(1));
        assert_eq!(sizes.victims(&[(key(5), 10)], 50), Vec::<[u8; 32]>::new());
        assert_eq!(sizes.victims(&[(key(5), 10)], 30), [key(2), key(3)]);
        // A record that is written again replaces the earlier one.
        assert_eq!(sizes.victims(&[(key(2), 20)], 40), [key(3)]);
        assert_eq!(sizes.victims(&[(key(5), 10), (key(6), 10), (key(5), 10)], 10), [2, 3, 4, 1, 6].map(key));
        sizes.forget(&key(2));
        assert_eq!(sizes.victims(&[], 20), [key(3)]);
    }
}
