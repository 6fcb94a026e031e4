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

/// Rule 5: without contact, a replica answers nothing: no answer from memory, none from its file, and none of a run.
#[test]
fn without_contact_nothing_is_answered() {
    for state in [LinkState::Cut, LinkState::Silent, LinkState::SilentBack] {
        Replicas::play(2, async |mut replicas: Replicas| {
            replicas.links.iter().for_each(|link| link.set(state));
            replicas.stage.source.say(list(7), 0);
            replicas.pass(2).await;
            let runs = replicas.stage.source.runs();
            for query in [QUERY, OTHER] {
                for replica in 0..2 {
                    let caller = replicas.start(replica, query);
                    assert_eq!(replicas.within_time(caller).await, Err("store"), "{state:?}");
                }
            }
            assert!(matches!(replicas.decide(0, None, Decision::Released).await, Err(NotDecided::Store(_))));
            assert!(replicas.publish_everything().await.is_err());
            replicas.all[0].confirm_due(&replicas.stage.routes);
            assert_eq!(replicas.all[0].warm_up(&replicas.stage.routes).await, 0);
            // A start does not help, with a file or without.
            let ended = replicas.end(1);
            replicas.start_again(ended);
            let caller = replicas.start(1, QUERY);
            assert_eq!(replicas.within_time(caller).await, Err("store"), "{state:?}");
            assert!(!replicas.all[1].replica().unwrap().is_informed());
            assert_eq!(replicas.stage.source.runs(), runs, "{state:?}: the source is not called");

            replicas.links.iter().for_each(|link| link.set(LinkState::Works));
            replicas.pass(400).await;
            for replica in 0..2 {
                assert_eq!(replicas.within_time(replicas.start(replica, QUERY)).await, Ok(7), "{state:?}");
            }
        });
    }
}

/// A failover of seconds is not seen: a call waits for contact, and is answered as soon as there is.
#[test]
fn a_call_waits_for_contact() {
    Replicas::play(2, async |replicas: Replicas| {
        for state in [LinkState::Cut, LinkState::Silent, LinkState::SilentBack] {
            replicas.links[0].set(state);
            replicas.pass(2).await;
            let caller = replicas.start(0, QUERY);
            replicas.pass(3).await;
            assert!(!caller.is_finished(), "{state:?}");
            replicas.links[0].set(LinkState::Works);
            replicas.pass(1).await;
            assert!(caller.is_finished(), "{state:?}");
            assert_eq!(sets(&caller.await.unwrap()), Ok(6));
        }
        // At the latest, it ends a little before its deadline.
        replicas.links[0].set(LinkState::Cut);
        replicas.pass(2).await;
        let (began, caller) = (Instant::now(), replicas.start(0, QUERY));
        assert_eq!(sets(&caller.await.unwrap()), Err("store"));
        assert!(began.elapsed() < Duration::from_secs(25) && began.elapsed() > Duration::from_secs(24));
    });
}

/// Contact is lost in the middle of a run. Its answer is served once it is stored.
#[test]
fn a_run_waits_for_contact_to_store_its_answer() {
    for state in [LinkState::Cut, LinkState::Silent, LinkState::SilentBack] {
        Replicas::play(2, async |replicas: Replicas| {
            replicas.pass(400).await;
            let (run, caller) = replicas.slow(0, list(7)).await;
            replicas.links[0].set(state);
            replicas.pass(2).await;
            replicas.stage.source.open(run);
            replicas.pass(5).await;
            assert!(!caller.is_finished(), "{state:?}: nobody has stored it");
            assert_ne!(replicas.all[0].answers().list().len(), 0);
            replicas.links[0].set(LinkState::Works);
            replicas.pass(2).await;
            assert!(caller.is_finished(), "{state:?}");
            assert_eq!(sets(&caller.await.unwrap()), Ok(7), "{state:?}");
            assert_eq!(replicas.ask(1).await, Ok(7), "{state:?}");
            assert_eq!(replicas.stage.source.runs(), run + 1, "{state:?}: the source is not called again");
        });
    }
}

/// Rule 7: contact ends by itself a second after the last sync that brought something, without any error.
#[test]
fn silence_is_no_contact() {
    Replicas::play(1, async |replicas: Replicas| {
        assert!(matches!(Got::of(&replicas.start(0, QUERY).await.unwrap()), Got::Hit(..)));
        // No sync ends any more, and no error comes either.
        sleep(Duration::from_millis(1100)).await;
        let caller = replicas.start(0, QUERY);
        replicas.compare().await;
        assert!(!caller.is_finished());
        replicas.sync().await;
        replicas.compare().await;
        assert!(matches!(Got::of(&caller.await.unwrap()), Got::Hit(..)));
    });
}

/// Answers never go back: no caller gets a new one while another replica may still serve the one before as fresh.
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
                live_then: 1,
                invalidation: 0,
                highest: 0,
                has_offered: true,
                is_serving: true,
                is_current: true,
                suspects: false,
            };
            replicas.store.sync(&request).await.unwrap()
        };
        let mut known = ghost(0).await.highest;
        replicas.stage.source.say(list(7), 0);
        for acknowledges in [true, false] {
            ghost(known).await;
            let (began, caller) = (Instant::now(), replicas.start(0, QUERY));
            replicas.compare().await;
            assert!(!caller.is_finished(), "the ghost may still serve the answer before");
            known = ghost(known).await.highest;
            replicas.compare().await;
            assert!(!caller.is_finished(), "the ghost has not said that it knows it");
            if acknowledges {
                ghost(known).await;
            }
            while !caller.is_finished() {
                replicas.sync().await;
                sleep(Duration::from_millis(20)).await;
            }
            assert_eq!(sets(&caller.await.unwrap()), Ok(7));
            let waited = began.elapsed();
            assert_eq!(waited < Duration::from_millis(500), acknowledges, "{waited:?}");
            assert!(waited < Duration::from_millis(1500), "without contact, the ghost answers nothing: {waited:?}");
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
        let key = *replicas.stage.key(Slot::Own(QUERY)).as_bytes();
        assert!(matches!(replicas.store.begin(&epoch, "ghost", key, u64::MAX).await, Ok(Lease::Ours(_))));
        replicas.stage.source.say(list(7), 0);
        let other = replicas.start(0, OTHER).await.unwrap();
        assert_eq!(sets(&other), Ok(7), "another question does not wait");
        let (began, caller) = (Instant::now(), replicas.start(0, QUERY));
        replicas.pass(2).await;
        assert!(!caller.is_finished(), "the lease of the ghost still counts");
        replicas.pass(2).await;
        assert_eq!(sets(&caller.await.unwrap()), Ok(7));
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}
