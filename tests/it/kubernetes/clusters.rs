//! The clusters that Argo CD knows: each is an element, and one that fails keeps what it had.

use std::time::Duration;

use super::*;

/// Argo CD's cluster with the Secrets of others, and these.
struct Fleet {
    own: Cluster,
    others: Vec<(&'static str, Cluster)>,
}

impl Fleet {
    /// Three clusters with one namespace each, which is called as the cluster.
    async fn start() -> Self {
        let own = Cluster::start(&["own"]).await;
        own.accept("own-token");
        let mut others = Vec::new();
        for name in ["east", "north", "west"] {
            let cluster = Cluster::start(&[name]).await;
            cluster.accept(&format!("token-of-{name}"));
            others.push((name, cluster));
        }
        let fleet = Self { own, others };
        fleet.publish(fleet.secrets());
        fleet
    }

    /// The Secrets of the clusters, with their tokens.
    fn secrets(&self) -> Vec<Value> {
        let secret = |(name, cluster): &(&str, Cluster)| {
            let token = cluster.state().token.clone();
            cluster_secret(name, &cluster.url(), &json!({"bearerToken": token, "tlsClientConfig": {"insecure": false}}))
        };
        self.others.iter().map(secret).collect()
    }

    /// Puts `secrets` into Argo CD's namespace, beside one that is not of a cluster.
    fn publish(&self, mut secrets: Vec<Value>) {
        let mut other = object("argocd-secret", json!({"app": "argocd"}));
        other["data"] = json!({"admin.password": "eA=="});
        secrets.push(other);
        self.own.set("/api/v1/namespaces/argocd/secrets", secrets);
    }

    fn cluster(&self, name: &str) -> &Cluster {
        &self.others.iter().find(|(other, _)| *other == name).unwrap().1
    }

