//! What is due when, and what is dropped.

use super::*;
use hooks::Subject;

const CHANGED: (Recheck, Pushed) = (Recheck::Changed, Pushed::Untold);

/// An event that concerns `question`, and the subjects of it without a digest.
fn concern(queue: &mut Queue, (key, question): &(Key, Question), others: Others, now: Instant) {
    let mut pushes = Pushes::default();
    let digest = format!("sha256:{}", "a".repeat(64));
    if others == Others::None {
        pushes.add(&Subject::image(&format!("r.example/app:1@{digest}")).unwrap());
    }
    let concern = Concern { batch: &Arc::default(), pushes: Some(&Arc::new(pushes)), others };
    queue.concern(*key, question.clone(), &concern, now);
}

fn question(number: u8) -> (Key, Question) {
    let question = Question { route: "r".into(), application_set: None, parameters: Arc::default(), part: None };
    (Key::of_bytes([number; 32]), question)
}

#[test]
fn events_about_one_question_are_at_most_two_looks() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let of = question(1);
    let key = of.0;
    (0..100).for_each(|_| concern(&mut queue, &of, Others::One(1), now));
    let (_, due) = queue.next(now).unwrap();
    assert!(queue.next(now).is_none());
    (0..100).for_each(|_| concern(&mut queue, &of, Others::One(1), now));
    assert!(queue.next(now).is_none(), "one recheck at a time");
    queue.ended(key, due, CHANGED, now);
    assert!(queue.next(now).is_none(), "one recheck in two seconds");
    assert_eq!(queue.next_at(), Some(now + SPACING));
    let (_, due) = queue.next(now + SPACING).unwrap();
    queue.ended(key, due, CHANGED, now + SPACING);
    assert!(queue.next(now + SPACING).is_none() && queue.next_at().is_none());
}

#[test]
fn a_look_that_finds_nothing_new_is_repeated_three_times() {
    let (mut queue, mut now) = (Queue::default(), Instant::now());
    let of = question(1);
    let key = of.0;
    concern(&mut queue, &of, Others::One(1), now);
    for (number, after) in AGAIN.iter().map(Some).chain([None]).enumerate() {
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, (if number == 0 { Recheck::Failed } else { Recheck::Unchanged }, Pushed::Untold), now);
        assert_eq!(queue.next_at(), after.map(|after| now + *after));
        assert!(queue.next(now).is_none());
        now = queue.next_at().unwrap_or(now);
    }
}

#[test]
fn a_look_is_repeated_unless_it_found_what_its_events_tell_of() {
    use {Pushed::*, Recheck::*};
    let (none, one, many) = (Others::None, Others::One(1), Others::Many);
    for (found, others, is_repeated) in [
        ((Changed, Known), none, false),
        ((Changed, Untold), none, false),
        ((Changed, Untold), one, false),
        // What changed may be what one of them is about, and the other is still to come.
        ((Changed, Known), one, true),
        ((Changed, Untold), many, true),
        ((Changed, Behind), none, true),
        ((Unchanged, Known), none, false),
        ((Unchanged, Known), one, true),
        ((Unchanged, Untold), none, true),
        ((Unchanged, Behind), none, true),
        ((Failed, Untold), none, true),
        ((Held, Untold), many, false),
    ] {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let of = question(1);
        let key = of.0;
        concern(&mut queue, &of, others, now);
        let (_, due) = queue.next(now).unwrap();
        queue.ended(key, due, found, now);
        assert_eq!(queue.next_at().is_some(), is_repeated, "{found:?}, {others:?}");
    }
}

/// A second build may be pushed while a recheck finds the first one, and its registry may be behind.
#[test]
fn what_comes_during_a_look_that_finds_something_new_has_looks_of_its_own() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let of = question(1);
    let key = of.0;
    concern(&mut queue, &of, Others::One(1), now);
    let (_, due) = queue.next(now).unwrap();
    concern(&mut queue, &of, Others::One(1), now);
    queue.ended(key, due, CHANGED, now);
    let (_, due) = queue.next(now + SPACING).unwrap();
    queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now + SPACING);
    assert_eq!(queue.next_at(), Some(now + SPACING + AGAIN[0]));
}

#[test]
fn what_a_look_did_not_find_is_left_to_the_next_one() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let of = question(1);
    let key = of.0;
    concern(&mut queue, &of, Others::One(1), now);
    let (_, due) = queue.next(now).unwrap();
    concern(&mut queue, &of, Others::None, now);
    queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now);
    let (_, due) = queue.next(now + SPACING).unwrap();
    queue.ended(key, due, (Recheck::Unchanged, Pushed::Known), now + SPACING);
    assert!(queue.next_at().is_some(), "the first event has not been found");
}

#[test]
fn a_delivery_is_done_when_the_last_look_is() {
    let (mut queue, mut now) = (Queue::default(), Instant::now());
    let of = question(1);
    let batch: Arc<Batch> = Arc::default();
    queue.concern(of.0, of.1, &Concern { batch: &batch, pushes: None, others: Others::None }, now);
    for number in 0..=AGAIN.len() {
        let (key, due) = queue.next(now).unwrap();
        let done = queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now);
        assert_eq!(done.len(), usize::from(number == AGAIN.len()), "{number}");
        now = queue.next_at().unwrap_or(now);
    }
    assert_eq!(Arc::strong_count(&batch), 1);
}

#[test]
fn different_subjects_are_many_and_equal_ones_are_one() {
    let (one, other) = (Others::One(1), Others::One(2));
    assert_eq!((one.and(one), one.and(other)), (one, Others::Many));
    assert_eq!((one.and(Others::None), Others::None.and(one), Others::Many.and(one)), (one, one, Others::Many));
}

#[test]
fn what_events_say_is_remembered_within_a_bound() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let of = question(1);
    let _key = of.0;
    (0..=MAX_BATCHES).for_each(|_| concern(&mut queue, &of, Others::None, now));
    let (_, due) = queue.next(now).unwrap();
    assert_eq!((due.pushes.len(), due.others), (MAX_BATCHES, Others::Many));
}

#[test]
fn a_source_that_rests_is_looked_at_afterwards() {
    let (mut queue, now, pause) = (Queue::default(), Instant::now(), Duration::from_mins(5));
    let of = question(1);
    let key = of.0;
    concern(&mut queue, &of, Others::One(1), now);
    let (_, due) = queue.next(now).unwrap();
    queue.ended(key, due, (Recheck::Backoff(pause), Pushed::Untold), now);
    assert_eq!(queue.next_at(), Some(now + pause));
    let (_, due) = queue.next(now + pause).unwrap();
    queue.ended(key, due, (Recheck::Unchanged, Pushed::Untold), now + pause);
    assert_eq!(queue.next_at(), Some(now + pause + AGAIN[0]), "it was not a recheck");
}

#[test]
fn few_looks_are_under_way_at_once() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for number in 0..20 {
        let of = question(number);
        concern(&mut queue, &of, Others::One(1), now);
    }
    let first: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
    assert_eq!(first.len(), AT_ONCE);
    let (key, due) = first[0].clone();
    queue.ended(key, due, (Recheck::Held, Pushed::Untold), now);
    assert!(queue.next(now).is_some());
}
