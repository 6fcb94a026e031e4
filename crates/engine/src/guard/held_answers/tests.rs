use serde_json::json;

use crate::guard::{
    Baseline, Guard, GuardVerdict, Identities, Standing,
    held_answers::*,
    rules::tests::{guard, sets},
};
use domain::generator::{Evidence, ParameterSet, Question};

const LINEAGE: Key = Key::of_bytes([1; 32]);

/// Checks one lineage, and lets time pass in between.
struct Checker {
    guard: Guard,
    baseline: Baseline,
    held_answers: HeldAnswers,
    seconds: std::cell::Cell<u64>,
    /// How many seconds each run takes.
    took: std::cell::Cell<u64>,
}

impl Checker {
    fn new(guard: Guard, last: &[ParameterSet]) -> Self {
        let baseline = Baseline::of(guard.config(), last);
        Self {
            guard,
            baseline,
            held_answers: HeldAnswers::default(),
            seconds: std::cell::Cell::new(1000),
            took: std::cell::Cell::default(),
        }
    }

    /// How many runs agree with `new` by now, or `None` when it passes.
    fn check(&self, after: u64, new: &[ParameterSet]) -> Option<u32> {
        self.seconds.set(self.seconds.get() + after);
        let question = Question { route: "r".into(), application_set: None, parameters: Arc::default(), part: None };
        let of = Standing {
            question: &question,
            key: LINEAGE,
            lineage: LINEAGE,
            queried_at: None,
            is_new: false,
            is_current: true,
            began: Timestamp((self.seconds.get() - self.took.get()) * 1000),
            now: self.now(),
        };
        let before = self.held_answers.get(&LINEAGE, self.now());
        let check = self.guard.check(of, Some(&self.baseline), Vec::new, before.as_ref(), new).unwrap();
        if let GuardVerdict::Held(held) = check {
            self.held_answers.hold((*held).clone());
            return Some(held.agreed);
        }
        self.held_answers.remove(&LINEAGE);
        None
    }

    /// Whether something was held under `id`, and is decided now.
    fn decide(&self, id: &str, decision: Decision) -> bool {
        let held = self.held_answers.find(&KeyStart::parse(id).unwrap(), self.now()).ok();
        let decided = held.map(|held| self.held_answers.hold(held.decided(decision, self.now())));
        decided.is_some()
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.seconds.get() * 1000)
    }

    fn len(&self) -> usize {
        self.held_answers.count(self.now())
    }
}

#[test]
fn agreement_releases_and_anything_else_begins_anew() {
    let (all, half, none) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"), Vec::new());
    let checker = Checker::new(guard(&json!({"confirmAfter": 2, "confirmFor": "60s"})), &all);
    let check = |after: u64, new: &[ParameterSet]| checker.check(after, new);
    assert_eq!(
        [check(0, &half), check(59, &half), check(1, &half), check(59, &half)],
        [Some(0), Some(0), Some(1), Some(1)]
    );
    assert_eq!(checker.len(), 1);
    assert_eq!((check(1, &half), checker.len()), (None, 0));
    // Another loss, a recovery and a clock that went back all restart the count.
    assert_eq!([check(60, &half), check(60, &half), check(60, &none)], [Some(0), Some(1), Some(0)]);
    assert_eq!([check(60, &half), check(60, &half), check(60, &all)], [Some(0), Some(1), None]);
    for _ in 0..100 {
        assert_eq!([check(60, &half), check(60, &all)], [Some(0), None], "an oscillating source");
    }
    assert_eq!(check(60, &half), Some(0));
    checker.seconds.set(10);
    assert_eq!([check(0, &half), check(60, &half), check(60, &half)], [Some(0), Some(1), None]);
}

#[test]
fn a_run_that_began_too_early_does_not_count() {
    let (all, half) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"));
    let checker = Checker::new(guard(&json!({"confirmAfter": 1, "confirmFor": "60s"})), &all);
    assert_eq!(checker.check(0, &half), Some(0));
    checker.took.set(20);
    assert_eq!(checker.check(79, &half), Some(0), "it began after 59 s");
    assert_eq!(checker.check(1, &half), None, "it began after 60 s");
}

