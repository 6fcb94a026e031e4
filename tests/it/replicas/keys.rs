//! Replicas whose routes verify signatures, and whose files with keys differ for a while or for good.

mod away;

use std::path::Path;

use super::*;
use crate::{
    builds::fake::{Endpoint, Fake, Image},
    support::{
        signing::{BUNDLE, Key},
        store::StoreProxy,
    },
};

/// A route that lists the signed tags of a registry, with a short `ttl`.
struct Fleet {
    options: Options,
    fake: Fake,
    /// The key in `spare.pub`, which signed nothing.
    spare: Key,
    /// The network before the store.
    network: StoreProxy,
    // The store ends with it.
    _store: StoreServer,
}

impl Fleet {
    /// The tags `1.0.0` and `1.1.0` have the images of `a` and `b`.
    async fn new(ttl: &str) -> Self {
        Self::of_signers(ttl, &["cosign.pub"]).await
    }

    /// The same, where any of `files` may sign.
    async fn of_signers(ttl: &str, files: &[&str]) -> Self {
        let (store, fake) = (StoreServer::start(&[]).await, Fake::start().await);
        let network = StoreProxy::start(store.address()).await;
        fake.push("1.0.0", &Image::of('a'));
        fake.push("1.1.0", &Image::of('b'));
        let digests = json!({
            "list": {"repositories": [format!("{}/org/app", fake.host())], "tags": {"semver": "*"}},
            "signature": {"any": files.iter().map(|file| json!({"key": {"file": file}})).collect::<Value>()},
        });
        let route = json!({"name": "h", "backend": {"digests": digests}, "output": {"tag": "{{ tag }}"},
            "cache": {"ttl": ttl, "staleIfError": "1h"}, "deadline": "5s",
            "guard": {"onEmpty": "allow", "maxShrink": "100%"}});
        let extra = format!("registries: {}\n", json!({fake.host(): {"plainHttp": true}}));
        let options = Options { store: store_at(&network.url()), route, more: Vec::new(), extra, server: server() };
        let fleet = Self { options, fake, spare: Key::new(), network, _store: store };
        fleet.list();
        fleet
    }

    /// The registry lists both tags.
    fn list(&self) {
        let list = json!({"name": "org/app", "tags": ["1.0.0", "1.1.0"]}).to_string();
        self.fake.fail(Endpoint::List, move |request| request.answer(200, "Content-Type: application/json", &list));
    }

    fn sign(&self, key: &Key, commits: &[char]) {
        for commit in commits {
            let digest = Image::of(*commit).digest();
            self.fake.attach(&digest, BUNDLE, &key.signature(digest.as_str()));
        }
    }

    async fn join(&self, key: &Key) -> Replica {
        let folder = tempfile::tempdir().unwrap();
        replace(folder.path(), key);
        self.spare.write(&folder.path().join("spare.pub"));
        let replica = Replica::begin(folder, &self.options);
        replica.joined().await;
        replica
    }

    /// How often the tags were listed: once in each run.
    fn runs(&self) -> usize {
        self.fake.take().iter().filter(|each| each.contains("/tags/list")).count()
    }
}

/// Replaces the key by a rename, so that nobody reads it half-written.
fn replace(folder: &Path, key: &Key) {
    key.write(&folder.join("next.pub"));
    std::fs::rename(folder.join("next.pub"), folder.join("cosign.pub")).unwrap();
}

/// Longer than a replica takes to notice a changed file.
async fn noticed() {
    sleep(Duration::from_millis(1200)).await;
}

/// One replica cannot read one of two keys. The others go on: they run, renew and serve. Its own calls are errors, and nothing that it does
/// is stored, although the other key vouches for everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_one_replica_cannot_read_is_its_own_trouble() {
    let (fleet, key) = (Fleet::of_signers("300ms", &["cosign.pub", "spare.pub"]).await, Key::new());
    fleet.sign(&key, &['a', 'b']);
    let (good, bad) = (fleet.join(&key).await, fleet.join(&key).await);
    assert_eq!((sets(&good.ask("x").await), sets(&bad.ask("x").await)), (2, 2));
    std::fs::remove_file(bad.folder.path().join("spare.pub")).unwrap();
    noticed().await;
    fleet.runs();
    for _ in 0..10 {
        let reply = bad.ask("x").await;
        assert_eq!(reply.status, 502, "{}", reply.text());
        assert!(reply.text().contains("cannot be read"), "{}", reply.text());
        let reply = good.ask("x").await;
        assert_eq!(sets(&reply), 2);
        sleep(Duration::from_millis(100)).await;
    }
    assert!(fleet.runs() >= 2, "the good replica renews its answer");
    // A question that nobody has asked yet.
    assert_eq!(bad.ask("new").await.status, 502);
    assert_eq!(sets(&good.ask("new").await), 2);
    // The key is back.
    fleet.spare.write(&bad.folder.path().join("spare.pub"));
    noticed().await;
    assert_eq!(sets(&bad.ask("x").await), 2);
}

