use proptest::prelude::*;

use super::*;

/// The key with this number, of this route.
fn key(route: u8, number: u8) -> Key {
    let mut bytes = [0; 32];
    (bytes[0], bytes[31]) = (number, route);
    Key::of_bytes(bytes)
}

fn route(number: u8) -> RouteId {
    key(number, 0).route()
}

/// The numbers of the keys of `route` that are there.
fn there(shares: &Shares<Key, ()>, of: u8) -> Vec<u8> {
    let keys = shares.iter().map(|(key, ())| *key);
    let mut numbers: Vec<u8> = keys.filter(|key| key.route() == route(of)).map(|key| key.as_bytes()[0]).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn a_single_route_may_use_the_whole_limit() {
    let mut shares = Shares::new(100);
    (0..20).for_each(|n| drop(shares.insert(key(1, n), (), 10)));
    assert_eq!(there(&shares, 1), (10..20).collect::<Vec<_>>());
    assert_eq!((shares.share(route(1)), shares.share(route(2))), (100, 50));
}

#[test]
fn the_greatest_user_loses_its_own_records() {
    let mut shares = Shares::new(100);
    (0..4).for_each(|n| drop(shares.insert(key(1, n), (), 10)));
    for n in 0..200 {
        let left = shares.insert(key(2, n), (), 10);
        assert!(left.iter().all(|(key, ())| key.route() == route(2)), "{n}");
    }
    assert_eq!(there(&shares, 1), [0, 1, 2, 3]);
    assert_eq!(there(&shares, 2), (194..200).collect::<Vec<_>>());
    // What was lent is returned.
    for n in 4..50 {
        shares.insert(key(1, n), (), 10);
    }
    assert_eq!((there(&shares, 1).len(), there(&shares, 2).len()), (5, 5));
    assert_eq!((shares.share(route(1)), shares.share(route(3))), (50, 33));
}

#[test]
fn the_least_recently_used_record_leaves_first() {
    let mut shares = Shares::new(40);
    (1..=4).for_each(|n| drop(shares.insert(key(1, n), (), 10)));
    shares.get(&key(1, 1));
    assert!(shares.peek(&key(1, 2)).is_some());
    shares.insert(key(1, 3), (), 10);
    assert_eq!(shares.insert(key(1, 5), (), 20), [(key(1, 2), ()), (key(1, 4), ())]);
    assert_eq!(shares.insert(key(1, 6), (), 41), [(key(1, 6), ())], "it is heavier than the limit");
    assert_eq!((there(&shares, 1), shares.weight()), (vec![1, 3, 5], 40));
    assert_eq!((shares.remove(&key(1, 3)), shares.remove(&key(1, 3))), (Some(()), None));
    assert_eq!(shares.usage(route(1)), Usage { records: 2, weight: 30, left: 3 });
}

#[test]
fn what_stays_does_not_leave() {
    let mut shares = Shares::new(20);
    (0..4).for_each(|n| _ = shares.put(key(1, n), (), 10));
    let mut leave = || shares.next(|key, ()| key.as_bytes()[0] < 3).map(|(key, ())| key.as_bytes()[0]);
    assert_eq!((leave(), leave()), (Some(3), None));
    assert_eq!(there(&shares, 1), [0, 1, 2]);
    shares.resize(30);
    assert_eq!(shares.next(|_, ()| false), None);
}

#[test]
fn routes_are_served_round_robin() {
    let items = [(1, 0), (1, 1), (1, 2), (2, 3), (1, 4), (3, 5), (2, 6)].map(|(route, number)| key(route, number));
    let order: Vec<u8> = round_robin(items.to_vec(), Key::route).iter().map(|key| key.as_bytes()[0]).collect();
    assert_eq!(order, [0, 3, 5, 1, 6, 2, 4]);
}

proptest! {
    /// No route loses anything while it uses no more than an equal part of the limit, and the limit is never exceeded.
    #[test]
    fn whoever_uses_an_equal_part_keeps_it(steps in prop::collection::vec((0..4_u8, 0..8_u8, 1..30_u64), 1..200)) {
        let mut shares = Shares::new(100);
        for (of, n, weight) in steps {
            let uses: Vec<u64> = (0..4).map(|other| shares.usage(route(other)).weight).collect();
            let left = shares.insert(key(of, n), (), weight);
            prop_assert!(shares.weight() <= 100);
            for (key, ()) in left {
                let other = key.as_bytes()[31];
                prop_assert!(other == of || uses[usize::from(other)] > 25, "{other} lost a record for {of}");
            }
            let total: u64 = (0..4).map(|other| shares.usage(route(other)).weight).sum();
            prop_assert_eq!(total, shares.weight());
        }
    }
}
