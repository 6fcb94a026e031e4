//! The engine against a model of it, in virtual time. After each operation, both must agree on the answers and on the runs of
//! the source, and the invariants must hold.
//!
//! Each test tries the same cases each time, so that a failure is about the change under test. With `PROPTEST_CASES`, a test tries
//! that many random cases.

mod elements;
mod expect;
mod invariants;
mod oracle;
mod replicas;
mod rules;
mod source;
mod stage;
mod store_faults;
mod verdict;
mod world;

use std::{cell::RefCell, collections::BTreeMap};

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    test_runner::{Config, RngSeed, TestRunner},
};

use crate::{
    guard::{Decision, GuardConfig},
    model::{
        rules::{BRANCHES, COMMITS, ROUTES},
        source::{Says, SourceFault},
        stage::{Setup, Stage},
        world::World,
    },
};

/// How many cases each test tries.
const CASES: u32 = 5_000;
/// How many of them with replicas, which take ten times as long.
const REPLICATED_CASES: u32 = 1_000;

/// The seed of the cases.
const SEED: u64 = 21;

/// States that a test must have reached in a thousand cases.
const WORTH_TRYING: [&str; 18] = [
    "hit",
    "stale",
    "instead of an error",
    "instead of an error, from the commit before",
    "nothing",
    "an empty list",
    "held",
    "contradicted",
    "accepted at last",
    "released",
    "in backoff",
    "joined",
    "timed out",
    "cut off",
    "finished after it was cut off",
    "started by the gateway itself",
    "evicted",
    "lost",
];

/// A question of the case.
#[derive(Debug, Clone, Copy)]
struct Which {
    /// Which of the case's routes.
    route: usize,
    branch: u8,
    commit: u8,
}

/// An operation.
#[derive(Debug, Clone)]
enum Op {
    /// This many callers ask at once, and some of them leave. If a run begins and `is_slow`, it waits.
    Ask { which: Which, callers: usize, leaving: usize, is_slow: bool },
    /// One caller asks again every so many seconds, as Argo CD does.
    Reconcile { which: Which, times: usize, every: u64 },
    /// The source gives another answer from now on.
    Say { says: Says, version: u8 },
    /// One of the waiting runs ends.
    Finish(usize),
    /// Seconds pass.
    Pass(u64),
    /// The clock is put forward or back, by seconds.
    Jump(i64),
    /// Invalidates answers: all, or those of a route, a branch or a commit.
    Invalidate { route: Option<usize>, branch: Option<u8>, commit: Option<u8> },
    /// The process ends and another one starts.
    Restart,
    /// Answers are evicted from memory.
    Evict(Which),
    /// Records are lost.
    Lose(Which),
    /// An operator decides on a held answer.
    Decide { which: Which, decision: Decision },
    /// An operator lists everything.
    List,
}

/// The operations of a case, and its two routes.
#[derive(Debug, Clone)]
struct Case {
    routes: [usize; 2],
    ops: Vec<Op>,
}

fn which() -> impl Strategy<Value = Which> {
    let first = |max| prop_oneof![3 => Just(0), 1 => 0..max];
    (prop_oneof![3 => Just(0), 1 => Just(1_usize)], first(BRANCHES), first(COMMITS))
        .prop_map(|(route, branch, commit)| Which { route, branch, commit })
}

