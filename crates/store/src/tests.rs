//! What every store must do. The store in memory and a real server are tried alike, so that what the model finds with the former holds
//! for the real one.

mod long;
mod offers;
mod pages;
mod pieces;

use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde_json::json;

use self::offers::{offers, recovers};
use super::*;
use domain::{
    clock::SystemClock,
    file::base_dir::BaseDir,
    problem::{Path, Problems},
};

const A: RecordKey = [1; 32];
const B: RecordKey = [2; 32];

/// A Redis server without persistence.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    async fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        let child = command.stdout(Stdio::null()).spawn();
        let child = child.expect("this test needs `redis-server`; `make check` installs it");
        while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Self { child, port }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store_at("appset-gateway")
    }

    fn store_at(&self, prefix: &str) -> Arc<dyn Store> {
        let url = format!("redis://127.0.0.1:{}", self.port);
        let config = json!({"url": url, "timeout": "800ms", "prefix": prefix});
        let config: StoreConfig = serde_json::from_value(config).unwrap();
        let mut problems = Problems::default();
        let store = config.build(&BaseDir::default(), &Path::root(), &mut problems);
        Arc::new(store.unwrap_or_else(|| panic!("{:?}", problems.into_vec())))
    }

    fn run(&self, command: &[&str]) {
        let output = Command::new("redis-cli").args(["-p", &self.port.to_string()]).args(command).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn request(replica: &str, epoch: Option<&str>) -> SyncRequest {
    SyncRequest {
        replica: replica.to_owned(),
        epoch: epoch.map(str::to_owned),
        version: 0,
        invalidation: 0,
        highest: 0,
        copy: CopyState::Empty,
        live_then: 1,
        has_offered: epoch.is_some(),
        is_serving: false,
        is_current: true,
        suspects: false,
    }
}

/// Begins an epoch as the only replica, which has nothing to offer, and waits until it is recovered.
async fn recovered(store: &dyn Store) -> String {
    let epoch = store.sync(&request("a", None)).await.unwrap().epoch;
    while store.sync(&request("a", Some(&epoch))).await.unwrap().is_recovering {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    epoch
}

fn commit(key: RecordKey, version: u64, content: Option<&'static str>) -> Commit {
    let content = content.map(|content| Bytes::from_static(content.as_bytes()));
    Commit {
        lease: None,
        expected: vec![(key, version)],
        invalidation: 0,
        writes: vec![Write { key, field: Field::Answer, content }],
    }
}

async fn stored(store: &dyn Store, epoch: &str, of: &Commit) -> u64 {
    match store.commit(epoch, of).await.unwrap() {
        Committed::Stored(version) => version,
        Committed::Conflict => panic!("a conflict: {of:?}"),
    }
}

/// A commit needs the versions that it was based on, and the last invalidation.
async fn commits(store: &dyn Store) {
    let epoch = recovered(store).await;
    let first = stored(store, &epoch, &commit(A, 0, Some("one"))).await;
    let second = stored(store, &epoch, &commit(A, first, Some("two"))).await;
    assert!(second > first);
    assert_eq!(store.commit(&epoch, &commit(A, first, Some("three"))).await, Ok(Committed::Conflict));
    assert_eq!(store.commit("other", &commit(A, second, Some("three"))).await, Err(StoreError::OtherEpoch));
    let reply = store.sync(&SyncRequest { version: first, ..request("a", Some(&epoch)) }).await.unwrap();
    let [(A, record)] = &reply.changed[..] else { panic!("{reply:?}") };
    assert_eq!((record.version, record.get(Field::Answer)), (second, Some(&b"two"[..].into())));
    let removed = stored(store, &epoch, &commit(A, second, None)).await;
    let reply = store.sync(&SyncRequest { version: second, ..request("a", Some(&epoch)) }).await.unwrap();
    assert_eq!(reply.changed, [(A, Record::new(removed))]);

    store.invalidate(&epoch, Bytes::from_static(b"{\"all\": \"of it\"}")).await.unwrap();
    let late = commit(B, 0, Some("late"));
    assert_eq!(store.commit(&epoch, &late).await, Ok(Committed::Conflict));
    let reply = store.sync(&request("a", Some(&epoch))).await.unwrap();
    assert_eq!(reply.invalidations, [(1, Bytes::from_static(b"{\"all\": \"of it\"}"))]);
    stored(store, &epoch, &Commit { invalidation: reply.invalidation, ..late }).await;
    let none_new = SyncRequest { invalidation: 1, ..request("a", Some(&epoch)) };
    assert_eq!(store.sync(&none_new).await.unwrap().invalidations, []);

    let revision = ("r".to_owned(), Bytes::from_static(&[0, 255, 10, 13]));
    store.register(&epoch, std::slice::from_ref(&revision)).await.unwrap();
    assert_eq!(store.sync(&none_new).await.unwrap().revisions, [revision]);
}

/// A version is acknowledged once all serving replicas know it.
async fn acknowledges(store: &dyn Store) {
    let epoch = recovered(store).await;
    let sync = async |replica: &str, version, is_serving| {
        let request = SyncRequest { version, is_serving, ..request(replica, Some(&epoch)) };
        store.sync(&request).await.unwrap()
    };
    sync("b", 0, false).await;
    let version = stored(store, &epoch, &commit(A, 0, Some("x"))).await;
    // Both have read everything before the commit, so both may still serve what was there before.
    assert!(sync("a", 0, true).await.acknowledged < version);
    assert!(sync("a", version, true).await.acknowledged < version, "b does not know it");
    assert!(sync("b", 0, true).await.acknowledged < version, "b has it with this reply");
    assert_eq!(sync("b", version, true).await.acknowledged, version);
    assert_eq!(sync("a", version, true).await.acknowledged, version);
    // A request of b that was under way for long says nothing about b now.
    let later = stored(store, &epoch, &commit(B, 0, Some("y"))).await;
    let old = SyncRequest { epoch: Some("earlier".to_owned()), ..request("b", None) };
    store.sync(&old).await.unwrap();
    assert!(sync("a", later, true).await.acknowledged < later, "b still answers");
    // A replica without contact answers nothing.
    tokio::time::sleep(ANSWERING + Duration::from_millis(100)).await;
    assert_eq!(sync("a", later, true).await.acknowledged, later);
}

/// One replica at a time runs a question, with a number above all before.
async fn leases(store: &dyn Store) {
    let epoch = recovered(store).await;
    let Lease::Ours(first) = store.begin(&epoch, "a", A, 0).await.unwrap() else { panic!("nobody has it") };
    let Lease::Theirs(left) = store.begin(&epoch, "b", A, 0).await.unwrap() else { panic!("a has it") };
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    let Lease::Ours(other) = store.begin(&epoch, "b", B, 0).await.unwrap() else { panic!("another question") };
    assert!(other > first);
    assert_eq!(store.renew(&epoch, "a", A).await, Ok(true));
    assert_eq!(store.renew(&epoch, "b", A).await, Ok(false));
    let of_a = Commit { lease: Some(("a".to_owned(), A)), ..commit(A, 0, Some("x")) };
    let version = stored(store, &epoch, &of_a).await;
    assert_eq!(store.begin(&epoch, "b", A, 0).await, Ok(Lease::Behind));
    let Lease::Ours(second) = store.begin(&epoch, "b", A, version).await.unwrap() else { panic!("a gave it back") };
    assert!(second > version && version > other);
    // Another replica's commit gives back nothing.
    stored(store, &epoch, &Commit { lease: Some(("a".to_owned(), A)), ..commit(A, version, Some("y")) }).await;
    assert!(matches!(store.begin(&epoch, "c", A, version + 10).await, Ok(Lease::Theirs(_))));
    tokio::time::sleep(LEASE + Duration::from_millis(100)).await;
    assert!(matches!(store.begin(&epoch, "c", A, version + 10).await, Ok(Lease::Ours(_))));
}

/// Many records come in several parts, and none is left out.
async fn many_records(store: &dyn Store) {
    let epoch = recovered(store).await;
    for n in 0..100_u8 {
        // Three records in one commit have one version.
        let write = |of: u8| {
            let mut key = [n; 32];
            key[0] = of;
            Write { key, field: Field::Baseline, content: Some(vec![n; 10].into()) }
        };
        let many = Commit { expected: Vec::new(), writes: vec![write(0), write(1), write(2)], ..commit(A, 0, None) };
        stored(store, &epoch, &many).await;
    }
    let (mut version, mut keys, mut parts) = (0, std::collections::BTreeSet::new(), 0);
    loop {
        let reply = store.sync(&SyncRequest { version, ..request("a", Some(&epoch)) }).await.unwrap();
        parts += 1;
        keys.extend(reply.changed.iter().map(|(key, _)| *key));
        version = reply.changed.last().unwrap().1.version;
        if reply.is_all {
            break;
        }
    }
    assert_eq!(keys.len(), 300, "in {parts} parts");
}

/// Notes are kept by list and name. A claim succeeds once.
async fn notes_and_claims(store: &dyn Store) {
    recovered(store).await;
    let note = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let day = Duration::from_hours(24);
    store.note("a", &[note("x", "1"), note("y", "2")], day).await.unwrap();
    store.note("a", &[note("x", "3")], day).await.unwrap();
    let mut notes = store.notes("a").await.unwrap();
    notes.sort();
    assert_eq!(notes, [note("x", "3"), note("y", "2")]);
    assert_eq!(store.notes("b").await, Ok(Vec::new()));
    let short = Duration::from_millis(300);
    assert_eq!((store.claim("a", short).await, store.claim("a", short).await), (Ok(true), Ok(false)));
    assert_eq!(store.claim("b", short).await, Ok(true));
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(store.claim("a", short).await, Ok(true), "a claim ends");
}

/// Tries all that a store must do, each with a store of its own. Most of it waits, so it is done at once.
async fn does_what_a_store_does(new: impl Fn(&str) -> Arc<dyn Store>) {
    let stores =
        ["recovers", "commits", "leases", "acknowledges", "offers", "many-records", "notes-and-claims"].map(new);
    tokio::join!(
        recovers(&*stores[0]),
        commits(&*stores[1]),
        leases(&*stores[2]),
        acknowledges(&*stores[3]),
        offers(&*stores[4]),
        many_records(&*stores[5]),
        notes_and_claims(&*stores[6]),
    );
}

#[tokio::test]
async fn the_memory_store_does_what_a_store_does() {
    does_what_a_store_does(|_| Arc::new(MemoryStore::new(Arc::new(SystemClock)))).await;
}

#[tokio::test]
async fn a_real_server_does_what_a_store_does() {
    let server = Server::start().await;
    does_what_a_store_does(|prefix| server.store_at(prefix)).await;
}

#[tokio::test]
async fn a_real_server_wakes_who_waits() {
    let server = Server::start().await;
    let store = server.store();
    let epoch = recovered(&*store).await;
    let _ = store.wait().await;
    let waiting = store.wait();
    let (began, changing) = (std::time::Instant::now(), server.store());
    let change = async { changing.commit(&epoch, &commit(A, 0, Some("x"))).await };
    let (waited, _) = tokio::join!(waiting, change);
    assert_eq!(waited, Ok(()));
    assert!(began.elapsed() < Duration::from_millis(600));
}

#[tokio::test]
async fn another_process_at_the_address_is_another_epoch() {
    let server = Server::start().await;
    let store = server.store();
    let epoch = recovered(&*store).await;
    stored(&*store, &epoch, &commit(A, 0, Some("x"))).await;
    // As after a failover: the data is there, and the process is another one.
    server.run(&["hset", "{appset-gateway}:meta", "run", "0000"]);
    assert_eq!(store.commit(&epoch, &commit(B, 0, Some("y"))).await, Err(StoreError::OtherEpoch));
    let reply = store.sync(&request("a", Some(&epoch))).await.unwrap();
    assert!(reply.is_recovering && reply.epoch != epoch, "{reply:?}");
}

#[tokio::test]
async fn troubles_are_named() {
    let server = Server::start().await;
    let store = server.store();
    let epoch = recovered(&*store).await;
    let port = server.port;
    for (command, expected) in [
        (&["config", "set", "requirepass", "hunter2"][..], "auth"),
        (&["config", "set", "requirepass", ""], ""),
        (&["config", "set", "maxmemory", "1"], "OOM"),
        (&["config", "set", "maxmemory", "0"], ""),
        (&["replicaof", "127.0.0.1", "1"], "READONLY"),
    ] {
        let output = Command::new("redis-cli")
            .args(["-p", &port.to_string(), "-a", "hunter2", "--no-auth-warning"])
            .args(command)
            .output();
        assert!(output.unwrap().status.success());
        // A new connection: an old one stays authenticated.
        let store = server.store();
        let result = store.commit(&epoch, &Commit { expected: Vec::new(), ..commit(A, 0, Some("x")) }).await;
        match (result, expected) {
            (Ok(Committed::Stored(_)), "") => {}
            (Err(StoreError::Unavailable(why)), expected) if !expected.is_empty() => {
                assert!(why.to_lowercase().contains(&expected.to_lowercase()), "{command:?}: {why}");
            }
            (other, _) => panic!("{command:?}: {other:?}"),
        }
    }
    drop(server);
    let Err(StoreError::Unavailable(why)) = store.renew(&epoch, "a", A).await else { panic!("it is gone") };
    assert!(!why.is_empty());
}
