use std::{
    sync::{Arc, Weak},
    thread,
};

use proptest::prelude::*;

use super::*;

/// The keys, the most recently used first.
fn keys<V: Clone>(map: &Recent<u32, V>) -> Vec<u32> {
    map.snapshot().into_iter().map(|(key, _)| key).collect()
}

/// A map in which each value is its weight.
fn weighed(max: usize) -> Recent<u32, usize> {
    Recent::weighed(max, |_, weight| *weight)
}

#[test]
fn a_full_map_takes_in_what_is_new() {
    let map = Recent::new(10);
    for key in 0..1000 {
        assert_eq!(map.get(&key), None);
        map.insert(key, key);
        assert_eq!(map.get(&key), Some(key));
    }
    assert_eq!(map.len(), 10);
}

#[test]
fn the_least_recently_used_entry_leaves_first() {
    let map = Recent::new(3);
    (1..=3).for_each(|key| assert_eq!(map.insert(key, "old"), []));
    assert_eq!(map.get(&1), Some("old"));
    assert!(map.contains_key(&2), "a check whether it is there does not count as a use");
    assert_eq!(map.insert(4, "new"), [(2, "old")]);
    assert_eq!(map.insert(3, "new"), [], "a value that is replaced does not leave");
    assert_eq!(map.insert(5, "new"), [(1, "old")]);
    assert_eq!(keys(&map), [5, 3, 4]);
}

#[test]
fn a_heavy_entry_displaces_several() {
    let map = weighed(10);
    for (key, weight) in [(1, 3), (2, 3), (3, 4)] {
        assert_eq!(map.insert(key, weight), []);
    }
    assert_eq!(map.insert(4, 6), [(1, 3), (2, 3)]);
    assert_eq!(map.insert(3, 5), [(4, 6)], "the former weight of the key does not count");
    assert_eq!(map.insert(5, 10), [(3, 5)]);
    assert_eq!(map.0.lock().weight, 10);
}

#[test]
fn an_entry_that_is_too_heavy_leaves_at_once_and_displaces_no_other() {
    let map = weighed(10);
    map.insert(1, 4);
    map.insert(2, 4);
    assert_eq!(map.insert(3, 11), [(3, 11)]);
    assert_eq!(keys(&map), [2, 1]);
    assert_eq!(map.insert(2, 11), [(2, 11)]);
    assert_eq!(map.get(&2), None, "the former value is no longer true");
    assert_eq!((keys(&map), map.0.lock().weight), (vec![1], 4));
    assert_eq!(Recent::new(0).insert(1, 1), [(1, 1)]);
}

#[test]
fn an_entry_is_found_until_its_time_is_over() {
    let map = Recent::new(10).with_ttl(Duration::from_mins(1));
    let (mut entries, start) = (map.0.lock(), Instant::now());
    let at = |seconds| Some(start + Duration::from_secs(seconds));
    entries.insert(1, "a", at(0));
    entries.insert(2, "b", at(30));
    assert_eq!(entries.get(&1, at(59)), Some(&"a"), "being read does not prolong it");
    assert_eq!(entries.get(&1, at(60)), None);
    entries.insert(1, "c", at(60));
    assert_eq!(entries.get(&1, at(119)), Some(&"c"), "a new value has its own time");
    let removed = entries.insert(3, "d", at(90));
    assert_eq!(removed.left, [(2, "b")], "old entries leave although there is room");
    assert_eq!((entries.weight, entries.by_use.len()), (2, 2));
}

#[test]
fn an_entry_whose_time_is_over_is_absent_for_each_operation() {
    let map = Recent::new(10).with_ttl(Duration::ZERO);
    let insert = || assert!(map.insert_if_absent(1, 1), "absent");
    insert();
    insert();
    assert_eq!(map.get(&1), None);
    assert!(!map.contains_key(&1));
    assert_eq!(map.snapshot(), []);
    assert_eq!(map.remove(&1), None);
    insert();
    assert_eq!(map.get_or_insert_with(1, || 2), 2);
    map.update(1, |known| known.copied().unwrap_or(3));
}

