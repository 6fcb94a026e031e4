//! A store that loses what it had: emptied, behind after a failover, or back at an earlier state.

use super::*;

/// Rule 4: a store that was emptied gets everything back from the replicas, and answers go on meanwhile.
#[test]
fn an_emptied_store_is_restored() {
    Replicas::play(2, async |mut replicas: Replicas| {
        replicas.store.flush_all();
        replicas.stage.source.say(Says::Nothing, 0);
        replicas.add();
        for _ in 0..20 {
            sleep(Duration::from_millis(250)).await;
            replicas.sync().await;
            for replica in 0..2 {
                assert_eq!(replicas.ask(replica).await, Ok(6));
            }
            assert_ne!(replicas.ask(2).await, Ok(0));
        }
        replicas.pass(70).await;
        for replica in [2, 1, 0] {
            assert_eq!(replicas.ask(replica).await, Ok(6));
        }
        assert_eq!(replicas.all[0].held().len(), 1);
    });
}

/// Rule 4: a standby that missed the last writes gets them back.
#[test]
fn a_failover_that_loses_writes_loses_no_baseline() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.store.replicate();
        replicas.pass(400).await;
        replicas.stage.source.say(list(20), 0);
        assert_eq!(replicas.ask(0).await, Ok(20));
        replicas.sync().await;
        replicas.store.fail_over();
        replicas.stage.source.say(list(6), 0);
        replicas.pass(400).await;
        for replica in 0..2 {
            assert_eq!(replicas.ask(replica).await, Ok(20), "the standby only knew of 6");
        }
    });
}

/// Rule 4: copies that nobody offered are lost for good. An absent record then means "unknown".
#[test]
fn what_was_lost_for_good_holds_every_answer() {
    Replicas::play(1, async |mut replicas: Replicas| {
        replicas.store.flush_all();
        // The only replica that knew something is gone. The next one knows that it does not know all.
        replicas.all.clear();
        replicas.add();
        let shared = Arc::clone(replicas.all[0].shared().unwrap());
        replicas.all[0].completed(&shared, false);
        replicas.stage.source.say(list(1), 0);
        replicas.pass(60).await;
        assert_eq!(replicas.ask(0).await, Err("store"), "it waits for other replicas that know more");
        replicas.pass(600).await;
        for _ in 0..10 {
            assert_eq!(replicas.ask(0).await, Err("held"), "a held answer says nothing about what was there before");
            replicas.pass(3).await;
        }
    });
}

/// Rule 4: an offer that failed is repeated.
#[test]
fn a_failed_offer_is_repeated() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.store.flush_all();
        replicas.store.fail_offers(3);
        replicas.pass(15).await;
        for engine in &replicas.all {
            assert!(engine.shared().unwrap().is_in_contact(), "the recovery does not wait for ten minutes");
        }
        replicas.stage.source.say(list(1), 0);
        replicas.pass(400).await;
        assert_eq!(replicas.ask(0).await, Ok(6), "held");
    });
}

/// Rule 4: what was offered in a recovery is not lost with the store that it was offered to.
#[test]
fn a_second_failover_within_a_recovery_loses_nothing() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.store.replicate();
        replicas.pass(400).await;
        replicas.stage.source.say(list(20), 0);
        assert_eq!(replicas.ask(0).await, Ok(20));
        replicas.sync().await;
        for _ in 0..2 {
            replicas.store.fail_over();
            replicas.sync().await;
        }
        replicas.stage.source.say(list(6), 0);
        replicas.pass(400).await;
        for replica in 0..2 {
            assert_eq!(replicas.ask(replica).await, Ok(20), "the standby only knew of 6");
        }
    });
}

/// Rule 4: numbers that go back show that writes were lost, also by a process that goes on.
#[test]
fn a_store_that_goes_back_is_noticed() {
    Replicas::play(2, async |mut replicas: Replicas| {
        replicas.store.replicate();
        replicas.pass(400).await;
        replicas.stage.source.say(list(20), 0);
        assert_eq!(replicas.ask(0).await, Ok(20));
        replicas.sync().await;
        replicas.store.roll_back();
        replicas.stage.source.say(list(6), 0);
        replicas.pass(15).await;
        replicas.add();
        replicas.pass(400).await;
        for replica in [2, 0, 1] {
            assert_eq!(replicas.ask(replica).await, Ok(20), "the earlier state only knew of 6");
        }
    });
}
