//! The store fails in every way that is known, while the source shrinks: each fault with each state of an answer and several kinds of
//! backends. Whoever gets an answer gets all parameter sets, and without contact there is none.

use futures_util::future::join_all;

use super::*;
use crate::support::store::{Network, StoreProxy};

/// What a fault of the store does to calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// They wait, and end with an error.
    Away,
    /// Earlier answers are not served any more. The guard still compares with them.
    Forgets,
    /// Nothing.
    None,
}

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
        options.route["deadline"] = json!("3s");
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

    /// What all replicas say to all known questions.
    async fn replies(&self) -> Vec<(String, Reply)> {
        let asking = self.replicas.iter().enumerate().flat_map(|(index, replica)| {
            ROUTES.iter().flat_map(move |route| {
                ["stale", "held"].map(|question| async move {
                    (format!("replica {index}, {route}, {question}"), replica.ask_route(route, question).await)
                })
            })
        });
        join_all(asking).await
    }

    /// All replicas answer all known questions with all their sets.
    async fn known(&self, when: &str) {
        for (what, reply) in self.replies().await {
            assert_eq!(reply.status, 200, "{when}: {what}: {}", reply.text());
            assert_eq!(sets(&reply), 23, "{when}: {what}");
        }
    }

    /// Whoever gets an answer gets all sets.
    async fn nothing_is_lost(&self, when: &str) {
        for (what, reply) in self.replies().await {
            let is_error = matches!(reply.status, 503 | 504);
            assert!(is_error || sets(&reply) == 23, "{when}: {what}: {}", reply.text());
        }
    }

    /// Nobody answers anything, also no new question.
    async fn nothing_is_answered(&self, when: &str) {
        let new = self.replicas.iter().flat_map(|replica| {
            ["some", "empty"].map(|what| async move { (what.to_owned(), replica.ask_route("h", what).await) })
        });
        let runs = self.source.runs();
        let (known, new) = tokio::join!(self.replies(), join_all(new));
        for (what, reply) in known.into_iter().chain(new) {
            assert_eq!((reply.status, &*reply.code()), (503, "unavailable"), "{when}: {what}: {}", reply.text());
            assert!(reply.header("retry-after").is_some(), "{when}: {what}");
        }
        assert_eq!(self.source.runs(), runs, "{when}: nothing is asked");
    }

    /// The store is back. Nothing was lost, and when the source is whole again, its answers are accepted.
    async fn recovered(&self, fault: &str) {
        for replica in &self.replicas {
            replica.joined().await;
        }
        self.nothing_is_lost(&format!("after {fault}")).await;
        let held = self.replicas[0].operate("GET", "/admin/held", "").await.json();
        assert!(held["held"].as_array().unwrap().len() >= 3, "after {fault}: what was held is held: {held}");
        self.shrink_to(23);
        for replica in &self.replicas {
            let before = self.source.runs();
            within(Duration::from_secs(30), &format!("a new answer after {fault}"), async || {
                let reply = replica.ask_route("h", "stale").await;
                reply.status == 200 && run_of(&reply) > before
            })
            .await;
        }
        // Questions rest after a held answer.
        within(Duration::from_secs(30), &format!("all answers after {fault}"), async || {
            self.replies().await.iter().all(|(_, reply)| reply.status == 200)
        })
        .await;
        self.known(&format!("at the end of {fault}")).await;
    }

    fn every_record(&self, change: &str) {
        // The names of records are bytes: a script changes them.
        let script = "for _, key in ipairs(redis.call('KEYS', '{appset-gateway}:r:*')) do CHANGE end return 1";
        assert_eq!(self.store.run(&["EVAL", &script.replace("CHANGE", change), "0"]), "1");
    }
}

/// A fault that lasts for some seconds.
async fn while_it_lasts(
    fault: &str,
    effect: Effect,
    inject: impl AsyncFnOnce(&mut Scene),
    repair: impl AsyncFnOnce(&mut Scene),
) {
    let mut scene = Scene::new().await;
    inject(&mut scene).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        match effect {
            // At first, a replica may not have noticed yet.
            Effect::Away if began.elapsed() > Duration::from_secs(2) => scene.nothing_is_answered(fault).await,
            Effect::Away | Effect::Forgets => scene.nothing_is_lost(fault).await,
            Effect::None => scene.known(fault).await,
        }
    }
    repair(&mut scene).await;
    scene.recovered(fault).await;
}

