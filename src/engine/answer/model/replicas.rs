//! The rules that keep replicas right. Each test plays the order of events that breaks a store without the rule.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::{
    expect::Got,
    rules::{Asked, Slot, Wall},
    source::{Says, SourceFault},
    stage::{Stage, question},
};
use crate::{
    clients::store::{CopyState, Field, Lease, MemoryStore, Store as _, StoreError, SyncRequest},
    domain::{clock::Clock, generator::Selector},
    engine::{
        answer::{
            Answer, Engine, Unknown,
            admin_ops::{NotDecided, Operator},
        },
        guard::Decision,
        route::ResolvedQuery,
    },
};

const ASKED: Asked = Asked { route: 0, branch: 0, commit: 0 };
const OTHER: Asked = Asked { route: 0, branch: 1, commit: 0 };

/// Replicas with one store, in virtual time.
pub(super) struct Replicas {
    pub(super) stage: Stage,
    wall: Arc<Wall>,
    pub(super) store: MemoryStore,
    pub(super) all: Vec<Arc<Engine>>,
}

pub(super) fn list(count: u8) -> Says {
    Says::List { first: 0, count, lasting: None }
}

fn operator() -> Operator {
    Operator { caller: String::new(), request_id: String::new(), reason: None }
}

/// How many parameter sets an answer has, and whether it comes from a run for this caller.
pub(super) fn sets(result: &Result<Answer, Unknown>) -> Result<usize, &'static str> {
    result.as_ref().map(|answer| answer.entry.encoded.sets()).map_err(|unknown| unknown.failure.as_str())
}

impl Replicas {
    /// Plays with `count` replicas that know one answer with six sets.
    pub(super) fn play<F: Future<Output = ()>>(count: u32, play: impl FnOnce(Self) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (stage, wall) = (Stage::default(), Arc::new(Wall::default()));
            stage.source.reset(&wall);
            let store = MemoryStore::new(Arc::clone(&wall) as Arc<dyn Clock>);
            let mut replicas = Self { stage, wall, store, all: Vec::new() };
            for _ in 0..count {
                replicas.add();
            }
            replicas.pass(8).await;
            assert_eq!(replicas.ask(0).await, Ok(6));
            replicas.pass(1).await;
            play(replicas).await;
        });
    }

    pub(super) fn add(&mut self) {
        let n = u32::try_from(self.all.len()).unwrap();
        self.all.push(self.stage.start_replica(n, &self.wall, &self.store));
    }

    /// Lets seconds pass. Each replica syncs four times in a second.
    pub(super) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds * 4 {
            self.sync().await;
            sleep(Duration::from_millis(250)).await;
        }
        self.sync().await;
    }

    async fn sync(&self) {
        for engine in &self.all {
            let _ = engine.sync(&self.stage.routes).await;
        }
    }

    pub(super) fn start(&self, replica: usize, asked: Asked) -> JoinHandle<Result<Answer, Unknown>> {
        let (engine, routes) = (Arc::clone(&self.all[replica]), Arc::clone(&self.stage.routes));
        tokio::spawn(async move {
            let question = question(asked);
            let route = routes.by_name(&question.route).unwrap();
            engine.answer(&Arc::new(ResolvedQuery::again(Arc::clone(route), &question))).await
        })
    }

    /// Asks at a replica. Returns how many sets the answer has.
    async fn ask(&self, replica: usize) -> Result<usize, &'static str> {
        sets(&self.start(replica, ASKED).await.unwrap())
    }

    /// Starts a run that waits, and returns it with its caller. The source says `says` to it.
    async fn slow(&self, replica: usize, says: Says) -> (usize, JoinHandle<Result<Answer, Unknown>>) {
        self.stage.source.say(says, 0);
        self.stage.source.slow(true);
        let caller = self.start(replica, ASKED);
        sleep(Duration::from_millis(5)).await;
        self.stage.source.slow(false);
        (*self.stage.source.waiting().last().expect("a run waits"), caller)
    }

    /// Waits for a caller, while time passes.
    pub(super) async fn within_time(&self, caller: JoinHandle<Result<Answer, Unknown>>) -> Result<usize, &'static str> {
        self.settle().await;
        while !caller.is_finished() {
            self.pass(1).await;
        }
        sets(&caller.await.unwrap())
    }

    /// Lets everything go on that needs no time.
    pub(super) async fn settle(&self) {
        sleep(Duration::from_millis(5)).await;
    }

    /// Invalidates everything, if the store can be reached.
    pub(super) async fn publish_everything(&self) -> Result<(), StoreError> {
        self.all[0].publish_invalidation(&Selector::default()).await
    }

    async fn invalidate(&self) {
        let selector = Selector::default();
        self.all[0].publish_invalidation(&selector).await.unwrap();
        self.all[0].invalidate(&self.stage.routes, &selector, &operator());
        self.sync().await;
    }

    async fn decide(&self, replica: usize, fingerprint: Option<&str>, decision: Decision) -> Result<bool, NotDecided> {
        let id = self.stage.key(Slot::Own(ASKED)).to_string();
        let engine = &self.all[replica];
        let decided = engine.decide(&self.stage.routes, &id, fingerprint, decision, &operator()).await;
        decided.map(|decided| decided.is.is_some())
    }
}

/// Rule 1: the answer of a run is compared with what is stored when it is stored, not when the run began.
#[test]
fn an_answer_is_compared_with_one_that_came_meanwhile() {
    Replicas::play(2, async |replicas: Replicas| {
        replicas.pass(400).await;
        let (first, at_first) = replicas.slow(0, list(20)).await;
        replicas.store.end_leases();
        replicas.stage.source.cut(vec![ASKED]);
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
        replicas.stage.source.cut(vec![ASKED]);
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
                assert_ne!(got, Ok(5), "{field:?}");
                assert!(replica == 2 || got == Ok(6), "{field:?}: {got:?}");
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
            assert_eq!(replicas.stage.source.runs(), runs + 1, "the first asks the source, the others get its answer");
            assert_eq!(replicas.ask(usize::from(round)).await, Ok(usize::from(7 + round)));
        }
        // A run that an invalidation cut off brings no fresh answer.
        replicas.pass(400).await;
        let (run, caller) = replicas.slow(1, list(10)).await;
        replicas.invalidate().await;
        replicas.stage.source.cut(vec![ASKED]);
        replicas.stage.source.open(run);
        assert_eq!(sets(&caller.await.unwrap()), Ok(10));
        replicas.stage.source.say(list(11), 0);
        replicas.add();
        replicas.pass(1).await;
        assert_eq!(replicas.ask(3).await, Ok(11));
    });
}