    async fn gateway(&self, clusters: Value) -> TestApp {
        let parameters =
            "{'name': object.metadata.name, 'cluster': cluster.name, 'env': cluster.labels.?env.orValue('none')}";
        self.own.gateway(json!({"clusters": clusters, "parameters": parameters})).await
    }
}

fn elements(reply: &Reply) -> &str {
    reply.header("x-appset-gateway-elements").unwrap_or_default()
}

/// The message of the element `name` in the views of operators.
async fn why(app: &TestApp, name: &str) -> String {
    let answers = app.operate("/admin/answers", None).await.json();
    let key = answers["answers"][0]["key"].as_str().unwrap().to_owned();
    let answer = app.operate(&format!("/admin/answers/{key}"), None).await.json();
    let list = answer["elements"]["list"].as_array().unwrap();
    let element = list.iter().find(|each| each["key"] == name).unwrap_or_else(|| panic!("{answer:#}"));
    element["failing"]["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_all_clusters_are_one_answer() {
    let fleet = Fleet::start().await;
    let app = fleet.gateway(json!("argocd")).await;
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(values(&reply, "name"), ["east", "own", "north", "west"], "with the own cluster, as in Argo CD");
    assert_eq!(values(&reply, "cluster"), ["east", "in-cluster", "north", "west"]);
    assert_eq!(values(&reply, "env"), ["prod", "none", "prod", "prod"]);
    assert_eq!(elements(&reply), "present=4, absent=0, last-known=0, unknown=0");
    let requests = fleet.own.requests();
    let list = "/api/v1/namespaces/argocd/secrets?labelSelector=argocd.argoproj.io%2Fsecret-type%3Dcluster&limit=250";
    assert_eq!(requests.iter().filter(|target| target.contains("secrets")).count(), 2, "two pages: {requests:?}");
    assert_eq!(requests[0], list);

    let labelled = fleet.gateway(json!({"labelSelector": "env=prod"})).await;
    assert_eq!(values(&labelled.ask("apps", json!({})).await, "name"), ["east", "north", "west"], "as in Argo CD");
    let none = fleet.gateway(json!({"labelSelector": "env=test"})).await;
    assert_eq!(none.ask("apps", json!({})).await.sets(), "[]");
    let with_own = fleet.gateway(json!({"labelSelector": "env=test", "ownCluster": true})).await;
    assert_eq!(values(&with_own.ask("apps", json!({})).await, "name"), ["own"]);
    // A Secret of the own cluster gives it another name, and no login is needed.
    let mut secrets = fleet.secrets();
    secrets.push(cluster_secret(
        "home",
        "https://kubernetes.default.svc",
        &json!({"tlsClientConfig": {"insecure": false}}),
    ));
    fleet.publish(secrets);
    let reply = app.ask_afresh("apps", json!({})).await;
    assert_eq!(values(&reply, "cluster"), ["east", "home", "north", "west"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_away_keeps_its_sets_and_holds_up_no_other() {
    let mut fleet = Fleet::start().await;
    let app = fleet.gateway(json!({"labelSelector": "env=prod"})).await;
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["east", "north", "west"]);
    fleet.others[1].1.upstream.refuse().await;
    fleet.cluster("west").set("/api/v1/namespaces", vec![object("west", json!({})), object("new", json!({}))]);
    fleet.cluster("east").set("/api/v1/namespaces", Vec::new());
    app.clock.advance(Duration::from_secs(12));
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(values(&reply, "name"), ["north", "west", "new"], "what east proves, and north as it was last");
    assert_eq!(elements(&reply), "present=1, absent=1, last-known=1, unknown=0");
    assert!(why(&app, "north").await.contains("Connection refused"), "{}", why(&app, "north").await);
    fleet.others[1].1.upstream.listen().await;
    fleet.cluster("north").set("/api/v1/namespaces", vec![object("healed", json!({}))]);
    app.clock.advance(Duration::from_mins(10));
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["healed", "west", "new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_needs_all_clusters_and_later_ones_do_not_wait_for_a_new_one() {
    let mut fleet = Fleet::start().await;
    fleet.others[1].1.upstream.refuse().await;
    let app = fleet.gateway(json!({"labelSelector": "env=prod"})).await;
    refused(&app.ask("apps", json!({})).await, 502, "backend_failed", "north");
    fleet.others[1].1.upstream.listen().await;
    assert_eq!(values(&app.ask_afresh("apps", json!({})).await, "name"), ["east", "north", "west"]);
    let mut secrets = fleet.secrets();
    secrets.push(cluster_secret("south", "http://127.0.0.1:1", &json!({"bearerToken": "token-of-south"})));
    fleet.publish(secrets);
    app.clock.advance(Duration::from_secs(12));
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(values(&reply, "name"), ["east", "north", "west"]);
    assert_eq!(elements(&reply), "present=3, absent=0, last-known=0, unknown=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_left_the_list_goes_and_a_list_that_fails_takes_nothing() {
    let fleet = Fleet::start().await;
    let app = fleet.gateway(json!({"labelSelector": "env=prod"})).await;
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["east", "north", "west"]);
    let secrets = fleet.secrets();
    for (steps, says) in [
        (status(403, "secrets is forbidden"), "needs the right to `list` secrets in the namespace `argocd`"),
        (status(500, "etcd is away"), "etcd is away"),
        (ok(&json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {}})), "it has no `items`"),
    ] {
        fleet.own.fail("/secrets", steps);
        app.clock.advance(Duration::from_mins(5));
        let reply = app.ask("apps", json!({})).await;
        assert_eq!(values(&reply, "name"), ["east", "north", "west"], "{says}");
        let failing = app.operate("/admin/status", None).await.text();
        assert!(failing.contains(says), "{says}: {failing}");
        fleet.own.heal();
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let mut same = secrets.clone();
    same.push(cluster_secret("west", "http://127.0.0.1:1", &json!({})));
    same[3]["metadata"]["name"] = json!("cluster-west-2");
    fleet.publish(same);
    app.clock.advance(Duration::from_mins(5));
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["east", "north", "west"]);
    let failing = app.operate("/admin/status", None).await.text();
    assert!(
        failing.contains("several clusters are called `west`") && failing.contains("cluster-west, cluster-west-2"),
        "{failing}"
    );

    fleet.publish(secrets[..2].to_vec());
    tokio::time::sleep(Duration::from_millis(1100)).await;
    app.clock.advance(Duration::from_mins(5));
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["east", "north"], "proven by a whole list");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_cannot_be_used_concerns_its_cluster_only() {
    let fleet = Fleet::start().await;
    let app = fleet.gateway(json!({"labelSelector": "env=prod"})).await;
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["east", "north", "west"]);
    let url = fleet.cluster("north").url();
    let with = |config: &str| {
        let mut secrets = fleet.secrets();
        secrets[1]["data"]["config"] = json!(config);
        secrets
    };
    let text = |config: &Value| STANDARD.encode(config.to_string());
    for (config, says) in [
        ("hunter2!".to_owned(), "its `config` is not base64"),
        (STANDARD.encode("hunter2"), "is not the JSON object that Argo CD documents"),
        (text(&json!({"bearerToken": "hunter2"})), "access denied (401"),
        (text(&json!({"tlsClientConfig": {"insecure": true}})), "`clusters.allowInsecure: true`"),
        (text(&json!({"execProviderConfig": {"command": "get-token", "args": ["hunter2"]}})), "runs `get-token`"),
        (text(&json!({"execProviderConfig": {"command": "argocd-k8s-auth", "args": ["gcp"]}})), "a cluster of Google"),
    ] {
        fleet.publish(with(&config));
        app.clock.advance(Duration::from_mins(30));
        let reply = app.ask("apps", json!({})).await;
        assert_eq!(values(&reply, "name"), ["east", "north", "west"], "{says}");
        assert_eq!(elements(&reply), "present=2, absent=0, last-known=1, unknown=0", "{says}");
        let message = why(&app, "north").await;
        assert!(message.contains(says) && !message.contains("hunter2"), "{says}: {message}");
    }
    // A URL that changed is the same cluster, which has moved.
    let moved = Cluster::start(&["moved"]).await;
    let mut secrets = fleet.secrets();
    secrets[1]["data"]["server"] = json!(STANDARD.encode(moved.url()));
    secrets[1]["data"]["config"] = json!(text(&json!({"bearerToken": "any"})));
    fleet.publish(secrets);
    app.clock.advance(Duration::from_mins(30));
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["east", "moved", "west"], "no more at {url}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_replaced_in_its_secret_is_used_at_once() {
    let fleet = Fleet::start().await;
    let app = fleet.gateway(json!({"labelSelector": "env=prod"})).await;
    assert_eq!(values(&app.ask("apps", json!({})).await, "name"), ["east", "north", "west"]);
    fleet.cluster("north").accept("token-of-north-2");
    app.clock.advance(Duration::from_secs(12));
    let reply = app.ask("apps", json!({})).await;
    assert_eq!(elements(&reply), "present=2, absent=0, last-known=1, unknown=0");
    fleet.publish(fleet.secrets());
    app.clock.advance(Duration::from_mins(5));
    assert_eq!(elements(&app.ask("apps", json!({})).await), "present=3, absent=0, last-known=0, unknown=0");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_login_is_stored_or_shown() {
    let fleet = Fleet::start().await;
    let mut secrets = fleet.secrets();
    let applied = json!({"stringData": {"config": {"bearerToken": "token-of-north"}}}).to_string();
    secrets[1]["metadata"]["annotations"] =
        json!({"team": "a", "kubectl.kubernetes.io/last-applied-configuration": applied});
    fleet.publish(secrets);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "own-token").unwrap();
    let parameters = "{'name': object.metadata.name, 'cluster': cluster}";
    let config = config(&fleet.own.url(), json!({"clusters": "argocd", "parameters": parameters}));
    let app = TestApp::start_in(folder, &format!("cache: {{ path: answers.redb }}\n{config}")).await;
    app.app.open_disk();
    let reply = app.ask("apps", json!({})).await;
    let sets: Value = serde_json::from_str(&reply.sets()).unwrap();
    assert_eq!(sets[2]["cluster"]["annotations"], json!({"team": "a"}));
    let app = app.restart(async |_| {}).await;
    app.app.open_disk();
    assert_eq!(app.ask("apps", json!({})).await.sets(), reply.sets());
    let mut all = vec![reply.raw.clone()];
    for path in ["/admin/answers", "/admin/routes", "/admin/status", "/admin/destinations"] {
        all.push(app.operate(path, None).await.raw);
    }
    let file = std::fs::read_dir(app.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    all.extend(file.filter(|path| !path.ends_with("token") && path.is_file()).map(|path| std::fs::read(path).unwrap()));
    assert!(all.len() >= 6, "the cache file is among them");
    for bytes in all {
        for secret in ["token-of-", "own-token"] {
            let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!is_there, "{secret} in {}", String::from_utf8_lossy(&bytes));
        }
    }
}
