//! The store fails in every way that is known, while the source shrinks: each fault with each state of an answer and several kinds of
//! backends. A known question is always answered, with all of its parameter sets.

use super::*;
use crate::support::store::{Network, StoreProxy};

/// Routes of three kinds of backends whose answers are stale at once, and one whose answers stay fresh.
const ROUTES: [&str; 4] = ["h", "s", "p", "fresh"];

/// Two replicas on a store that a test damages, and a source that shrank before.
struct Scene {
    store: StoreServer,
    network: StoreProxy,
    source: Source,
    /// What scripts print.
    file: TempDir,
    options: Options,
    replicas: Vec<Replica>,
}

impl Scene {
    async fn new() -> Self {
        let store = StoreServer::start(&["--enable-debug-command", "yes"]).await;
        let network = StoreProxy::start(store.address()).await;
        let (source, file) = (Source::of(23).await, tempfile::tempdir().unwrap());
        let mut options = Options::new(store_at(&network.url()), &source, "0s");
        let http = options.route["backend"].clone();
        let print = r#"case $PARAM_Q in empty*) echo '[]';; *) cat "$0";; esac"#;
        let printed = file.path().join("sets");
        let command = json!(["sh", "-c", print, printed.to_str().unwrap()]);
        let script = json!({"script": {"command": command, "allow": {"read": [file.path().to_str().unwrap()]}}});
        let pipeline = json!({"pipeline": [http.clone()]});
        for (name, backend, ttl) in [("s", script, "0s"), ("p", pipeline, "0s"), ("fresh", http, "1h")] {
            let mut route = options.route.clone();
            (route["name"], route["backend"], route["cache"]["ttl"]) = (json!(name), backend, json!(ttl));
            options.more.push(route);
        }
        let mut scene = Self { store, network, source, file, options, replicas: Vec::new() };
        scene.shrink_to(23);
        scene.replicas = vec![Replica::start(&scene.options).await, Replica::start(&scene.options).await];
        for route in ROUTES {
            for question in ["stale", "held"] {
                assert_eq!(sets(&scene.replicas[0].ask_route(route, question).await), 23, "{route}");
            }
        }
        scene.shrink_to(5);
        for route in ["h", "s", "p"] {
            assert_eq!(sets(&scene.replicas[1].ask_route(route, "held").await), 23, "{route}");
        }
        scene
    }

    fn shrink_to(&self, count: usize) {
        self.source.set(count);
        let all = Value::Array((0..count).map(|n| json!({"name": format!("app-{n}")})).collect());
        std::fs::write(self.file.path().join("sets"), all.to_string()).unwrap();
    }

    /// All replicas answer all known questions with all their sets.
    async fn known(&self, when: &str) {
        for (index, replica) in self.replicas.iter().enumerate() {
            for route in ROUTES {
                for question in ["stale", "held"] {
                    let reply = replica.ask_route(route, question).await;
                    assert_eq!(reply.status, 200, "{when}: replica {index}, {route}, {question}: {}", reply.text());
                    assert_eq!(sets(&reply), 23, "{when}: replica {index}, {route}, {question}");
                }
            }
        }
    }

    /// Asks about new questions. While there is no contact with the store, an empty answer to one of them is an error.
    async fn unknown(&self, when: &str, is_away: bool) {
        for (index, replica) in self.replicas.iter().enumerate() {
            for route in ROUTES {
                let some = replica.ask_route(route, &format!("some-{when}-{index}")).await;
                assert!(some.status == 503 || sets(&some) == 5, "{when}: {}", some.text());
                let none = replica.ask_route(route, &format!("empty-{when}-{index}")).await;
                assert!(none.status == 503 || (!is_away && sets(&none) == 0), "{when}: {}", none.text());
            }
        }
    }

    /// The store is back. Nothing was lost, and when the source is whole again, its answers are accepted.
    async fn recovered(&self, fault: &str) {
        for replica in &self.replicas {
            replica.joined().await;
        }
        self.known(&format!("after {fault}")).await;
        let held = self.replicas[0].operate("GET", "/admin/held", "").await.json();
        assert!(held["held"].as_array().unwrap().len() >= 3, "after {fault}: what was held is held: {held}");
        self.shrink_to(23);
        for replica in &self.replicas {
            let before = self.source.runs();
            within(Duration::from_secs(10), &format!("a new answer after {fault}"), async || {
                run_of(&replica.ask_route("h", "stale").await) > before
            })
            .await;
        }
        self.known(&format!("at the end of {fault}")).await;
    }

    fn every_record(&self, change: &str) {
        // The names of records are bytes: a script changes them.
        let script = "for _, key in ipairs(redis.call('KEYS', '{appset-gateway}:r:*')) do CHANGE end return 1";
        assert_eq!(self.store.run(&["EVAL", &script.replace("CHANGE", change), "0"]), "1");
    }
}

/// A fault that lasts for three seconds.
async fn while_it_lasts(
    fault: &str,
    is_away: bool,
    inject: impl AsyncFnOnce(&mut Scene),
    repair: impl AsyncFnOnce(&mut Scene),
) {
    let mut scene = Scene::new().await;
    inject(&mut scene).await;
    let began = Instant::now();
    for round in 0.. {
        scene.known(fault).await;
        // At first, a replica may not have noticed yet.
        if began.elapsed() > Duration::from_secs(2) {
            scene.unknown(&format!("{fault}-{round}"), is_away).await;
        }
        if began.elapsed() > Duration::from_secs(4) {
            break;
        }
    }
    repair(&mut scene).await;
    scene.recovered(fault).await;
}