#[test]
fn updates_of_several_threads_are_not_lost() {
    let map = Recent::new(2);
    let fresh = thread::scope(|scope| {
        let work = || {
            (0..1000).for_each(|_| map.update("count", |known| known.copied().unwrap_or_default() + 1));
            usize::from(map.insert_if_absent("first", 0))
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!((map.get("count"), fresh), (Some(8000), 1));
}

#[test]
fn callers_who_come_together_get_the_same_value() {
    let map = Recent::new(2);
    let values: Vec<Arc<()>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| map.get_or_insert_with(1, Arc::default))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(values.iter().all(|value| Arc::ptr_eq(value, &values[0])));
}

#[test]
fn values_are_dropped_after_the_lock_is_released() {
    struct Probe(Weak<Recent<u32, Arc<Probe>>>);
    impl Drop for Probe {
        fn drop(&mut self) {
            assert!(self.0.upgrade().is_none_or(|map| !map.0.is_locked()));
        }
    }
    for ttl in [Duration::MAX, Duration::ZERO] {
        let map = Arc::new(Recent::weighed(2, |key, _| if *key == 9 { 3 } else { 1 }).with_ttl(ttl));
        let probe = || Arc::new(Probe(Arc::downgrade(&map)));
        for key in [1, 1, 2, 3, 9] {
            map.insert(key, probe());
            map.update(key, |_| probe());
            map.get_or_insert_with(key + 10, probe);
            map.insert_if_absent(key + 20, probe());
        }
        map.insert(1, probe());
        map.remove(&1);
        map.insert(2, probe());
        map.clear();
        assert_eq!(map.len(), 0);
    }
}

#[test]
fn it_is_shown_as_a_map() {
    let map = Recent::new(2);
    assert_eq!(format!("{map:?}"), "{}");
    map.insert(1, "a");
    map.insert(2, "b");
    assert_eq!(format!("{map:?}"), r#"{2: "b", 1: "a"}"#);
}

/// The operations on a map.
#[derive(Debug, Clone, Copy)]
enum Action {
    Get(u32),
    Contains(u32),
    Insert(u32, usize),
    InsertIfAbsent(u32, usize),
    Update(u32, usize),
    GetOrInsert(u32, usize),
    Remove(u32),
    Clear,
}

fn action() -> impl Strategy<Value = Action> {
    let (key, value) = (0_u32..8, 0_usize..14);
    prop_oneof![
        4 => key.clone().prop_map(Action::Get),
        1 => key.clone().prop_map(Action::Contains),
        6 => (key.clone(), value.clone()).prop_map(|(key, value)| Action::Insert(key, value)),
        2 => (key.clone(), value.clone()).prop_map(|(key, value)| Action::InsertIfAbsent(key, value)),
        2 => (key.clone(), value.clone()).prop_map(|(key, value)| Action::Update(key, value)),
        2 => (key.clone(), value).prop_map(|(key, value)| Action::GetOrInsert(key, value)),
        2 => key.prop_map(Action::Remove),
        1 => Just(Action::Clear),
    ]
}

/// The heaviest that the entries of the model may be together.
const MAX_WEIGHT: usize = 12;

/// A list of entries whose values are their weights, the most recently used first.
#[derive(Default)]
struct Model(Vec<(u32, usize)>);

impl Model {
    fn remove(&mut self, key: u32) -> Option<usize> {
        let index = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.remove(index).1)
    }

    fn get(&mut self, key: u32) -> Option<usize> {
        let value = self.remove(key)?;
        self.0.insert(0, (key, value));
        Some(value)
    }

    fn insert(&mut self, key: u32, value: usize) -> Vec<(u32, usize)> {
        self.remove(key);
        if value > MAX_WEIGHT {
            return vec![(key, value)];
        }
        self.0.insert(0, (key, value));
        let mut left = Vec::new();
        while self.weight() > MAX_WEIGHT {
            left.extend(self.0.pop());
        }
        left
    }

    fn weight(&self) -> usize {
        self.0.iter().map(|(_, weight)| weight).sum()
    }

    /// Does `action` to the map and to the model, and compares what they return.
    fn compare(&mut self, map: &Recent<u32, usize>, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Get(key) => prop_assert_eq!(map.get(&key), self.get(key)),
            Action::Contains(key) => {
                prop_assert_eq!(map.contains_key(&key), self.0.iter().any(|(known, _)| *known == key));
            }
            Action::Insert(key, value) => prop_assert_eq!(map.insert(key, value), self.insert(key, value)),
            Action::InsertIfAbsent(key, value) => {
                let is_absent = self.get(key).is_none();
                if is_absent {
                    self.insert(key, value);
                }
                prop_assert_eq!(map.insert_if_absent(key, value), is_absent);
            }
            Action::Update(key, value) => {
                let before = self.get(key);
                let after = before.unwrap_or_default() / 2 + value;
                self.insert(key, after);
                let mut seen = None;
                map.update(key, |known| {
                    seen = known.copied();
                    after
                });
                prop_assert_eq!(seen, before);
            }
            Action::GetOrInsert(key, value) => {
                let expected = self.get(key).unwrap_or_else(|| {
                    self.insert(key, value);
                    value
                });
                prop_assert_eq!(map.get_or_insert_with(key, || value), expected);
            }
            Action::Remove(key) => prop_assert_eq!(map.remove(&key), self.remove(key)),
            Action::Clear => {
                self.0.clear();
                map.clear();
            }
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn a_map_does_what_a_list_in_the_order_of_use_does(actions in prop::collection::vec(action(), 0..100)) {
        let (map, mut model) = (weighed(MAX_WEIGHT), Model::default());
        for action in actions {
            model.compare(&map, action)?;
            prop_assert_eq!(map.snapshot(), &*model.0);
            prop_assert_eq!((map.len(), map.0.lock().weight), (model.0.len(), model.weight()));
        }
    }
}
