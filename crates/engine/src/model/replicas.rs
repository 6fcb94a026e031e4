//! The rules that keep replicas right. Each test plays the order of events that breaks a store without the rule.

mod contact;
mod left_work;
mod links;
mod losses;
mod records;

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::{
    answer::{Answer, Engine, Unknown},
    cache::Disk,
    guard::Decision,
    model::{
        expect::Got,
        rules::{ModelQuery, Slot, Wall},
        source::{Says, SourceFault},
        stage::{Stage, question},
    },
    operators::{NotDecided, Operator},
    route::ResolvedQuery,
};
use domain::{clock::Clock, generator::Selector};
use store::{CopyState, Field, Lease, Link, LinkState, MemoryStore, Store as _, StoreError, SyncRequest};

const QUERY: ModelQuery = ModelQuery { route: 0, branch: 0, commit: 0 };
const OTHER: ModelQuery = ModelQuery { route: 0, branch: 1, commit: 0 };

/// What stays of a replica that was ended: its link and its file.
pub(super) type Ended = (Link, Disk);

/// Replicas with one store, in virtual time.
pub(super) struct Replicas {
    pub(super) stage: Stage,
    wall: Arc<Wall>,
    pub(super) store: MemoryStore,
    pub(super) all: Vec<Arc<Engine>>,
    /// The links of `all` to the store.
    pub(super) links: Vec<Link>,
    /// The files of `all`.
    disks: Vec<Disk>,
    started: u32,
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
            let (all, links, disks) = (Vec::new(), Vec::new(), Vec::new());
            let mut replicas = Self { stage, wall, store, all, links, disks, started: 0 };
            for _ in 0..count {
                replicas.add();
            }
            replicas.pass(8).await;
            assert_eq!(replicas.ask(0).await, Ok(6));
            replicas.pass(1).await;
            play(replicas).await;
        });
    }

    /// Adds a replica with an empty file.
    pub(super) fn add(&mut self) {
        let (link, disk) = (Link::to(&self.store), Disk::in_memory(self.stage.metrics.disk.clone()));
        let engine = self.start_one(&link, &disk);
        self.all.push(engine);
        self.links.push(link);
        self.disks.push(disk);
    }

    fn start_one(&mut self, link: &Link, disk: &Disk) -> Arc<Engine> {
        self.started += 1;
        self.stage.start_replica(self.started, &self.wall, Arc::new(link.clone()), Some(disk))
    }

    /// Ends a replica. Its file stays.
    pub(super) fn end(&mut self, replica: usize) -> Ended {
        drop(self.all.remove(replica));
        let disk = self.disks.remove(replica);
        disk.flush(Duration::from_secs(10));
        (self.links.remove(replica), disk)
    }

    /// Starts a replica that was ended, with its file.
    pub(super) fn start_again(&mut self, (link, disk): Ended) {
        let engine = self.start_one(&link, &disk);
        self.all.push(engine);
        self.links.push(link);
        self.disks.push(disk);
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
        join_all(self.all.iter().map(|engine| engine.sync(&self.stage.routes))).await;
    }

    pub(super) fn start(&self, replica: usize, query: ModelQuery) -> JoinHandle<Result<Answer, Unknown>> {
        let (engine, routes) = (Arc::clone(&self.all[replica]), Arc::clone(&self.stage.routes));
        tokio::spawn(async move {
            let question = question(query);
            let route = routes.by_name(&question.route).unwrap();
            engine.answer(&Arc::new(ResolvedQuery::again(Arc::clone(route), &question))).await
        })
    }

    /// Asks at a replica. Returns how many sets the answer has.
    async fn ask(&self, replica: usize) -> Result<usize, &'static str> {
        sets(&self.start(replica, QUERY).await.unwrap())
    }

    /// Starts a run that waits, and returns it with its caller. The source says `says` to it.
    async fn slow(&self, replica: usize, says: Says) -> (usize, JoinHandle<Result<Answer, Unknown>>) {
        self.stage.source.say(says, 0);
        self.stage.source.slow(true);
        let caller = self.start(replica, QUERY);
        sleep(Duration::from_millis(5)).await;
        self.stage.source.slow(false);
        (*self.stage.source.waiting().last().expect("a run waits"), caller)
    }

    /// Waits for a caller, while time passes.
    pub(super) async fn within_time(&self, caller: JoinHandle<Result<Answer, Unknown>>) -> Result<usize, &'static str> {
        self.compare().await;
        while !caller.is_finished() {
            self.pass(1).await;
        }
        sets(&caller.await.unwrap())
    }

    /// Lets everything go on that needs no time.
    pub(super) async fn compare(&self) {
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
        let id = self.stage.key(Slot::Own(QUERY)).into();
        let engine = &self.all[replica];
        let decided = engine.decide(&self.stage.routes, &id, fingerprint, decision, &operator()).await;
        decided.map(|decided| decided.is.is_some())
    }
}