#[test]
fn what_is_kept_is_never_accepted_unless_an_operator_says_so() {
    let checker = Checker::new(guard(&json!({"onEmpty": "keep"})), &sets(&["a"], "1"));
    for _ in 0..100 {
        assert!(checker.check(600, &[]).is_some());
    }
    let id = LINEAGE.to_string();
    assert!(checker.decide(&id, Decision::Released));
    assert_eq!((checker.check(1, &[]), checker.len()), (None, 0));
    assert!(!checker.decide(&id, Decision::Released));
}

#[test]
fn a_decision_goes_for_one_answer() {
    let (all, half) = (sets(&["a", "b", "c", "d"], "1"), sets(&["a", "b"], "2"));
    let checker = Checker::new(guard(&json!({})), &all);
    let id = LINEAGE.to_string();
    checker.check(0, &half);
    assert!(checker.decide(&id, Decision::Rejected));
    for _ in 0..100 {
        assert!(checker.check(60, &half).is_some(), "rejected");
    }
    assert!(checker.decide(&id, Decision::Released));
    assert_eq!(checker.check(1, &[]), Some(0), "another answer than the one that was released");
    assert_eq!(checker.check(1, &half), Some(0), "and that is forgotten with it");
}

/// Lost sets count for an hour, and a lost record for a week. When that is over, the same answer would pass if it came for the first time.
#[test]
fn time_alone_ends_no_hold() {
    let names: Vec<String> = (0..20).map(|n| format!("app-{n}")).collect();
    let some = |count: usize| sets(&names[..count].iter().map(String::as_str).collect::<Vec<_>>(), "1");
    let of_hour = |rules: &serde_json::Value| {
        let mut checker = Checker::new(guard(rules), &some(20));
        let fewer = Identities::of(&checker.guard.config().identity, &some(15));
        checker.baseline = checker.baseline.after(fewer, checker.now());
        assert_eq!(checker.check(10, &some(13)), Some(0), "7 of 20");
        (checker, some(13))
    };
    let lost = |rules: &serde_json::Value| {
        let mut checker = Checker::new(guard(rules), &some(2));
        assert_eq!(checker.check(10, &[]), Some(0));
        checker.baseline = Baseline::default();
        (checker, Vec::new())
    };
    let (keep, slow) = (json!({"onEmpty": "keep", "onShrink": "keep"}), json!({"confirmAfter": 3, "confirmFor": "2h"}));
    for hold in [&of_hour as &dyn Fn(&serde_json::Value) -> _, &lost] {
        let (checker, answer) = hold(&keep);
        assert!((0..20).all(|_| checker.check(3700, &answer).is_some()), "an operator decides");
        let (checker, answer) = hold(&json!({}));
        assert!(checker.decide(&LINEAGE.to_string(), Decision::Rejected));
        assert!((0..20).all(|_| checker.check(3700, &answer).is_some()), "an operator has decided");
        let (checker, answer) = hold(&slow);
        let agreed: Vec<_> = (0..3).map(|_| checker.check(7200, &answer)).collect();
        assert_eq!(agreed, [Some(1), Some(2), None], "its confirmations go on");
        let (checker, _) = hold(&keep);
        let is_lost = checker.baseline == Baseline::default();
        assert!(checker.check(3700, &some(1)).is_some(), "another loss; is the record lost: {is_lost}");
        // Rules that allow the loss let it pass, whatever was there before.
        let (mut checker, answer) = hold(&keep);
        checker.guard = guard(&json!({"onEmpty": "allow", "maxShrink": "100%"}));
        assert_eq!(checker.check(3700, &answer), None);
    }
}

#[test]
fn what_no_caller_queries_is_forgotten() {
    let checker = Checker::new(guard(&json!({})), &sets(&["a"], "1"));
    checker.check(0, &[]);
    checker.seconds.set(checker.seconds.get() + 3600);
    checker.held_answers.note_queried(&LINEAGE, checker.now());
    checker.seconds.set(checker.seconds.get() + 24 * 3600);
    assert_eq!(checker.len(), 1);
    checker.seconds.set(checker.seconds.get() + 1);
    assert_eq!(checker.len(), 0);
    assert_eq!((checker.held_answers.take_forgotten(), checker.held_answers.take_forgotten()), (vec![LINEAGE], vec![]));
}

