//! What replicas store: answers, decisions and invalidations, in the order in which they come.

use super::*;

/// Rule 1: the answer of a run is compared with what is stored when it is stored, not when the run began.
#[test]
fn an_answer_is_compared_with_one_that_came_meanwhile() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.pass(400).await;
        let (first, at_first) = replicas.slow(0, list(20)).await;
        replicas.store.end_leases();
        replicas.stage.source.cut(vec![QUERY]);
        let (second, at_second) = replicas.slow(1, list(5)).await;
        replicas.stage.source.open(first);
        assert_eq!(sets(&at_first.await.unwrap()), Ok(20));
        replicas.stage.source.open(second);
        assert_eq!(sets(&at_second.await.unwrap()), Ok(20), "5 instead of 20 are a loss, 5 instead of 6 were none");
        replicas.pass(1).await;
        for replica in 0..2 {
            assert_eq!(replicas.all[replica].held().len(), 1);
            assert_eq!(replicas.ask(replica).await, Ok(20));
        }
    });
}

/// Rules 1 and 2: an earlier run that ends later does not replace the answer, and its callers get the stored one.
#[test]
fn an_earlier_run_does_not_replace_a_later_answer() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.pass(400).await;
        let (first, at_first) = replicas.slow(0, list(7)).await;
        replicas.store.end_leases();
        replicas.stage.source.cut(vec![QUERY]);
        replicas.stage.source.say(list(8), 0);
        assert_eq!(replicas.ask(1).await, Ok(8));
        replicas.stage.source.open(first);
        assert_eq!(sets(&at_first.await.unwrap()), Ok(8));
        replicas.pass(1).await;
        assert_eq!((replicas.ask(0).await, replicas.ask(1).await), (Ok(8), Ok(8)));
    });
}

/// Rule 3: a record that cannot be read never counts as none. Every answer is held until it is confirmed.
#[test]
fn an_unreadable_record_holds_every_answer() {
    for field in
        [&[Field::Answer][..], &[Field::Baseline], &[Field::Held], &[Field::Answer, Field::Baseline, Field::Held]]
    {
        Replicas::play(2, async |mut replicas: Replicas| {
            for field in field {
                replicas.store.spoil(*field, b"garbage");
            }
            // Also for a replica that never saw the record whole.
            replicas.add();
            replicas.pass(70).await;
            replicas.stage.source.say(list(5), 0);
            for replica in [2, 0, 1] {
                let got = replicas.ask(replica).await;
                // A replica that was cut off may have missed a later answer. So what was there before is not served either.
                let expected = if field.contains(&Field::Answer) { Err("held") } else { Ok(6) };
                assert_eq!(got, expected, "{field:?}");
            }
            assert_eq!(replicas.all[2].held().len(), 1, "{field:?}");
            for _ in 0..10 {
                replicas.pass(3).await;
                assert_ne!(replicas.ask(2).await, Ok(5), "{field:?}: a held answer does not make it readable");
            }
            for _ in 0..200 {
                replicas.all[1].confirm_due(&replicas.stage.routes);
                replicas.pass(1).await;
            }
            for replica in 0..3 {
                assert_eq!(replicas.ask(replica).await, Ok(5), "{field:?}");
            }
        });
    }
}

/// Rule 10: a decision is about the answer that the operator saw.
#[test]
fn a_decision_about_another_answer_is_refused() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.pass(70).await;
        replicas.stage.source.say(list(2), 0);
        assert_eq!(replicas.ask(0).await, Ok(6));
        replicas.sync().await;
        let seen = replicas.all[1].held()[0].1.fingerprint();
        replicas.pass(5).await;
        replicas.stage.source.say(list(1), 0);
        assert_eq!(replicas.ask(0).await, Ok(6));
        assert!(matches!(replicas.decide(1, Some(&seen), Decision::Released).await, Err(NotDecided::Changed)));
        assert_eq!(replicas.ask(1).await, Ok(6));
        let now = replicas.all[1].held()[0].1.fingerprint();
        assert!(!replicas.decide(1, Some(&now), Decision::Released).await.unwrap());
        replicas.sync().await;
        assert_eq!((replicas.ask(0).await, replicas.ask(1).await), (Ok(1), Ok(1)));
    });
}

/// An invalidation at one replica makes every replica ask again.
#[test]
fn an_invalidation_reaches_all_replicas() {
    Replicas::play(3, async |mut replicas: Replicas| {
        for round in 0..3_u8 {
            replicas.stage.source.say(list(7 + round), 0);
            replicas.invalidate().await;
            let runs = replicas.stage.source.runs();
            for replica in [1, 2, 0] {
                assert!(replicas.ask(replica).await.is_ok());
                replicas.sync().await;
            }
            assert_eq!(replicas.stage.source.runs(), runs + 1, "the first calls the source, the others get its answer");
            assert_eq!(replicas.ask(usize::from(round)).await, Ok(usize::from(7 + round)));
        }
        // A run that an invalidation cut off brings no fresh answer.
        replicas.pass(400).await;
        let (run, caller) = replicas.slow(1, list(10)).await;
        replicas.invalidate().await;
        replicas.stage.source.cut(vec![QUERY]);
        replicas.stage.source.open(run);
        assert_eq!(sets(&caller.await.unwrap()), Ok(10));
        replicas.stage.source.say(list(11), 0);
        replicas.add();
        replicas.pass(1).await;
        assert_eq!(replicas.ask(3).await, Ok(11));
    });
}
