//! Each kind of store, as a real process: a server with TLS and a user of few rights, Sentinels, and a cluster.

use nix::sys::signal::Signal;

use super::*;
use crate::support::authority::Ca;

/// A key for a store that names other hosts, in a file of `folder`.
fn key_in(folder: &TempDir) -> Value {
    let file = folder.path().join("store.key");
    std::fs::write(&file, "a-key-of-more-than-thirty-two-characters").unwrap();
    json!({ "file": file })
}

/// What `check --connect` says of `options`: its exit code and its messages.
fn check(options: &Options) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    check_in(&folder, options)
}

fn check_in(folder: &TempDir, options: &Options) -> (Option<i32>, String) {
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, options.text()).unwrap();
    std::fs::write(folder.path().join("admin-token"), ADMIN_TOKEN).unwrap();
    let output = command().args(["check", "--connect", "-c"]).arg(&file).output().unwrap();
    (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Two replicas share what one of them learned.
async fn share(options: &Options, source: &Source) {
    let (a, b) = (Replica::start(options).await, Replica::start(options).await);
    let question = fastrand::u64(..).to_string();
    let before = source.runs();
    assert_eq!(sets(&a.ask(&question).await), 3);
    assert_eq!(run_of(&b.ask(&question).await), before + 1, "B has the answer of A's run");
    assert_eq!(source.runs(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough_and_necessary() {
    let source = Source::of(3).await;
    let store = StoreServer::start(&["--maxmemory-policy", "noeviction"]).await;
    let docs = include_str!("../../../docs/replicas.md");
    let line = docs.lines().find(|line| line.starts_with("ACL SETUSER ")).unwrap();
    let rights: Vec<&str> = line.split(' ').collect();
    assert_eq!(store.run(&rights), "OK");
    store.run(&["CONFIG", "SET", "requirepass", "other"]);
    let user = json!({"url": store.url(), "timeout": "800ms", "username": "gateway", "password": {"file": ""}});
    let with = |password: &str| {
        let mut store = user.clone();
        store["password"] = json!({"file": password});
        Options::new(store, &source, "1m")
    };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("right"), "password\n").unwrap();
    std::fs::write(folder.path().join("wrong"), "nonsense").unwrap();
    let (code, said) = check_in(&folder, &with("right"));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("cache.shared: Redis "), "{said}");
    let (code, said) = check_in(&folder, &with("wrong"));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("cache.shared: the store cannot be used: ") && said.contains("Password authentication failed"),
        "{said}"
    );

    let absolute = folder.path().join("right");
    share(&with(absolute.to_str().unwrap()), &source).await;
    // A script counts: the names of records are bytes, also line ends.
    let count = "local n = 0 for _, key in ipairs(redis.call('KEYS', '*')) do \
                 if string.sub(key, 1, 17) ~= '{appset-gateway}:' then n = n + 1 end end return n";
    assert_eq!(store.run(&["-a", "other", "--no-auth-warning", "EVAL", count, "0"]), "0", "keys outside of the prefix");
    // Another prefix belongs to another gateway.
    let mut other = with(absolute.to_str().unwrap());
    other.store["prefix"] = json!("another");
    let (code, said) = check_in(&folder, &other);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`{another}:`"), "{said}");
}

/// The gateway of the Kubernetes manifests may use their store, with the arguments and the user that they give it.
#[tokio::test(flavor = "multi_thread")]
async fn the_store_of_the_manifests_suits_their_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let manifests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/kustomize/replicated");
    let read = |name: &str| std::fs::read_to_string(manifests.join(name)).unwrap();
    let (valkey, secret) = (read("valkey.yaml"), read("secret.yaml"));
    let users: Vec<&str> = secret.lines().map(str::trim).filter(|line| line.starts_with("user ")).collect();
    std::fs::write(folder.path().join("users.acl"), users.join("\n") + "\n").unwrap();
    std::fs::write(folder.path().join("password"), "strong-store-password").unwrap();
    let key = secret.lines().find_map(|line| line.trim().strip_prefix("key: ")).unwrap();
    std::fs::write(folder.path().join("key"), key).unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let arguments = valkey.split_once("- valkey-server\n").unwrap().1.split_once("          ports:").unwrap().0;
    let arguments: Vec<String> = arguments
        .lines()
        .map(|line| line.trim().trim_start_matches("- ").trim_matches('"').to_owned())
        .map(|argument| argument.replace("/etc/valkey/users.acl", &path("users.acl")).replace("/data", &path("")))
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let store = StoreServer::start(&arguments).await;

    let mut config = read("gateway.yaml");
    for (mounted, file) in [
        ("/var/run/argo/token", path("token")),
        ("/var/run/appset-gateway/token", path("admin-token")),
        ("/var/lib/appset-gateway/answers.redb", path("answers.redb")),
        ("/var/run/store/password", path("password")),
        ("/var/run/store/key", path("key")),
        ("redis://appset-gateway-store:6379/0", store.url()),
    ] {
        assert!(config.contains(mounted), "{mounted}");
        config = config.replace(mounted, &file);
    }
    std::fs::write(path("token"), "strong-password").unwrap();
    std::fs::write(path("admin-token"), "strong-admin-password").unwrap();
    std::fs::write(path("gateway.yaml"), config).unwrap();
    let output = command().args(["check", "--connect", "-c", &path("gateway.yaml")]).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    // The registry of the manifests does not exist.
    let of_store: Vec<&str> = said.lines().filter(|line| line.starts_with("cache.shared")).collect();
    assert!(matches!(of_store[..], [line] if line.starts_with("cache.shared: Redis ")), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_tells_what_is_wrong_with_a_store() {
    let source = Source::of(3).await;
    let forgetful = StoreServer::start(&["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"]).await;
    let (code, said) = check(&Options::new(store_at(&forgetful.url()), &source, "1m"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("appendonly") && said.contains("noeviction"), "{said}");
    let (code, said) = check(&Options::new(store_at("redis://127.78.255.1:6379"), &source, "1m"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the store cannot be used: ") && said.contains("refused"), "{said}");
    let (code, said) = check(&Options::new(json!({"url": "redis://valkey.example.com"}), &source, "1m"));
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("cache.shared.key") && said.contains("openssl rand -hex 32"), "{said}");
    let (code, said) = check(&Options::new(json!({"url": "http://localhost"}), &source, "1m"));
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("cache.shared.url"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_starts_without_its_store_and_is_not_ready_for_calls() {
    let source = Source::of(3).await;
    let mut options = Options::new(store_at("redis://127.78.255.2:6379"), &source, "1m");
    options.route["deadline"] = json!("1s");
    let replica = Replica::begin(tempfile::tempdir().unwrap(), &options);
    assert_eq!((replica.probe("/readyz").await, replica.probe("/startupz").await), (200, 503));
    // It cannot know what other replicas answered.
    let reply = replica.ask("x").await;
    assert_eq!((reply.status, reply.code().as_str()), (503, "unavailable"));
    assert!(reply.message().contains("the shared store cannot be used: cannot connect: "), "{}", reply.message());
    let Replica { mut gateway, .. } = replica;
    gateway.signal(Signal::SIGTERM);
    let (status, log) = gateway.wait(Duration::from_secs(10));
    assert!(status.success() && log.contains("no contact with the shared store"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_tls_is_verified() {
    let source = Source::of(3).await;
    let folder = tempfile::tempdir().unwrap();
    let store = StoreServer::start(&[]).await;
    let (ca, other) = (Ca::new("store"), Ca::new("other"));
    let (certificate, key) = ca.certificate(&[store.host()]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, content) in [("ca.crt", ca.pem), ("other.crt", other.pem), ("tls.crt", certificate), ("tls.key", key)] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let set = ["CONFIG", "SET", "tls-cert-file", &path("tls.crt"), "tls-key-file", &path("tls.key")];
    store.run(&set);
    store.run(&["CONFIG", "SET", "tls-ca-cert-file", &path("ca.crt"), "tls-auth-clients", "no"]);
    assert_eq!(store.run(&["CONFIG", "SET", "tls-port", "6380"]), "OK");
    let with = |ca: &str| {
        let url = format!("rediss://{}:6380", store.host());
        Options::new(json!({"url": url, "ca": path(ca), "timeout": "800ms"}), &source, "1m")
    };
    share(&with("ca.crt"), &source).await;
    let (code, said) = check(&with("other.crt"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("certificate"), "{said}");
}

/// Whether `server` is a primary. A server that becomes one cuts all connections.
fn is_primary(server: &StoreServer) -> bool {
    server.try_run(&["ROLE"]).is_ok_and(|role| role.starts_with("master"))
}

/// `replicas` give no smaller answer until `is_over` and then, and hold the one that they held. What `source` says at last is served.
async fn answers_through_a_failover(replicas: &[Replica], source: &Source, is_over: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_over() {
        assert!(began.elapsed() < Duration::from_mins(1), "no failover");
        for replica in replicas {
            let reply = replica.ask("x").await;
            assert!(matches!(reply.status, 503 | 504) || sets(&reply) == 3, "{}", reply.text());
        }
    }
    for replica in replicas {
        replica.joined().await;
        let reply = replica.ask("x").await;
        assert_eq!((reply.status, reply.code().as_str()), (503, "held"), "{}", reply.text());
    }
    assert_eq!(replicas[2].held().await["parameterSets"], 1, "what was held is held");
    source.set(3);
    for replica in replicas {
        within(Duration::from_secs(10), "it is served", async || replica.ask("x").await.status == 200).await;
        assert_eq!(sets(&replica.ask("x").await), 3);
    }
}

/// The Sentinels name the primary. After a failover, the replicas follow them to the new one and restore what it misses.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_a_failover_of_sentinels() {
    let source = Source::of(3).await;
    let mut primary = StoreServer::start(&[]).await;
    let standby = StoreServer::start(&["--replicaof", primary.host(), "6379"]).await;
    within(Duration::from_secs(10), "the standby follows", async || {
        standby.run(&["INFO", "replication"]).contains("master_link_status:up")
    })
    .await;
    let mut sentinels = Vec::new();
    for _ in 0..3 {
        sentinels.push(StoreServer::start_sentinel("gateways", primary.host(), 2).await);
    }
    within(Duration::from_secs(20), "the Sentinels know each other and the standby", async || {
        sentinels.iter().all(|sentinel| {
            let state = sentinel.run(&["SENTINEL", "MASTER", "gateways"]);
            let value = |name: &str| state.lines().skip_while(|line| *line != name).nth(1).map(str::to_owned);
            value("num-other-sentinels").as_deref() == Some("2") && value("num-slaves").as_deref() == Some("1")
        })
    })
    .await;
    let hosts: Vec<String> = sentinels.iter().map(StoreServer::address).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut store = store_at(&format!("redis+sentinel://{}/gateways/0", hosts.join(",")));
    store["key"] = key_in(&folder);
    let options = Options::new(store, &source, "0s");
    let replicas = three(&options).await;
    assert_eq!(sets(&replicas[0].ask("x").await), 3);
    source.set(1);
    assert_eq!(sets(&replicas[1].ask("x").await), 3, "held");
    primary.kill();
    answers_through_a_failover(&replicas, &source, || is_primary(&standby)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_a_cluster_and_survive_the_loss_of_a_node() {
    let source = Source::of(3).await;
    let node = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
    let mut nodes = Vec::new();
    for _ in 0..6 {
        nodes.push(StoreServer::start(&node).await);
    }
    let addresses: Vec<String> = nodes.iter().map(StoreServer::address).collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.extend(["--cluster-replicas", "1", "--cluster-yes"]);
    nodes[0].run(&create);
    within(Duration::from_secs(20), "the cluster is complete", async || {
        nodes.iter().all(|node| node.run(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
            && nodes.iter().filter(|node| node.run(&["INFO", "replication"]).contains("master_link_status:up")).count()
                == 3
    })
    .await;
    let urls: Vec<String> = nodes[..2].iter().map(StoreServer::url).collect();
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(json!({"cluster": urls, "timeout": "800ms", "key": key_in(&folder)}), &source, "0s");
    let (code, said) = check(&options);
    assert!(said.contains("cache.shared: Redis "), "{code:?} {said}");
    let replicas = three(&options).await;
    assert_eq!(sets(&replicas[0].ask("x").await), 3);
    source.set(1);
    assert_eq!(sets(&replicas[1].ask("x").await), 3, "held");
    // The node with the gateway's keys.
    let has_keys = |node: &StoreServer| is_primary(node) && node.run(&["DBSIZE"]) != "0";
    let owner = nodes.iter().position(has_keys).unwrap();
    nodes[owner].kill();
    let lost = nodes.remove(owner);
    answers_through_a_failover(&replicas, &source, || nodes.iter().any(has_keys)).await;
    drop(lost);
}
