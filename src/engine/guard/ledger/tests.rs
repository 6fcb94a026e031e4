use serde_json::json;

use super::{
    super::{
        Baseline, Guard, Review, Standing,
        judge::tests::{guard, sets},
    },
    *,
};
use crate::domain::generator::{ParameterSet, Question};

const LINEAGE: Key = Key::of_bytes([1; 32]);

/// Reviews one lineage, and lets time pass in between.
struct Reviewer {
    guard: Guard,
    baseline: Baseline,
    ledger: Ledger,
    seconds: std::cell::Cell<u64>,
    /// How many seconds each run takes.
    took: std::cell::Cell<u64>,
}

impl Reviewer {
    fn new(guard: Guard, last: &[ParameterSet]) -> Self {
        let baseline = Baseline::of(guard.config(), last);
        Self {
            guard,
            baseline,
            ledger: Ledger::default(),
            seconds: std::cell::Cell::new(1000),
            took: std::cell::Cell::default(),
        }
    }

    /// How many runs agree with `new` by now, or `None` when it passes.
    fn review(&self, after: u64, new: &[ParameterSet]) -> Option<u32> {
        self.seconds.set(self.seconds.get() + after);
        let question = Question { route: "r".into(), application_set: None, parameters: Arc::default() };
        let of = Standing {
            question: &question,
            key: LINEAGE,
            lineage: LINEAGE,
            asked_at: None,
            is_new: false,
            is_current: true,
            began: Timestamp((self.seconds.get() - self.took.get()) * 1000),
        };
        let (now, before) = (self.now(), self.ledger.get(&LINEAGE, self.now()));
        let review = self.guard.review(of, Some(&self.baseline), Vec::new, before.as_ref(), new, now).unwrap();
        if let Review::Held(held) = review {
            self.ledger.hold((*held).clone());
            return Some(held.agreed);
        }
        self.ledger.remove(&LINEAGE);
        None
    }

    /// Whether something was held under `id`, and is decided now.
    fn decide(&self, id: &str, decision: Decision) -> bool {
        let held = self.ledger.find(id, self.now());
        let decided = held.map(|held| self.ledger.hold(held.decided(decision, self.now())));
        decided.is_some()
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.seconds.get() * 1000)
    }

    fn len(&self) -> usize {
        self.ledger.count(self.now())
    }
}

#[test]
fn agreement_releases_and_anything_else_begins_anew() {
    let (all, half, none) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"), Vec::new());
    let reviewer = Reviewer::new(guard(&json!({"confirmAfter": 2, "confirmFor": "60s"})), &all);
    let review = |after: u64, new: &[ParameterSet]| reviewer.review(after, new);
    assert_eq!(
        [review(0, &half), review(59, &half), review(1, &half), review(59, &half)],
        [Some(0), Some(0), Some(1), Some(1)]
    );
    assert_eq!(reviewer.len(), 1);
    assert_eq!((review(1, &half), reviewer.len()), (None, 0));
    // Another loss, a recovery and a clock that went back all begin anew.
    assert_eq!([review(60, &half), review(60, &half), review(60, &none)], [Some(0), Some(1), Some(0)]);
    assert_eq!([review(60, &half), review(60, &half), review(60, &all)], [Some(0), Some(1), None]);
    for _ in 0..100 {
        assert_eq!([review(60, &half), review(60, &all)], [Some(0), None], "an oscillating source");
    }
    assert_eq!(review(60, &half), Some(0));
    reviewer.seconds.set(10);
    assert_eq!([review(0, &half), review(60, &half), review(60, &half)], [Some(0), Some(1), None]);
}

#[test]
fn a_run_that_began_too_early_does_not_count() {
    let (all, half) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"));
    let reviewer = Reviewer::new(guard(&json!({"confirmAfter": 1, "confirmFor": "60s"})), &all);
    assert_eq!(reviewer.review(0, &half), Some(0));
    reviewer.took.set(20);
    assert_eq!(reviewer.review(79, &half), Some(0), "it began after 59 s");
    assert_eq!(reviewer.review(1, &half), None, "it began after 60 s");
}

