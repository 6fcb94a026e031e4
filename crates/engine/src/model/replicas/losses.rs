//! A store that loses what it had: emptied, behind after a failover, or back at an earlier state.

use super::*;

/// Rule 4: a store that was emptied gets all baselines back. The earlier answers are not served: another
/// replica may have served later ones.
#[test]
fn an_emptied_store_is_restored() {
    Replicas::play(2, async |mut replicas: Replicas| {
        replicas.store.flush_all();
        replicas.stage.source.say(Says::Nothing, 0);
        replicas.add();
        replicas.pass(70).await;
        for replica in [2, 1, 0] {
            assert_eq!(replicas.ask(replica).await, Err("held"));
        }
        assert_eq!(replicas.all[0].held().len(), 1);
        replicas.stage.source.say(list(6), 0);
        replicas.pass(400).await;
        for replica in [2, 1, 0] {
            assert_eq!(replicas.ask(replica).await, Ok(6));
        }
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
            assert_eq!(replicas.ask(replica).await, Err("held"), "the standby only knew of 6");
        }
        replicas.stage.source.say(list(20), 0);
        replicas.pass(400).await;
        assert_eq!((replicas.ask(0).await, replicas.ask(1).await), (Ok(20), Ok(20)));
    });
}

/// Rule 4: what the standby has is not served either: it may be older than what was served.
#[test]
fn a_failover_brings_no_older_answer_back() {
    Replicas::play(2, async |mut replicas: Replicas| {
        replicas.store.replicate();
        replicas.pass(400).await;
        replicas.stage.source.say(list(20), 0);
        assert_eq!(replicas.ask(0).await, Ok(20));
        // Nobody who knows of it is left.
        let outdated = [replicas.end(1), replicas.end(0)];
        replicas.store.fail_over();
        replicas.add();
        replicas.stage.source.say(Says::Unknown(SourceFault::Unavailable), 0);
        replicas.pass(100).await;
        assert_eq!(replicas.ask(0).await, Err("unavailable"), "not the 6 of the standby");
        for ended in outdated {
            replicas.start_again(ended);
        }
        replicas.pass(5).await;
        for replica in 0..3 {
            assert_eq!(replicas.ask(replica).await, Err("unavailable"), "nor what is in a file");
        }
        replicas.stage.source.say(list(21), 0);
        replicas.pass(400).await;
        assert_eq!(replicas.ask(1).await, Ok(21));
    });
}

/// Rule 4: a copy that comes late replaces what an outdated one brought.
#[test]
fn the_later_copy_counts_also_if_it_comes_late() {
    Replicas::play(3, async |mut replicas: Replicas| {
        // The first replica is cut off while the source grows, and offers its copy first.
        replicas.links[0].set(LinkState::Cut);
        replicas.pass(400).await;
        replicas.stage.source.say(list(20), 0);
        assert_eq!(replicas.ask(1).await, Ok(20));
        replicas.pass(1).await;
        drop(replicas.end(2));
        replicas.links[1].set(LinkState::Cut);
        replicas.store.flush_all();
        replicas.links[0].set(LinkState::Works);
        replicas.pass(70).await;
        replicas.links[1].set(LinkState::Works);
        replicas.pass(20).await;
        replicas.stage.source.say(list(6), 0);
        for replica in 0..2 {
            assert_eq!(replicas.ask(replica).await, Err("held"), "6 were all, as far as the first one knew");
        }
    });
}

/// A replica is killed, the source grows, and two others serve more. All of them end with the content of the store, and the outdated file
/// comes first, or is the only one.
#[test]
fn an_outdated_file_is_not_the_latest_copy() {
    for comes_back in 0..=2 {
        Replicas::play(3, async |mut replicas: Replicas| {
            let outdated = replicas.end(0);
            replicas.pass(70).await;
            replicas.stage.source.say(list(20), 0);
            replicas.pass(400).await;
            assert_eq!(replicas.ask(1).await, Ok(20));
            replicas.pass(1).await;
            let mut later = vec![replicas.end(1), replicas.end(0)];
            replicas.store.flush_all();
            replicas.stage.source.say(list(6), 0);
            replicas.start_again(outdated);
            replicas.pass(100).await;
            let caller = replicas.start(0, QUERY);
            assert_eq!(replicas.within_time(caller).await, Err("store"), "it waits for the two that it was live with");
            later.drain(..comes_back).for_each(|file| replicas.start_again(file));
            replicas.pass(20).await;
            if comes_back < 2 {
                let caller = replicas.start(0, QUERY);
                assert_eq!(replicas.within_time(caller).await, Err("store"), "one of three is missing");
                replicas.pass(600).await;
            }
            for replica in 0..replicas.all.len() {
                assert_eq!(replicas.ask(replica).await, Err("held"), "{comes_back}: 6 were all in the outdated file");
            }
            replicas.stage.source.say(list(20), 0);
            for _ in 0..if comes_back == 2 { 1 } else { 5 } {
                replicas.pass(400).await;
                let _ = replicas.ask(0).await;
            }
            assert_eq!(replicas.ask(0).await, Ok(20), "{comes_back}: runs have confirmed it, if they had to");
        });
    }
}

