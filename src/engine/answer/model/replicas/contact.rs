//! Replicas without contact, and replicas that are gone.

use super::*;

/// Rule 9: revisions that no live replica has do not stop a route for good.
#[test]
fn a_revision_without_a_replica_is_replaced() {
    Replicas::play(2, async |replicas: Replicas| {
        let epoch = replicas.store.epoch();
        let routes = replicas.stage.routes.iter();
        let others: Vec<_> = routes.map(|route| (route.name.to_string(), Bytes::from_static(b"another"))).collect();
        replicas.store.register(&epoch, &others).await.unwrap();
        replicas.stage.source.say(list(7), 0);
        replicas.pass(5).await;
        assert_eq!(replicas.ask(0).await, Ok(6), "a replica with another revision runs nothing");
        replicas.pass(400).await;
        assert_eq!(replicas.ask(0).await, Ok(7));
    });
}

/// Rule 5: without the store, known answers are served, and only a good answer to a new question besides.
#[test]
fn without_the_store_nothing_known_changes() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.store.set_away(true);
        replicas.stage.source.say(list(1), 0);
        replicas.pass(70).await;
        let runs = replicas.stage.source.runs();
        for replica in 0..2 {
            let got = replicas.start(replica, ASKED).await.unwrap();
            assert!(matches!(Got::of(&got), Got::Instead(..)), "{got:?}");
            assert_eq!(sets(&got), Ok(6));
        }
        assert_eq!(replicas.stage.source.runs(), runs, "nothing that is known is asked again");
        assert_eq!(sets(&replicas.start(0, OTHER).await.unwrap()), Ok(1));
        replicas.stage.source.say(Says::Nothing, 0);
        assert_eq!(sets(&replicas.start(1, OTHER).await.unwrap()), Err("store"));
        assert!(matches!(replicas.decide(0, None, Decision::Released).await, Err(NotDecided::Store(_))));
        assert!(replicas.all[0].publish_invalidation(&Selector::default()).await.is_err());

        // What was answered meanwhile is not recorded.
        replicas.store.set_away(false);
        replicas.pass(1).await;
        assert_eq!(replicas.ask(0).await, Ok(6), "1 instead of 6 is held");
        replicas.stage.source.say(Says::Unknown(SourceFault::Unavailable), 0);
        assert_eq!(sets(&replicas.start(0, OTHER).await.unwrap()), Err("unavailable"));
    });
}

/// Rule 7: an answer is fresh only while the replica is in contact.
#[test]
fn an_answer_is_not_fresh_without_contact() {
    Replicas::play(1, async |replicas: Replicas| {
        assert!(matches!(Got::of(&replicas.start(0, ASKED).await.unwrap()), Got::Hit(..)));
        // No sync ends any more, and no error comes either.
        sleep(Duration::from_millis(1100)).await;
        assert!(matches!(Got::of(&replicas.start(0, ASKED).await.unwrap()), Got::Instead(..)));
    });
}

/// Answers never go back: nobody gets a new one while another replica may still serve the one before as fresh.
#[test]
fn an_answer_waits_until_all_replicas_know_it() {
    Replicas::play(1, async |replicas: Replicas| {
        replicas.pass(400).await;
        let epoch = replicas.store.epoch();
        let ghost = async |version| {
            let (replica, epoch) = ("ghost".to_owned(), Some(epoch.clone()));
            let copy = CopyState::Complete;
            let request = SyncRequest {
                replica,
                epoch,
                version,
                copy,
                invalidation: 0,
                highest: 0,
                has_offered: true,
                is_serving: true,
                is_current: true,
            };
            replicas.store.sync(&request).await.unwrap()
        };
        let mut known = ghost(0).await.highest;
        replicas.stage.source.say(list(7), 0);
        for acknowledges in [true, false] {
            ghost(known).await;
            let (began, caller) = (Instant::now(), replicas.start(0, ASKED));
            replicas.settle().await;
            assert!(!caller.is_finished(), "the ghost may still serve the answer before");
            known = ghost(known).await.highest;
            replicas.settle().await;
            assert!(!caller.is_finished(), "the ghost has not said that it knows it");
            if acknowledges {
                ghost(known).await;
            }
            assert_eq!(sets(&caller.await.unwrap()), Ok(7));
            let waited = began.elapsed();
            assert_eq!(waited < Duration::from_millis(500), acknowledges, "{waited:?}");
            assert!(
                waited < Duration::from_millis(1500),
                "without contact, the ghost serves nothing as fresh: {waited:?}"
            );
            replicas.pass(400).await;
        }
    });
}

/// Rule 8: the run of a replica that is gone is run again once its lease ends.
#[test]
fn a_lease_of_a_replica_that_is_gone_ends() {
    Replicas::play(1, async |replicas: Replicas| {
        replicas.pass(400).await;
        let epoch = replicas.store.epoch();
        let key = *replicas.stage.key(Slot::Own(ASKED)).as_bytes();
        assert!(matches!(replicas.store.begin(&epoch, "ghost", key, u64::MAX).await, Ok(Lease::Ours(_))));
        replicas.stage.source.say(list(7), 0);
        let other = replicas.start(0, OTHER).await.unwrap();
        assert_eq!(sets(&other), Ok(7), "another question does not wait");
        let (began, caller) = (Instant::now(), replicas.start(0, ASKED));
        replicas.pass(2).await;
        assert!(!caller.is_finished(), "the lease of the ghost still counts");
        replicas.pass(2).await;
        assert_eq!(sets(&caller.await.unwrap()), Ok(7));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}