#[test]
fn what_is_kept_is_never_accepted_unless_an_operator_says_so() {
    let reviewer = Reviewer::new(guard(&json!({"onEmpty": "keep"})), &sets(&["a"], "1"));
    for _ in 0..100 {
        assert!(reviewer.review(600, &[]).is_some());
    }
    let id = LINEAGE.to_string();
    assert!(reviewer.decide(&id, Decision::Released));
    assert_eq!((reviewer.review(1, &[]), reviewer.len()), (None, 0));
    assert!(!reviewer.decide(&id, Decision::Released));
}

#[test]
fn a_decision_goes_for_one_answer() {
    let (all, half) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"));
    let reviewer = Reviewer::new(guard(&json!({})), &all);
    let id = LINEAGE.to_string();
    reviewer.review(0, &half);
    assert!(reviewer.decide(&id, Decision::Rejected));
    for _ in 0..100 {
        assert!(reviewer.review(60, &half).is_some(), "rejected");
    }
    assert!(reviewer.decide(&id, Decision::Released));
    assert_eq!(reviewer.review(1, &[]), Some(0), "another answer than the one that was released");
    assert_eq!(reviewer.review(1, &half), Some(0), "and that is forgotten with it");
}

#[test]
fn what_nobody_asks_about_is_forgotten() {
    let reviewer = Reviewer::new(guard(&json!({})), &sets(&["a"], "1"));
    reviewer.review(0, &[]);
    reviewer.seconds.set(reviewer.seconds.get() + 3600);
    reviewer.ledger.note_asked(&LINEAGE, reviewer.now());
    reviewer.seconds.set(reviewer.seconds.get() + 24 * 3600);
    assert_eq!(reviewer.len(), 1);
    reviewer.seconds.set(reviewer.seconds.get() + 1);
    assert_eq!(reviewer.len(), 0);
    assert_eq!((reviewer.ledger.take_forgotten(), reviewer.ledger.take_forgotten()), (vec![LINEAGE], vec![]));
}

#[test]
fn a_held_answer_is_due_when_its_rules_say() {
    let all = sets(&["a", "b", "c", "d"], "1");
    let reviewer = Reviewer::new(guard(&json!({})), &all);
    let due = |after: u64| reviewer.ledger.due(Timestamp((reviewer.seconds.get() + after) * 1000)).len();
    assert_eq!(due(10_000), 0, "nothing is held");
    reviewer.review(0, &[]);
    assert_eq!([due(0), due(299), due(300)], [0, 0, 1]);
    // A run in between neither counts nor puts it off.
    assert_eq!(reviewer.review(200, &[]), Some(0));
    assert_eq!([due(99), due(100)], [0, 1]);
    for agreed in 1..3 {
        assert_eq!(reviewer.review(if agreed == 1 { 100 } else { 300 }, &[]), Some(agreed));
        assert_eq!([due(299), due(300)], [0, 1]);
    }
    assert_eq!((reviewer.review(300, &[]), due(10_000)), (None, 0), "accepted");

    // What waits for an operator is not due.
    for config in [json!({"onEmpty": "keep"}), json!({"onShrink": "keep"})] {
        let reviewer = Reviewer::new(guard(&config), &all);
        let new = if config["onEmpty"] == "keep" { Vec::new() } else { sets(&["a"], "1") };
        assert_eq!(reviewer.review(0, &new), Some(0));
        assert_eq!(reviewer.ledger.due(Timestamp(10_000_000)).len(), 0, "{config}");
    }
    let reviewer = Reviewer::new(guard(&json!({})), &all);
    reviewer.review(0, &[]);
    assert!(reviewer.decide(&LINEAGE.to_string(), Decision::Rejected));
    assert_eq!(reviewer.ledger.due(Timestamp(10_000_000)).len(), 0, "rejected");
}

#[test]
fn a_message_is_the_same_for_the_same_cause() {
    let all = sets(&["a", "b", "c", "d"], "1");
    let reviewer = Reviewer::new(guard(&json!({})), &all);
    let mut messages = Vec::new();
    for _ in 0..3 {
        reviewer.review(300, &[]);
        messages.push(reviewer.ledger.get(&LINEAGE, reviewer.now()).unwrap().to_string());
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
}
