//! Twenty fixed seeds, the same each time, and the report of a failing one.

use super::*;
use crate::{
    api::ApiState,
    fleet::Deployed,
    link::LinkState,
    plan::{Act, Delivery},
    sources::Trouble,
    truth::Set,
    volume::Damage,
};

mod elements;

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

/// Seed 3-43: another change of a list was taken for the news of a webhook, and the news, which its source had later, was not looked for any more.
#[test]
fn a_webhook_about_a_list_is_followed_although_something_else_is_new() {
    let (at, minute) = (Duration::from_mins(62), Duration::from_mins(1));
    let acts = vec![(at, Act::Add(Set::Edges)), (at, Act::Deliver(Set::Edges, Delivery::Early(51)))];
    let plan = Plan { acts, deployed: Deployed::Replicas(2), lasts: 100 * minute, ..Plan::of(Seed(1), Duration::ZERO) };
    let outcome = run_plan(&plan).unwrap();
    assert!(outcome.violation().is_none(), "{}", outcome.describe());
    assert_eq!(outcome.history.counts().get("refresh"), Some(&2), "{}", outcome.history.last(10_000));
}

/// Over a link that delivers each request twice, each commit conflicted with itself and was made eight times, and all others synced after each.
#[test]
fn a_commit_that_arrives_twice_is_not_made_again() {
    hold(163..=163);
}

/// Seed 3-48: the store went back to a backup while a replica got no replies. It was waited for for ten minutes, and then every record counted as lost.
#[test]
fn one_replica_without_replies_loses_nothing_of_what_others_have() {
    let minutes = |minutes: u64| Duration::from_mins(minutes);
    let acts = vec![
        (minutes(60), Act::Backup(1108)),
        (minutes(75), Act::Link(2, LinkState::Slow(134), 1165)),
        (minutes(80), Act::Open(313)),
    ];
    let plan = Plan { acts, deployed: Deployed::Replicas(3), lasts: minutes(130), ..Plan::of(Seed(1), Duration::ZERO) };
    let outcome = run_plan(&plan).unwrap();
    assert!(outcome.violation().is_none(), "{}", outcome.describe());
    let said = outcome.history.last(10_000);
    assert!(said.contains("the store has lost something") && !said.contains("is lost;"), "{said}");
}

/// How often a webhook about a list that Argo CD reads every ten minutes leads to a refresh, and what else was said.
fn after_a_webhook(delivery: Delivery, fault: Option<Act>) -> (u64, String) {
    let minutes = |minutes: u64| Duration::from_mins(minutes);
    let mut acts: Vec<_> = fault.into_iter().map(|act| (minutes(61), act)).collect();
    acts.push((minutes(62), Act::Deliver(Set::Edges, delivery)));
    let plan = Plan { acts, deployed: Deployed::Replicas(3), lasts: minutes(100), ..Plan::of(Seed(1), Duration::ZERO) };
    let outcome = run_plan(&plan).unwrap();
    assert!(outcome.violation().is_none(), "{}", outcome.describe());
    (outcome.history.counts().get("refresh").copied().unwrap_or_default(), outcome.history.last(10_000))
}

#[test]
fn a_webhook_makes_argo_cd_ask_and_what_gets_lost_comes_later() {
    for delivery in [Delivery::InTime, Delivery::Early(40), Delivery::Late(40), Delivery::Twice(3)] {
        let (refreshed, said) = after_a_webhook(delivery, None);
        assert_eq!(refreshed, 1, "{delivery:?}: {said}");
    }
    assert_eq!(after_a_webhook(Delivery::Lost, None).0, 0);
    let (refreshed, said) = after_a_webhook(Delivery::InTime, Some(Act::Api(ApiState::Away, 200)));
    assert!(refreshed == 1 && said.contains("the gateway annotates ApplicationSet edges"), "{said}");
    let (refreshed, said) = after_a_webhook(Delivery::InTime, Some(Act::Api(ApiState::Unnoticed, 200)));
    // Each recheck finds that Argo CD did not ask.
    assert!(refreshed == 3 && said.contains("the controller does not see it"), "{said}");
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
