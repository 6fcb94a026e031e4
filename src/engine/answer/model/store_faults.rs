//! Replicas with a store that loses, forgets, fails over and goes away, at random. On the route that they are asked for, the guard
//! never accepts a smaller answer. So every success must have all parameter sets.

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngSeed, TestRunner},
};

use super::{
    replicas::{Replicas, list, sets},
    rules::Asked,
    source::{Says, SourceFault},
};
use crate::clients::store::Field;

/// The route "kept".
const ROUTE: usize = 6;
const FULL: u8 = 20;
const CASES: u32 = 400;

#[derive(Debug, Clone)]
enum Step {
    Ask {
        replica: usize,
        commit: u8,
    },
    /// A run begins, and waits until the next `Open`.
    Slow {
        replica: usize,
        commit: u8,
    },
    Open,
    Say(Says),
    Pass(u64),
    Away(bool),
    /// The store does what it is asked, but its replies are lost.
    Mute(bool),
    Flush,
    Replicate,
    FailOver,
    EndLeases,
    Spoil(Field),
    Add,
    Remove,
    Invalidate,
}

fn step() -> impl Strategy<Value = Step> {
    let asked = || (0..4_usize, 0..3_u8);
    let says = prop_oneof![
        2 => Just(list(FULL)),
        4 => (1..=6_u8).prop_map(list),
        1 => Just(Says::Unknown(SourceFault::Unavailable)),
    ];
    prop_oneof![
        8 => asked().prop_map(|(replica, commit)| Step::Ask { replica, commit }),
        2 => asked().prop_map(|(replica, commit)| Step::Slow { replica, commit }),
        3 => Just(Step::Open),
        4 => says.prop_map(Step::Say),
        5 => select(vec![1, 2, 5, 70, 400, 700]).prop_map(Step::Pass),
        2 => any::<bool>().prop_map(Step::Away),
        2 => any::<bool>().prop_map(Step::Mute),
        1 => Just(Step::Flush),
        1 => Just(Step::Replicate),
        1 => Just(Step::FailOver),
        1 => Just(Step::EndLeases),
        1 => select(Field::ALL.to_vec()).prop_map(Step::Spoil),
        1 => Just(Step::Add),
        1 => Just(Step::Remove),
        1 => Just(Step::Invalidate),
    ]
}

async fn play(mut replicas: Replicas, steps: Vec<Step>) {
    let asked = |commit| Asked { route: ROUTE, branch: 0, commit };
    replicas.stage.source.say(list(FULL), 0);
    assert_eq!(sets(&replicas.start(0, asked(0)).await.unwrap()), Ok(FULL.into()));
    replicas.pass(1).await;
    let mut waiting = Vec::new();
    for step in steps {
        let count = replicas.all.len();
        match step {
            Step::Ask { replica, commit } => {
                let got = replicas.within_time(replicas.start(replica % count, asked(commit))).await;
                assert!(got.is_err() || got == Ok(FULL.into()), "{got:?}");
            }
            Step::Slow { replica, commit } => {
                replicas.stage.source.slow(true);
                waiting.push(replicas.start(replica % count, asked(commit)));
                replicas.settle().await;
                replicas.stage.source.slow(false);
            }
            Step::Open => replicas.stage.source.waiting().into_iter().for_each(|run| replicas.stage.source.open(run)),
            Step::Say(says) => replicas.stage.source.say(says, 0),
            Step::Pass(seconds) => replicas.pass(seconds).await,
            Step::Away(is_away) => replicas.store.set_away(is_away),
            Step::Mute(is_mute) => replicas.store.set_mute(is_mute),
            Step::Flush => replicas.store.flush_all(),
            Step::Replicate => replicas.store.replicate(),
            Step::FailOver => replicas.store.fail_over(),
            Step::EndLeases => {
                replicas.store.end_leases();
                replicas.stage.source.cut(vec![asked(0), asked(1), asked(2)]);
            }
            Step::Spoil(field) => replicas.store.spoil(field, b"garbage"),
            Step::Add => replicas.add(),
            // Someone who knows all stays.
            Step::Remove if count > 1 => drop(replicas.all.pop()),
            Step::Remove => {}
            Step::Invalidate => {
                let _ = replicas.publish_everything().await;
            }
        }
    }
    replicas.stage.source.waiting().into_iter().for_each(|run| replicas.stage.source.open(run));
    for caller in waiting {
        let got = replicas.within_time(caller).await;
        assert!(got.is_err() || got == Ok(FULL.into()), "{got:?}");
    }
    replicas.store.set_away(false);
    replicas.store.set_mute(false);
    replicas.pass(30).await;
    for replica in 0..replicas.all.len() {
        let got = replicas.within_time(replicas.start(replica, asked(0))).await;
        assert!(got == Ok(FULL.into()) || got == Err("held"), "{got:?}");
    }
}

/// No fault of the store makes a replica lose parameter sets.
#[test]
fn a_faulty_store_loses_nothing() {
    let config = Config { failure_persistence: None, ..Config::default() };
    let is_random = std::env::var_os("PROPTEST_CASES").is_some();
    let (cases, rng_seed) = if is_random { (config.cases, config.rng_seed) } else { (CASES, RngSeed::Fixed(22)) };
    let mut runner = TestRunner::new(Config { cases, rng_seed, ..config });
    let result = runner.run(&vec(step(), 1..30), |steps| {
        Replicas::play(2, |replicas| play(replicas, steps));
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