async fn network(fault: &str, effect: Effect, network: Network) {
    let works = async |scene: &mut Scene| scene.network.set(Network::Works);
    while_it_lasts(fault, effect, async |scene| scene.network.set(network), works).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_connections() {
    network("refused", Effect::Away, Network::Refuses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut() {
    network("cut", Effect::Away, Network::Cuts).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_that_are_late() {
    network("slow", Effect::Away, Network::Slow(Duration::from_secs(2))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_everything() {
    network("swallowed", Effect::Away, Network::Swallows).await;
}

/// Changes are read four times a second anyway, so this one costs nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_that_swallows_the_waits_for_changes() {
    network("waits", Effect::None, Network::SwallowsWaits).await;
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
    while_it_lasts("password", Effect::Away, change, back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_memory() {
    let fill = async |scene: &mut Scene| drop(scene.store.run(&["CONFIG", "SET", "maxmemory", "1"]));
    let free = async |scene: &mut Scene| drop(scene.store.run(&["CONFIG", "SET", "maxmemory", "0"]));
    while_it_lasts("memory", Effect::Away, fill, free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_read_only() {
    let demote = async |scene: &mut Scene| drop(scene.store.run(&["REPLICAOF", "127.78.255.3", "6379"]));
    let promote = async |scene: &mut Scene| drop(scene.store.run(&["REPLICAOF", "NO", "ONE"]));
    while_it_lasts("read-only", Effect::Away, demote, promote).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed() {
    let restart = async |scene: &mut Scene| scene.store.restart().await;
    while_it_lasts("killed", Effect::Away, async |scene| scene.store.kill(), restart).await;
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
    while_it_lasts("loading", Effect::Away, begin, end).await;
}

/// As `FLUSHALL`, a restored backup or an expired lease of another tool would do.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_everything() {
    let forget = async |scene: &mut Scene| drop(scene.store.run(&["FLUSHALL"]));
    while_it_lasts("flushed", Effect::Forgets, forget, async |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_epoch() {
    let change = async |scene: &mut Scene| {
        scene.store.run(&["HSET", "{appset-gateway}:meta", "epoch", "another"]);
    };
    while_it_lasts("epoch", Effect::Forgets, change, async |_| {}).await;
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
    scene.nothing_is_lost("failover").await;
    copy(before.path(), &now);
    scene.store.restart().await;
    // A replica without a memory joins meanwhile.
    scene.replicas.push(Replica::begin(tempfile::tempdir().unwrap(), &scene.options));
    for replica in &scene.replicas {
        replica.joined().await;
    }
    for replica in &scene.replicas {
        for n in 0..10 {
            let reply = replica.ask_route("h", &format!("late-{n}")).await;
            assert_eq!((reply.status, &*reply.code()), (503, "held"), "the measure is restored: {}", reply.text());
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

/// Garbage in place of records: every next answer is held.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_cannot_be_read() {
    for change in [
        "for field = 0, 3 do redis.call('HSET', key, field, 'garbage') end",
        "redis.call('SET', key, 'garbage')",
        "redis.call('DEL', key)",
    ] {
        let mut scene = Scene::new().await;
        scene.every_record(change);
        scene.nothing_is_lost(change).await;
        let new = Replica::start(&scene.options).await;
        for route in ROUTES {
            for question in ["stale", "held"] {
                let reply = new.ask_route(route, question).await;
                assert!(reply.status == 503 || sets(&reply) == 23, "{change}: {route}, {question}: {}", reply.text());
            }
        }
        scene.nothing_is_lost(change).await;
        scene.replicas.push(new);
        scene.shrink_to(0);
        for replica in &scene.replicas {
            let reply = replica.ask_route("h", "stale").await;
            assert!(reply.status == 503 || sets(&reply) == 23, "{change}: {}", reply.text());
        }
    }
}