/// One replica keeps an old key for good. The other serves nothing that only the old key vouches for, and both do not ask in turn.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_under_an_old_key_is_served_by_nobody_else() {
    let (fleet, old, new) = (Fleet::new("1m").await, Key::new(), Key::new());
    fleet.sign(&old, &['a', 'b']);
    let outdated = fleet.join(&old).await;
    let current = fleet.join(&new).await;
    assert_eq!(sets(&outdated.ask("x").await), 2);
    for _ in 0..10 {
        let reply = current.ask("x").await;
        assert!(reply.status >= 502, "{}", reply.text());
        assert_eq!(sets(&outdated.ask("x").await), 2, "its own answer is as good as before");
        sleep(Duration::from_millis(50)).await;
    }
    // Both keys vouch for all images: each has an answer of its own, and neither serves the other's.
    fleet.sign(&new, &['a', 'b']);
    fleet.runs();
    let began = Instant::now();
    let mut answered = 0;
    while began.elapsed() < Duration::from_secs(4) {
        for replica in [&outdated, &current] {
            let reply = replica.ask("x").await;
            assert!(matches!(reply.status, 200 | 502 | 503), "{}", reply.text());
            answered += usize::from(reply.status == 200);
        }
        sleep(Duration::from_millis(20)).await;
    }
    let runs = fleet.runs();
    assert!(runs <= 4 && answered > 20, "{runs} runs, {answered} answers");
    // The old key is replaced at last: both serve one answer.
    replace(outdated.folder.path(), &new);
    noticed().await;
    within(Duration::from_secs(3), "both serve it", async || {
        let (one, other) = (current.ask("x").await, outdated.ask("x").await);
        one.status == 200 && other.status == 200
    })
    .await;
    fleet.runs();
    for _ in 0..5 {
        assert_eq!((sets(&outdated.ask("x").await), sets(&current.ask("x").await)), (2, 2));
    }
    assert_eq!(fleet.runs(), 0, "the answer is fresh for all");
}

/// A file with a key reaches the replicas one after the other. No answer gets smaller, the source is not asked for each call, and at last
/// all agree.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_change_of_a_key_converges() {
    let (fleet, old, new) = (Fleet::new("2s").await, Key::new(), Key::new());
    fleet.sign(&old, &['a', 'b']);
    fleet.sign(&new, &['a', 'b']);
    let replicas = [fleet.join(&old).await, fleet.join(&old).await, fleet.join(&old).await];
    for replica in &replicas {
        assert_eq!(sets(&replica.ask("x").await), 2);
    }
    fleet.runs();
    let mut calls = 0;
    for changed in &replicas {
        replace(changed.folder.path(), &new);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(3) {
            for replica in &replicas {
                let reply = replica.ask("x").await;
                calls += 1;
                match reply.status {
                    200 => assert_eq!(sets(&reply), 2),
                    // Another replica has answered under keys that are not those of this one.
                    502 | 503 => {}
                    other => panic!("{other}: {}", reply.text()),
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    let runs = fleet.runs();
    assert!(runs <= 16 && calls > 100, "{runs} runs for {calls} calls");
    for _ in 0..20 {
        for replica in &replicas {
            assert_eq!(sets(&replica.ask("x").await), 2);
        }
    }
}

/// The source fails for replicas with different keys. Each waits after a failure, although the other's failure says nothing about it.
#[tokio::test(flavor = "multi_thread")]
async fn failures_under_different_keys_are_not_queried_in_turn() {
    let (fleet, old, new) = (Fleet::new("1m").await, Key::new(), Key::new());
    let replicas = [fleet.join(&old).await, fleet.join(&new).await];
    // Not an outage, after which the registry would not be asked for a while.
    fleet.fake.fail(Endpoint::List, |request| request.answer(200, "Content-Type: application/json", "{"));
    let began = Instant::now();
    let mut calls = 0;
    while began.elapsed() < Duration::from_secs(5) {
        for replica in &replicas {
            assert_eq!(replica.ask("x").await.status, 502);
            calls += 1;
        }
        sleep(Duration::from_millis(20)).await;
    }
    let requests = fleet.runs();
    assert!(requests <= 16 && calls > 60, "{requests} requests for {calls} calls");
}

/// A new configuration demands a signature too. Replicas that have the former one serve its answers, and ask nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_change_of_configuration_beside_a_signature() {
    let (fleet, key) = (Fleet::new("1m").await, Key::new());
    fleet.sign(&key, &['a', 'b']);
    let former = fleet.join(&key).await;
    assert_eq!(sets(&former.ask("x").await), 2);
    let mut next = Fleet { options: fleet.options.clone(), ..fleet };
    next.options.route["output"] = json!({"tag": "{{ tag }}", "revision": "two"});
    let newer = next.join(&key).await;
    let is_new = |reply: &Reply| reply.text().contains("two");
    assert!(is_new(&newer.ask("x").await));
    // The keys are the same, so the former replica trusts it.
    within(Duration::from_secs(1), "it is served", async || {
        let reply = former.ask("x").await;
        assert_eq!(sets(&reply), 2);
        is_new(&reply)
    })
    .await;
    // Under other keys, it does not.
    replace(former.folder.path(), &Key::new());
    noticed().await;
    let reply = former.ask("x").await;
    assert_eq!(reply.status, 503, "{}", reply.text());
    assert!(is_new(&newer.ask("x").await));
}
