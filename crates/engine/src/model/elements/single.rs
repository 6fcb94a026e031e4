//! Single histories of elements.

use tokio::time::Instant;

use super::{
    Op, Seen,
    source::{ElementSource, Fault, Says},
    with_history,
};
use crate::{
    model::stage::Setup,
    state::notices::{Notice, What},
};

/// An element hangs while another one gets new versions. `between` happens before each call.
fn others_wait_once(between: impl Fn(&ElementSource)) {
    let seen = Seen::default();
    let result = with_history(Setup::Memory, &seen, async |history| {
        history.call().await?;
        history.source.say(0, Says::Unknown(Fault::Hangs));
        let mut waited = Vec::new();
        for version in 1..4 {
            between(&history.source);
            history.source.say(1, Says::Present(version));
            history.pass(400).await;
            let began = Instant::now();
            history.call().await?;
            waited.push(began.elapsed().as_secs());
            assert_eq!((history.applications[&0], history.applications[&1]), (0, version), "{waited:?}");
        }
        assert!(waited[0] >= 20 && waited[1..].iter().all(|seconds| *seconds <= 2), "{waited:?}");
        history.settle().await
    });
    result.unwrap();
}

#[test]
fn an_element_that_hangs_makes_the_others_wait_once() {
    others_wait_once(|_| ());
}

#[test]
fn an_element_that_hangs_with_each_commit_makes_the_others_wait_once() {
    others_wait_once(|source| source.commit(0));
}

#[test]
fn an_element_that_comes_back_unknown_is_not_what_it_was_before() {
    let seen = Seen::default();
    let result = with_history(Setup::Memory, &seen, async |history| {
        history.call().await?;
        history.perform(&Op::Back(0, Fault::Unavailable)).await?;
        for _ in 0..3 {
            assert!(!history.applications.contains_key(&0), "{:?}", history.applications);
            history.pass(400).await;
            history.call().await?;
        }
        history.settle().await
    });
    result.unwrap();
}

#[test]
fn elements_whose_destination_gets_no_requests_go_on_as_soon_as_it_does() {
    // Some elements, and more than half, so that the whole answer fails.
    for count in [2, 5] {
        let seen = Seen::default();
        let result = with_history(Setup::Memory, &seen, async |history| {
            history.call().await?;
            for element in 0..count {
                history.source.say(element, Says::Unknown(Fault::Refused));
            }
            history.pass(400).await;
            for _ in 0..60 {
                history.call().await?;
                history.pass(3).await;
            }
            for element in 0..count {
                history.source.say(element, Says::Present(2));
            }
            history.pass(12).await;
            history.call().await?;
            // A stale answer may come first.
            history.pass(1).await;
            history.call().await?;
            assert_eq!(history.applications[&0], 2, "{count}: {:?}", history.applications);
            history.settle().await
        });
        result.unwrap();
    }
}

/// The clock of the store is put back before its first recovery was seen to end.
#[test]
fn a_store_whose_clock_is_put_back_ends_its_recovery() {
    let seen = Seen::default();
    let result = with_history(Setup::Replicas(2), &seen, async |history| {
        history.perform(&Op::Jump(-7200)).await?;
        history.perform(&Op::Element(0, Says::Present(1))).await?;
        history.settle().await
    });
    result.unwrap();
}

/// Callers ask for the whole answer: a notice about its part alone makes nobody ask again.
#[test]
fn an_event_about_a_part_is_a_notice_about_the_whole_answer_too() {
    let seen = Seen::default();
    let result = with_history(Setup::Memory, &seen, async |history| {
        let mut notices = history.engines[0].notices(|| ());
        history.call().await?;
        history.source.say(1, Says::Present(2));
        while notices.try_recv().is_ok() {}
        history.perform(&Op::Event(Some(1))).await?;
        let is_whole = |notice: &Notice| notice.question.part.is_none() && notice.what == What::Rechecked;
        let told = std::iter::from_fn(|| notices.try_recv().ok()).filter(is_whole).count();
        assert_eq!(told, 1);
        history.settle().await
    });
    result.unwrap();
}