#[test]
fn a_held_answer_is_due_when_its_rules_say() {
    let all = sets(&["a", "b", "c", "d"], "1");
    let checker = Checker::new(guard(&json!({})), &all);
    let due = |after: u64| checker.held_answers.due(Timestamp((checker.seconds.get() + after) * 1000)).len();
    assert_eq!(due(10_000), 0, "nothing is held");
    checker.check(0, &[]);
    assert_eq!([due(0), due(299), due(300)], [0, 0, 1]);
    // A run in between neither counts nor puts it off.
    assert_eq!(checker.check(200, &[]), Some(0));
    assert_eq!([due(99), due(100)], [0, 1]);
    for agreed in 1..3 {
        assert_eq!(checker.check(if agreed == 1 { 100 } else { 300 }, &[]), Some(agreed));
        assert_eq!([due(299), due(300)], [0, 1]);
    }
    assert_eq!((checker.check(300, &[]), due(10_000)), (None, 0), "accepted");

    // What waits for an operator is not due.
    for config in [json!({"onEmpty": "keep"}), json!({"onShrink": "keep"})] {
        let checker = Checker::new(guard(&config), &all);
        let new = if config["onEmpty"] == "keep" { Vec::new() } else { sets(&["a"], "1") };
        assert_eq!(checker.check(0, &new), Some(0));
        assert_eq!(checker.held_answers.due(Timestamp(10_000_000)).len(), 0, "{config}");
    }
    let checker = Checker::new(guard(&json!({})), &all);
    checker.check(0, &[]);
    assert!(checker.decide(&LINEAGE.to_string(), Decision::Rejected));
    assert_eq!(checker.held_answers.due(Timestamp(10_000_000)).len(), 0, "rejected");
}

/// Three runs, five minutes apart: a gateway that made none of them for an hour needs ten minutes from now on.
#[test]
fn it_is_not_accepted_before_the_runs_that_are_left() {
    let checker = Checker::new(guard(&json!({})), &sets(&["a", "b", "c", "d"], "1"));
    checker.check(0, &[]);
    let minutes = |after: u64| {
        let held = checker.held_answers.get(&LINEAGE, checker.now()).unwrap();
        let at = held.accepted_at(Timestamp((checker.seconds.get() + after * 60) * 1000)).unwrap();
        (at.0 / 1000 - checker.seconds.get()) / 60
    };
    assert_eq!([minutes(0), minutes(5), minutes(60)], [15, 15, 70]);
    assert!(checker.decide(&LINEAGE.to_string(), Decision::Released));
    assert_eq!([minutes(0), minutes(60)], [5, 60], "the next run that agrees is enough");
}