fn says() -> impl Strategy<Value = Says> {
    let fault = select(vec![
        SourceFault::Unavailable,
        SourceFault::Timeout,
        SourceFault::Throttled,
        SourceFault::ThrottledFor(30),
        SourceFault::ThrottledFor(3600),
        SourceFault::Denied,
        SourceFault::InvalidInput,
        SourceFault::InvalidOutput,
    ]);
    let lasting = prop_oneof![6 => Just(None), 1 => select(vec![Some(5), Some(600)])];
    prop_oneof![
        10 => (0..3_u8, 1..=6_u8, lasting).prop_map(|(first, count, lasting)| Says::List { first, count, lasting }),
        2 => Just(Says::Nothing),
        1 => Just(Says::Duplicates),
        3 => fault.prop_map(Says::Unknown),
        1 => Just(Says::Crash),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let ask = (which(), 1..=4_usize, 0..=2_usize, prop::bool::weighted(0.2));
    let ask = ask.prop_map(|(which, callers, leaving, is_slow)| Op::Ask { which, callers, leaving, is_slow });
    let reconcile = (which(), 2..=4_usize, select(vec![20, 70, 700]));
    let version = prop_oneof![4 => Just(0), 1 => Just(1_u8)];
    let pass = prop_oneof![
        6 => select(vec![1, 2, 20, 26]),
        6 => Just(70),
        3 => select(vec![300, 400, 700, 3600]),
        1 => select(vec![7 * 3600, 24 * 3600, 3 * 24 * 3600]),
    ];
    let jump = select(vec![-1, -30, -100, -3600, -24 * 3600, 30, 3600]);
    let any = |max| prop_oneof![2 => Just(None), 1 => (0..max).prop_map(Some)];
    let selector = (prop_oneof![Just(None), (0..2_usize).prop_map(Some)], any(BRANCHES), any(COMMITS));
    prop_oneof![
        12 => ask,
        4 => reconcile.prop_map(|(which, times, every)| Op::Reconcile { which, times, every }),
        5 => (says(), version).prop_map(|(says, version)| Op::Say { says, version }),
        3 => (0..4_usize).prop_map(Op::Finish),
        8 => pass.prop_map(Op::Pass),
        1 => jump.prop_map(Op::Jump),
        2 => selector.prop_map(|(route, branch, commit)| Op::Invalidate { route, branch, commit }),
        1 => Just(Op::Restart),
        1 => which().prop_map(Op::Evict),
        1 => which().prop_map(Op::Lose),
        2 => (which(), select(vec![Decision::Released, Decision::Rejected]))
            .prop_map(|(which, decision)| Op::Decide { which, decision }),
        1 => Just(Op::List),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let routes = [0..ROUTES.len(), 0..ROUTES.len()];
    (routes, vec(op(), 1..36)).prop_map(|(routes, ops)| Case { routes, ops })
}

/// How often each state was reached.
type Seen = RefCell<BTreeMap<&'static str, u32>>;

/// States that only one engine by itself reaches.
const OF_ONE_ENGINE: [&str; 6] = ["joined", "timed out", "cut off", "finished after it was cut off", "evicted", "lost"];

/// Tries many cases. Each state worth trying must be reached in some of them.
fn agree(setup: Setup) {
    let config = Config { failure_persistence: None, ..Config::default() };
    let is_random = std::env::var_os("PROPTEST_CASES").is_some();
    let fixed = if matches!(setup, Setup::Replicas(_)) { REPLICATED_CASES } else { CASES };
    let (cases, rng_seed) = if is_random { (config.cases, config.rng_seed) } else { (fixed, RngSeed::Fixed(SEED)) };
    let (stage, seen) = (Stage::default(), Seen::default());
    let mut runner = TestRunner::new(Config { cases, rng_seed, ..config });
    let result = runner
        .run(&case(), |case| World::play(&stage, setup, &case.routes, &case.ops, &seen).map_err(TestCaseError::fail));
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    println!("{cases} cases: {seen:?}");
    let is_possible = |what: &&&str| !(matches!(setup, Setup::Replicas(_)) && OF_ONE_ENGINE.contains(what));
    let wanted = WORTH_TRYING.iter().filter(|_| cases >= 1000).filter(is_possible);
    let missing: Vec<_> = wanted.filter(|what| !seen.contains_key(**what)).collect();
    assert!(missing.is_empty(), "never tried: {missing:?}");
}

#[test]
fn the_model_has_every_guard_rule() {
    let schema = schemars::schema_for!(GuardConfig).to_value();
    let rules = schema["properties"].as_object().expect("guard rules");
    for route in &ROUTES {
        let config = route.config();
        let missing: Vec<&String> = rules.keys().filter(|name| config["guard"].get(name).is_none()).collect();
        assert!(
            missing.is_empty(),
            "guard rules that the model lacks: {missing:?}; add each to `Rules` and `Rules::config` in model/rules.rs and to \
             `Rules::evaluate` in model/verdict.rs"
        );
    }
}

#[test]
fn the_engine_agrees_with_its_model() {
    agree(Setup::Memory);
}

#[test]
fn the_engine_agrees_with_its_model_over_restarts() {
    agree(Setup::Disk);
}

/// Replicas are called one after the other. Together they answer as one engine does.
#[test]
fn replicas_agree_with_the_model() {
    for count in [2, 3, 1] {
        agree(Setup::Replicas(count));
    }
}

/// A source loses two things alternately, and an event cuts off each run that says the second.
#[test]
fn a_run_that_was_cut_off_ends_confirmations_if_it_disagrees() {
    let which = Which { route: 0, branch: 0, commit: 0 };
    let ask = |is_slow| Op::Ask { which, callers: 1, leaving: 0, is_slow };
    let say = |count| Op::Say { says: Says::List { first: 0, count, lasting: None }, version: 0 };
    for other in [2, 6] {
        let mut ops = vec![say(6), ask(false), say(1), Op::Pass(400), ask(false)];
        for _ in 0..4 {
            let cut_off = Op::Invalidate { route: None, branch: None, commit: None };
            ops.extend([Op::Pass(2), say(other), ask(true), cut_off, Op::Finish(0), say(1), Op::Pass(70)]);
        }
        let (stage, seen) = (Stage::default(), Seen::default());
        World::play(&stage, Setup::Memory, &[0, 1], &ops, &seen).unwrap();
        let reached = |what| seen.borrow().contains_key(what);
        assert!(reached("contradicted") && !reached("accepted at last"), "{other}: {seen:?}");
    }
}

/// Found by chance: an operator releases a held answer, after an outdated run brought the earlier answer back.
#[test]
fn a_release_holds_after_an_outdated_run() {
    let which = |commit| Which { route: 0, branch: 0, commit };
    let ask = |commit, is_slow| Op::Ask { which: which(commit), callers: 1, leaving: 0, is_slow };
    let ops = [
        ask(0, true),
        ask(1, false),
        Op::Say { says: Says::Nothing, version: 0 },
        Op::Invalidate { route: None, branch: None, commit: None },
        ask(0, false),
        Op::Finish(0),
        Op::Decide { which: which(0), decision: Decision::Released },
    ];
    let (stage, seen) = (Stage::default(), Seen::default());
    World::play(&stage, Setup::Memory, &[1, 0], &ops, &seen).unwrap();
    assert!(seen.borrow().contains_key("released"), "{seen:?}");
}

/// Found by chance: an answer that was held for too long came back by a restart, because the clock had been put back.
#[test]
fn what_was_held_for_too_long_does_not_come_back() {
    let which = Which { route: 0, branch: 0, commit: 0 };
    let ask = || Op::Ask { which, callers: 1, leaving: 0, is_slow: false };
    let ops = [
        ask(),
        Op::Say { says: Says::List { first: 0, count: 1, lasting: None }, version: 0 },
        Op::Reconcile { which, times: 2, every: 20 },
        Op::Reconcile { which, times: 3, every: 20 },
        ask(),
        Op::Pass(86_400),
        Op::Decide { which, decision: Decision::Released },
        Op::Restart,
        Op::Jump(-1),
        Op::List,
    ];
    let (stage, seen) = (Stage::default(), Seen::default());
    World::play(&stage, Setup::Disk, &[0, 0], &ops, &seen).unwrap();
}

/// Found by chance: the clock was put back while an answer was held, and an operator released it a day later.
#[test]
fn a_release_counts_from_the_latest_time_at_which_a_caller_came() {
    let which = |commit| Which { route: 0, branch: 0, commit };
    let ask = |commit, is_slow| Op::Ask { which: which(commit), callers: 1, leaving: 0, is_slow };
    let ops = [
        ask(0, false),
        Op::Say { says: Says::Nothing, version: 0 },
        ask(0, true),
        ask(1, false),
        Op::Jump(-1),
        Op::Finish(0),
        Op::Pass(86_400),
        Op::Decide { which: which(0), decision: Decision::Released },
    ];
    let (stage, seen) = (Stage::default(), Seen::default());
    World::play(&stage, Setup::Disk, &[2, 0], &ops, &seen).unwrap();
    assert!(seen.borrow().contains_key("released"), "{seen:?}");
}
