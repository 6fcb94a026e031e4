//! The route with elements: what one that fails stops, and what is believed of a source that is wrong.

use super::*;
use crate::sources::Share;

const fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

fn after(deployed: Deployed, acts: Vec<(Duration, Act)>) -> Outcome {
    run_plan(&Plan { acts, deployed, lasts: minutes(180), ..Plan::of(Seed(1), Duration::ZERO) }).unwrap()
}

fn count(outcome: &Outcome, what: &str) -> u64 {
    outcome.history.counts().get(what).copied().unwrap_or_default()
}

#[test]
fn an_element_that_fails_keeps_what_it_had_and_stops_no_other() {
    for trouble in [Trouble::Unavailable, Trouble::Hangs, Trouble::Denies, Trouble::Garbles] {
        // All are pushed to while one fails, and one is closed.
        let pushed = (0..12).map(|number| (minutes(70 + number), Act::Push(20, true)));
        let acts = vec![(minutes(65), Act::Elements(Share::One, trouble, 6000)), (minutes(90), Act::Close)];
        let outcome = after(Deployed::Replicas(2), acts.into_iter().chain(pushed).collect());
        assert!(outcome.violation().is_none(), "{}", outcome.describe());
        assert!(count(&outcome, "answer with elements as last known") > 10, "{}", outcome.history.last(10_000));
    }
}

#[test]
fn while_all_elements_fail_nothing_changes() {
    let all = Act::Elements(Share::All, Trouble::Unavailable, 1500);
    for deployed in [Deployed::Alone, Deployed::Replicas(3)] {
        let acts = vec![(minutes(60), Act::Open(20)), (minutes(60), all.clone()), (minutes(61), Act::Close)];
        let outcome = after(deployed, acts);
        assert!(outcome.violation().is_none(), "{}", outcome.describe());
        let said = outcome.history.last(10_000);
        let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("no `{text}`: {said}"));
        let changed = at("Argo CD, for pulls: deletes pr-21, creates pr-27");
        assert!(at("pr-21 is closed") < changed && at("tells the truth again") < changed, "{said}");
    }
}

/// A loss that is said for longer than the guard's confirmations take is believed, also of one element.
#[test]
fn a_long_lie_about_an_element_is_found() {
    for lie in [Act::Elements(Share::One, Trouble::LosesAll, 3000), Act::Source(Set::Pulls, Trouble::LosesAll, 3000)] {
        let outcome = after(Deployed::Replicas(2), vec![(minutes(70), lie)]);
        let told = outcome.describe();
        assert!(told.contains("of pulls is deleted, and it was there all the last hour"), "{told}");
    }
}

/// The list has what the webhook reports some seconds later: it is asked again, and so is the whole answer.
#[test]
fn a_webhook_about_the_list_brings_an_element_that_comes_later() {
    for deployed in [Deployed::Alone, Deployed::Replicas(3)] {
        for delivery in [Delivery::InTime, Delivery::Early(40)] {
            let outcome = after(deployed, vec![(minutes(62), Act::Deliver(Set::Pulls, delivery))]);
            assert!(outcome.violation().is_none(), "{}", outcome.describe());
            let said = outcome.history.last(10_000);
            assert_eq!(count(&outcome, "refresh"), 1, "{deployed:?}, {delivery:?}: {said}");
        }
    }
}