/// A replica was cut off for long when the store was emptied, and the others ended at that moment: they are waited for for a minute.
#[test]
fn a_replica_that_was_cut_off_waits_for_those_that_went_on() {
    Replicas::play(2, async |mut replicas: Replicas| {
        replicas.links[0].set(LinkState::Cut);
        replicas.pass(70).await;
        replicas.stage.source.say(list(20), 0);
        replicas.pass(400).await;
        assert_eq!(replicas.ask(1).await, Ok(20));
        let later = replicas.end(1);
        replicas.store.flush_all();
        replicas.links[0].set(LinkState::Works);
        replicas.stage.source.say(list(6), 0);
        replicas.pass(5).await;
        assert_eq!(replicas.within_time(replicas.start(0, QUERY)).await, Err("store"));
        replicas.start_again(later);
        replicas.pass(15).await;
        for replica in 0..2 {
            assert_eq!(replicas.ask(replica).await, Err("held"), "20 were in the file that came later");
        }
    });
}

/// The requests of a replica arrive, and it gets no replies. The others wait for its copy for a minute, as for one that is gone.
#[test]
fn a_replica_without_replies_is_waited_for_for_a_minute() {
    Replicas::play(3, async |replicas: Replicas| {
        replicas.links[2].set(LinkState::SilentBack);
        replicas.store.flush_all();
        replicas.stage.source.say(list(1), 0);
        replicas.pass(15).await;
        assert_eq!(replicas.within_time(replicas.start(0, QUERY)).await, Err("store"));
        replicas.pass(60).await;
        for replica in 0..2 {
            assert_eq!(replicas.ask(replica).await, Err("held"), "nothing is lost: 6 were there");
        }
        replicas.links[2].set(LinkState::Works);
        replicas.stage.source.say(list(6), 0);
        replicas.pass(400).await;
        for replica in 0..3 {
            assert_eq!(replicas.ask(replica).await, Ok(6), "its copy has nothing that the others lack");
        }
    });
}

/// … but if it alone has a copy, that copy is the only proof that there was nothing.
#[test]
fn the_only_copy_is_not_nothing_without_replies() {
    Replicas::play(1, async |mut replicas: Replicas| {
        replicas.links[0].set(LinkState::SilentBack);
        replicas.store.flush_all();
        replicas.stage.source.say(Says::Nothing, 0);
        replicas.add();
        replicas.pass(100).await;
        assert_eq!(replicas.within_time(replicas.start(1, QUERY)).await, Err("store"));
        replicas.links[0].set(LinkState::Works);
        replicas.pass(15).await;
        for replica in [1, 0] {
            assert_eq!(replicas.ask(replica).await, Err("held"), "6 were there");
        }
    });
}

/// A file of the only replica is the latest copy: no other replica can have gone on.
#[test]
fn the_file_of_the_last_replica_is_the_latest_copy() {
    Replicas::play(2, async |mut replicas: Replicas| {
        drop(replicas.end(1));
        replicas.pass(5).await;
        let file = replicas.end(0);
        replicas.store.flush_all();
        replicas.start_again(file);
        replicas.pass(10).await;
        assert_eq!(replicas.ask(0).await, Ok(6), "the recovery does not wait");
    });
}

/// Rule 4: copies that no replica offered are lost for good. An absent record then means "unknown".
#[test]
fn what_was_lost_for_good_holds_every_answer() {
    Replicas::play(1, async |mut replicas: Replicas| {
        replicas.store.flush_all();
        // The only replica that knew something is gone. The next one knows that it does not know all.
        drop(replicas.end(0));
        replicas.add();
        let shared = Arc::clone(replicas.all[0].replica().unwrap());
        replicas.all[0].completed(&shared, None);
        replicas.stage.source.say(list(1), 0);
        replicas.pass(30).await;
        let caller = replicas.start(0, QUERY);
        assert_eq!(replicas.within_time(caller).await, Err("store"), "it waits for other replicas that know more");
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
            assert!(engine.replica().unwrap().is_in_contact(), "the recovery does not wait for ten minutes");
        }
        replicas.stage.source.say(list(1), 0);
        replicas.pass(400).await;
        assert_eq!(replicas.ask(0).await, Err("held"));
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
            assert_eq!(replicas.ask(replica).await, Err("held"), "the standby only knew of 6");
        }
    });
}

/// Rule 4: numbers that go back show that writes were lost, even by a process that keeps running.
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
            assert_eq!(replicas.ask(replica).await, Err("held"), "the earlier state only knew of 6");
        }
    });
}
