//! Twenty fixed seeds, the same each time, and the report of a failing one.

use super::*;
use crate::{fleet::Deployed, plan::Act, sources::Trouble, truth::Set, volume::Damage};

/// How long each run is, as in `make simulate`: thirty days in all.
const LASTS: Duration = Duration::from_hours(36);

fn hold(seeds: std::ops::RangeInclusive<u64>) {
    let mut outcomes = Vec::new();
    for number in seeds {
        let outcome = run(Seed(number), LASTS).unwrap();
        assert!(outcome.violation().is_none(), "{}", shrink(outcome).unwrap().describe());
        outcomes.push(outcome);
    }
}

#[test]
fn seeds_1_to_5_hold() {
    hold(1..=5);
}

#[test]
fn seeds_6_to_10_hold() {
    hold(6..=10);
}

#[test]
fn seeds_11_to_15_hold() {
    hold(11..=15);
}

#[test]
fn seeds_16_to_20_hold() {
    hold(16..=20);
}

/// A replica whose file was damaged held each new preview, although the store shows that there never was another answer.
#[test]
fn a_damaged_file_of_a_replica_says_nothing_of_what_is_new_to_the_store() {
    let (hour, minute) = (Duration::from_hours(1), Duration::from_mins(1));
    let acts = vec![(hour, Act::Damage(0, 100, Damage::MarksGone)), (7 * hour + minute, Act::Open(40))];
    let plan =
        Plan { acts, deployed: Deployed::ReplicasWithFiles(2), lasts: 8 * hour, ..Plan::of(Seed(1), Duration::ZERO) };
    let outcome = run_plan(&plan).unwrap();
    assert!(outcome.violation().is_none(), "{}", outcome.describe());
}

#[test]
fn one_seed_is_one_history() {
    for seed in [21, 22, 23, 24] {
        let plan = Plan::of(Seed(seed), Duration::from_hours(8));
        let (first, second) = (run_plan(&plan).unwrap(), run_plan(&plan).unwrap());
        assert_eq!(first.history.last(10_000), second.history.last(10_000), "seed {seed}");
    }
}

#[test]
fn a_run_in_which_nothing_happens_has_tried_too_little() {
    let quiet = Plan { acts: Vec::new(), ..Plan::of(Seed(1), Duration::from_hours(24)) };
    let outcome = run_plan(&quiet).unwrap();
    assert!(outcome.violation().is_none(), "{}", outcome.describe());
    check_what_was_tried(&outcome);
    assert!(outcome.describe().contains("too little was tried"), "{}", outcome.describe());
}

#[test]
fn a_plan_is_told_in_sentences_and_shrinks_to_what_matters() {
    let plan = Plan::of(Seed(3), Duration::from_hours(6));
    let described = plan.describe();
    assert_eq!(described.lines().count(), plan.acts.len());
    // A source that says the same wrong thing for most of an hour is believed.
    let lie = Act::Source(Set::Tenants, Trouble::LosesMost, 3000);
    let beside = |minutes: u64| (Duration::from_mins(minutes), Act::Refresh(Set::Edges));
    let acts = vec![beside(60), (Duration::from_mins(70), lie.clone()), beside(71)];
    let plan = Plan { acts, ..plan };
    let failed = run_plan(&plan).unwrap();
    let small = shrink(failed).unwrap();
    assert_eq!(small.plan.acts.iter().map(|(_, act)| act).collect::<Vec<_>>(), [&lie], "{}", small.describe());
    assert!(small.describe().contains("is deleted, and it was there all the last hour"), "{}", small.describe());
}