#[test]
fn a_message_is_the_same_for_the_same_cause() {
    let all = sets(&["a", "b", "c", "d"], "1");
    let checker = Checker::new(guard(&json!({})), &all);
    let mut messages = Vec::new();
    for _ in 0..3 {
        checker.check(300, &[]);
        messages.push(checker.held_answers.get(&LINEAGE, checker.now()).unwrap().to_string());
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
}

/// The key with this number, of this route.
fn key(route: u8, number: u32) -> Key {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[31] = route;
    Key::of_bytes(bytes)
}

/// An answer that is held in the lineage with this key since the second `since`.
fn held(lineage: Key, since: u64) -> Held {
    let checker = Checker::new(guard(&json!({})), &sets(&["a", "b", "c", "d"], "1"));
    checker.check(since, &[]);
    Held { lineage, key: lineage, ..checker.held_answers.get(&LINEAGE, checker.now()).unwrap() }
}

const NOW: Timestamp = Timestamp(2_000_000);

/// A list of about so many held answers at most.
fn limited_to(answers: u64) -> HeldAnswers {
    HeldAnswers::with_limit(answers * held(LINEAGE, 0).weight() as u64)
}

#[test]
fn held_answers_of_one_route_push_out_no_decision_and_nothing_of_another_route() {
    let held_answers = limited_to(100);
    for number in 0..10 {
        held_answers.hold(held(key(1, number), 0));
    }
    held_answers.hold(held(key(1, 0), 0).decided(Decision::Rejected, NOW));
    held_answers.hold(held(key(2, 0), 0).decided(Decision::Rejected, NOW));
    held_answers.hold(held(key(2, 1), 0).decided(Decision::Released, NOW));
    for number in 2..20_000 {
        let new = held(key(2, number), 1);
        if held_answers.fits(&new) {
            held_answers.hold(new);
        }
    }
    let decision = |key| held_answers.get(&key, NOW).map(|held| held.decision);
    assert!((1..10).all(|number| decision(key(1, number)) == Some(None)));
    assert_eq!(decision(key(1, 0)), Some(Some(Decision::Rejected)));
    assert_eq!(decision(key(2, 0)), Some(Some(Decision::Rejected)));
    assert_eq!(decision(key(2, 1)), Some(Some(Decision::Released)));
    assert_eq!((held_answers.count(NOW), decision(key(2, 19_999)), decision(key(2, 2))), (100, None, Some(None)));
    assert!(held_answers.take_forgotten().is_empty(), "those that are listed go on to be confirmed");
    assert_eq!(held_answers.usage(key(2, 0).route()).0.left, 20_000 + 10 - 100, "the others are counted");
    // A route that lacks its share gets it from the one that uses the most.
    for number in 10..50 {
        assert!(held_answers.fits(&held(key(1, number), 1)));
        held_answers.hold(held(key(1, number), 1));
    }
    assert_eq!((held_answers.count(NOW), held_answers.take_forgotten().len()), (100, 40));
    assert_eq!(decision(key(2, 0)), Some(Some(Decision::Rejected)));
}

#[test]
fn above_the_limit_an_answer_is_held_and_not_listed() {
    let held_answers = limited_to(10);
    for number in 0..10 {
        held_answers.hold(held(key(1, number), 0).decided(Decision::Rejected, NOW));
    }
    let (new, other) = (held(key(1, 10), 0), held(key(2, 0), 0));
    assert!(!held_answers.fits(&new));
    assert!(new.unlisted().to_string().ends_with("or release some"));
    assert!(held_answers.fits(&held(key(1, 5), 0)), "its lineage has a held answer");
    assert!(held_answers.fits(&other), "another route has its share");
    held_answers.hold(other);
    assert_eq!(
        (held_answers.count(NOW), held_answers.usage(key(1, 0).route()).0.left),
        (11, 1),
        "no decision had to leave"
    );
    // An answer that is accepted frees its share.
    held_answers.remove(&key(2, 0));
    held_answers.remove(&key(1, 5));
    assert!(held_answers.fits(&held(key(1, 10), 0)));
}

#[test]
fn the_held_answers_fit_into_the_file() {
    let held_answers = HeldAnswers::default();
    held_answers.limit(50 * held(LINEAGE, 0).weight() as u64);
    let new = (0..1000).map(|number| held(key(1, number), 0));
    new.filter(|new| held_answers.fits(new)).for_each(|new| held_answers.hold(new));
    assert_eq!(held_answers.count(NOW), 50);
}

#[test]
fn a_rejection_is_not_forgotten_with_a_day_without_calls() {
    const DAY: u64 = 24 * 3_600_000;
    let held_answers = HeldAnswers::default();
    held_answers.hold(held(key(1, 0), 0).decided(Decision::Rejected, NOW));
    held_answers.hold(held(key(1, 1), 0));
    let kept =
        |days: u64| (0..2).filter(|n| held_answers.get(&key(1, *n), Timestamp(NOW.0 + days * DAY)).is_some()).count();
    assert_eq!((kept(0), kept(3), kept(90), kept(91)), (2, 1, 1, 0));
}

/// A file or a store of an earlier build has other names. An answer that an operator rejected stays rejected after an upgrade.
#[test]
fn a_held_answer_of_an_earlier_build_is_read() {
    let evidence = Evidence::absent("the manifest of r.example/org/front:main", "404");
    let held = Held { decision: Some(Decision::Rejected), ..held(LINEAGE, 5) }.with_evidence(&[evidence]);
    let mut stored = serde_json::to_value(&held).unwrap();
    let rename = |object: &mut serde_json::Value, names: [(&str, &str); 2]| {
        let object = object.as_object_mut().unwrap();
        for (now, before) in names {
            let value = object.remove(now).unwrap_or_else(|| panic!("{now}"));
            object.insert(before.to_owned(), value);
        }
    };
    rename(&mut stored, [("interval", "apart"), ("queried_at", "asked_at")]);
    rename(&mut stored["evidence"][0], [("query", "asked"), ("answer", "answered")]);
    let read: Held = serde_json::from_value(stored).unwrap();
    assert_eq!(format!("{read:?}"), format!("{held:?}"));
}