async fn network(fault: &str, is_away: bool, network: Network) {
    let works = async |scene: &mut Scene| scene.network.set(Network::Works);
    while_it_lasts(fault, is_away, async |scene| scene.network.set(network), works).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_connections() {
    network("refused", true, Network::Refuses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut() {
    network("cut", true, Network::Cuts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_are_late() {
    network("slow", true, Network::Slow(Duration::from_secs(2))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_everything() {
    network("swallowed", true, Network::Swallows).await;
}

/// Changes are read four times a second anyway, so this one costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_the_waits_for_changes() {
    network("waits", false, Network::SwallowsWaits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_has_changed() {
    let change = async |scene: &mut Scene| {
        scene.store.run(&["CONFIG", "SET", "requirepass", "other"]);
        scene.store.run(&["-a", "other", "--no-auth-warning", "CLIENT", "KILL", "TYPE", "normal"]);
    };
    let back = async |scene: &mut Scene| {
        scene.store.run(&["-a", "other", "--no-auth-warning", "CONFIG", "SET", "requirepass", ""]);
    };
    while_it_lasts("password", true, change, back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory() {
    let fill = async |scene: &mut Scene| drop(scene.store.run(&["CONFIG", "SET", "maxmemory", "1"]));
    let free = async |scene: &mut Scene| drop(scene.store.run(&["CONFIG", "SET", "maxmemory", "0"]));
    while_it_lasts("memory", true, fill, free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_read_only() {
    let demote = async |scene: &mut Scene| drop(scene.store.run(&["REPLICAOF", "127.78.255.3", "6379"]));
    let promote = async |scene: &mut Scene| drop(scene.store.run(&["REPLICAOF", "NO", "ONE"]));
    while_it_lasts("read-only", true, demote, promote).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed() {
    let restart = async |scene: &mut Scene| scene.store.restart().await;
    while_it_lasts("killed", true, async |scene| scene.store.kill(), restart).await;
}

/// The server accepts connections, and refuses commands while it reads its file.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_still_reads_its_file() {
    let begin = async |scene: &mut Scene| {
        scene.store.kill();
        scene.store.add(&["--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024"]);
        scene.store.restart().await;
    };
    let end = async |scene: &mut Scene| {
        within(Duration::from_mins(1), "it has read its file", async || scene.store.run(&["PING"]) == "PONG").await;
    };
    while_it_lasts("loading", true, begin, end).await;
}

/// As `FLUSHALL`, a restored backup or an expired lease of another tool would do.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_everything() {
    let forget = async |scene: &mut Scene| drop(scene.store.run(&["FLUSHALL"]));
    while_it_lasts("flushed", false, forget, async |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_epoch() {
    let change = async |scene: &mut Scene| {
        scene.store.run(&["HSET", "{appset-gateway}:meta", "epoch", "another"]);
    };
    while_it_lasts("epoch", false, change, async |_| {}).await;
}

/// A failover to a standby that lacks the last writes: ten questions that were answered, and what was held.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_loses_writes() {
    let mut scene = Scene::new().await;
    let (before, now) = (tempfile::tempdir().unwrap(), scene.store.folder().join("appendonlydir"));
    copy(&now, before.path());
    scene.shrink_to(23);
    for n in 0..10 {
        assert_eq!(sets(&scene.replicas[0].ask_route("h", &format!("late-{n}")).await), 23);
    }
    scene.store.kill();
    scene.shrink_to(5);
    scene.known("failover").await;
    copy(before.path(), &now);
    scene.store.restart().await;
    // A replica without a memory joins meanwhile.
    scene.replicas.push(Replica::begin(tempfile::tempdir().unwrap(), &scene.options));
    for replica in &scene.replicas {
        replica.joined().await;
    }
    for replica in &scene.replicas {
        for n in 0..10 {
            assert_eq!(sets(&replica.ask_route("h", &format!("late-{n}")).await), 23, "restored");
        }
    }
    scene.recovered("failover").await;
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    for file in std::fs::read_dir(to).unwrap().flatten() {
        std::fs::remove_file(file.path()).unwrap();
    }
    for file in std::fs::read_dir(from).unwrap().flatten() {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Garbage in place of records: replicas that know better serve what they know, and a new one holds what it cannot read.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_cannot_be_read() {
    for change in [
        "for field = 0, 3 do redis.call('HSET', key, field, 'garbage') end",
        "redis.call('SET', key, 'garbage')",
        "redis.call('DEL', key)",
    ] {
        let mut scene = Scene::new().await;
        scene.every_record(change);
        scene.known(change).await;
        let new = Replica::start(&scene.options).await;
        for route in ROUTES {
            for question in ["stale", "held"] {
                let reply = new.ask_route(route, question).await;
                assert!(reply.status == 503 || sets(&reply) == 23, "{change}: {route}, {question}: {}", reply.text());
            }
        }
        scene.known(change).await;
        scene.replicas.push(new);
        scene.shrink_to(0);
        for replica in &scene.replicas {
            let reply = replica.ask_route("h", "stale").await;
            assert!(reply.status == 503 || sets(&reply) == 23, "{change}: {}", reply.text());
        }
    }
}
