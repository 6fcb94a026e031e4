//! Replicas of which some are cut off and others are not. What was seen with a store that "serves what it has": answers of different
//! replicas one after the other.

use super::*;

/// Calls every replica once, and returns the answers that came.
async fn call_each(replicas: &Replicas) -> Vec<usize> {
    let mut seen = Vec::new();
    for replica in 0..replicas.all.len() {
        match replicas.within_time(replicas.start(replica, QUERY)).await {
            Ok(sets) => seen.push(sets),
            Err(why) => assert_eq!(why, "store"),
        }
    }
    seen
}

/// A is killed, the source grows, B serves more; the store goes, and A starts from its outdated file.
#[test]
fn a_start_from_an_outdated_file_while_the_store_is_away() {
    Replicas::play(2, async |mut replicas: Replicas| {
        let outdated = replicas.end(0);
        replicas.stage.source.say(list(9), 0);
        replicas.pass(70).await;
        replicas.pass(1).await;
        assert_eq!(replicas.ask(0).await, Ok(6), "stale, while a run renews it");
        replicas.pass(1).await;
        assert_eq!(replicas.ask(0).await, Ok(9));
        replicas.store.set_away(true);
        replicas.start_again(outdated);
        replicas.pass(2).await;
        assert!(!replicas.all[1].replica().unwrap().is_informed(), "it is not ready");
        assert!(call_each(&replicas).await.is_empty(), "nobody answers");
        replicas.store.set_away(false);
        replicas.pass(2).await;
        assert_eq!(call_each(&replicas).await, [9, 9]);
    });
}

/// One of three is cut off, in each way, while the source grows.
#[test]
fn one_that_is_cut_off_answers_nothing_while_others_go_on() {
    for state in [LinkState::Cut, LinkState::Silent, LinkState::SilentBack] {
        Replicas::play(3, async |replicas: Replicas| {
            replicas.links[0].set(state);
            replicas.stage.source.say(list(9), 0);
            replicas.pass(70).await;
            // Stale at first, while a run renews it.
            let seen = call_each(&replicas).await;
            assert!(seen.is_sorted() && seen.len() == 2, "{state:?}: {seen:?}");
            replicas.pass(1).await;
            assert_eq!(call_each(&replicas).await, [9, 9], "{state:?}");
            replicas.links[0].set(LinkState::Works);
            replicas.pass(1).await;
            assert_eq!(call_each(&replicas).await, [9, 9, 9], "{state:?}");
        });
    }
}

/// A link falls silent at each moment around a commit of another replica. A caller of both never sees the answer come and go.
#[test]
fn a_link_that_falls_silent_around_a_commit() {
    for state in [LinkState::Cut, LinkState::Silent, LinkState::SilentBack] {
        for at in (0..1500).step_by(100) {
            Replicas::play(2, async |replicas: Replicas| {
                replicas.pass(400).await;
                let (run, caller) = replicas.slow(1, list(9)).await;
                let mut newest = 6;
                for moment in (0..4000).step_by(50) {
                    if moment == at {
                        replicas.links[0].set(state);
                    }
                    match moment {
                        700 => replicas.stage.source.open(run),
                        3000 => replicas.links[0].set(LinkState::Works),
                        _ => {}
                    }
                    if moment % 250 == 0 {
                        // Not awaited: a silent link takes its time.
                        for engine in &replicas.all {
                            let (engine, routes) = (Arc::clone(engine), Arc::clone(&replicas.stage.routes));
                            tokio::spawn(async move { engine.sync(&routes).await });
                        }
                    }
                    for replica in [0, 1] {
                        let asking = replicas.start(replica, QUERY);
                        sleep(Duration::from_millis(1)).await;
                        if asking.is_finished() {
                            let got = sets(&asking.await.unwrap()).unwrap();
                            assert!(got >= newest, "{state:?} at {at}, {moment} ms: {got} after {newest}");
                            newest = got;
                        }
                    }
                    sleep(Duration::from_millis(48)).await;
                }
                replicas.pass(2).await;
                assert_eq!(sets(&caller.await.unwrap()), Ok(9));
                assert_eq!(call_each(&replicas).await, [9, 9], "{state:?} at {at}");
            });
        }
    }
}

/// From one replica to several, and back, and forth again: what the one answered meanwhile is the measure, and no older answer comes back.
#[test]
fn a_gateway_that_answered_alone_in_between() {
    Replicas::play(2, async |mut replicas: Replicas| {
        drop(replicas.end(1));
        let (link, disk) = replicas.end(0);
        // Without `cache.shared`.
        let alone = replicas.stage.start(&replicas.wall, Some(&disk));
        let ask = async |engine: &Arc<Engine>| {
            let question = question(QUERY);
            let route = replicas.stage.routes.by_name(&question.route).unwrap();
            sets(&engine.answer(&Arc::new(ResolvedQuery::again(Arc::clone(route), &question))).await)
        };
        assert_eq!(ask(&alone).await, Ok(6), "its file has everything");
        replicas.stage.source.say(list(20), 0);
        sleep(Duration::from_secs(700)).await;
        assert_eq!(ask(&alone).await, Ok(20));
        drop(alone);
        disk.flush(Duration::from_secs(10));
        // Back to a store that still has the earlier answer. The source has shrunk.
        replicas.stage.source.say(list(8), 0);
        replicas.start_again((link, disk));
        replicas.add();
        replicas.pass(80).await;
        for replica in 0..2 {
            let got = replicas.within_time(replicas.start(replica, QUERY)).await;
            assert_eq!(got, Err("held"), "neither the earlier 6, nor 8 instead of 20");
        }
    });
}
