//! Pushes to a real docker-registry, which notifies the gateway of them.

use super::*;

/// A registry that tells a gateway of pushes. Its route `d` has the digest of a tag. The configuration has the lines `more`, and `files`
/// beside it.
pub(super) async fn registry_and_gateway(more: &str, files: &[(&str, &str)]) -> (Registry, Gateway, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in [("secret", SECRET)].iter().chain(files) {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let hooks = listener.local_addr().unwrap();
    drop(listener);
    let notified = Notified { url: format!("http://{hooks}/hooks/distribution"), token: SECRET.to_owned() };
    let registry = Registry::start_as(Setup { notified: Some(notified), ..Setup::default() }).await;
    let image = json!({"app": {"image": format!("{}/org/app:{{{{ params.tag }}}}", registry.host)}});
    let route = json!({"name": "d", "input": [{"name": "tag"}], "backend": {"digests": {"images": image}}, "output": {"digest": "{{ app.digest }}"}, "cache": {"ttl": "1h"}});
    let repository = format!("{}/org/app", registry.host);
    let list = json!({"name": "tags", "backend": {"digests": {"list": {"repositories": [repository]}}}, "cache": {"ttl": "1h"}});
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", hooks: \"{hooks}\", drain: 0s }}\n{}{more}hooks: {}\n\
         registries: {{ \"{}\": {{ plainHttp: true }} }}\nroutes: {}\n",
        TestApp::auth(),
        json!([hook("distribution", "token")]),
        registry.host,
        json!([route, list])
    );
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    (registry, Gateway::serve(&file), folder)
}

/// How many tags there are, as the ApplicationSet `set` is answered.
pub(super) async fn tags_for(gateway: &Gateway, set: &str) -> usize {
    let body = json!({"applicationSetName": set}).to_string();
    let reply =
        exchange(gateway.address, &argo_request("/tags/api/v1/getparams.execute", TOKEN, body.as_bytes())).await;
    reply.json()["output"]["parameters"].as_array().map_or(0, Vec::len)
}

/// Waits until no webhook has arrived for two seconds: a registry sends its notifications a moment after a push.
pub(super) async fn until_quiet(gateway: &Gateway) {
    let counted = async || {
        let text = exchange(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
        text.lines().filter(|line| line.starts_with("appset_gateway_hook_")).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut before = counted().await;
    loop {
        sleep(Duration::from_secs(2)).await;
        let now = counted().await;
        if now == before {
            return;
        }
        before = now;
    }
}

/// The value of the metric `name` of `gateway`.
pub(super) async fn metric_of(gateway: &Gateway, name: &str) -> u64 {
    let text = exchange(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()).unwrap()
}

/// The digest of a tag, as the ApplicationSet `set` is answered.
pub(super) async fn digest_for(gateway: &Gateway, set: &str, tag: &str) -> Value {
    let body = json!({"applicationSetName": set, "input": {"parameters": {"tag": tag}}}).to_string();
    let reply = exchange(gateway.address, &argo_request("/d/api/v1/getparams.execute", TOKEN, body.as_bytes())).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()["output"]["parameters"][0]["digest"].clone()
}

/// Debian's docker-registry tells of a push, and callers have the new digest.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_a_registry_changes_the_answer() {
    let (registry, gateway, _folder) = registry_and_gateway("", &[]).await;
    registry.push("front:feature-branch-1", "org/app:main").await;
    let digest = async |tag: &str| digest_for(&gateway, "", tag).await;
    let before = digest("main").await;
    assert_eq!(before, json!(registry.inspect("org/app:main").await));
    assert_eq!(digest("later").await, Value::Null, "not built yet");
    registry.push("back:feature-branch-1", "org/app:main").await;
    registry.push("back:feature-branch-1", "org/app:later").await;
    let expected = json!(registry.inspect("org/app:main").await);
    assert_ne!(expected, before);
    for tag in ["main", "later"] {
        let until = Instant::now() + Duration::from_secs(10);
        while digest(tag).await != expected {
            assert!(Instant::now() < until, "the push of {tag} is not seen");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A delivery at one replica reaches all of them.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_what_an_event_leads_to() {
    let store = StoreServer::start(&[]).await;
    let cache = format!("cache: {{ shared: {{ url: \"{}\", timeout: 800ms }} }}\n", store.url());
    let scene = Scene::with(json!([hook("github", "secret")]), &cache).await;
    let other = Gateway::serve(&scene.folder.path().join("gateway.yaml"));
    let until = Instant::now() + Duration::from_secs(20);
    while ask(&other, SHA, 1).await.status != 200 || ask(&scene.gateway, SHA, 1).await.status != 200 {
        assert!(Instant::now() < until, "no contact");
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(scene.runs(), 1);
    scene.state.store(2, Ordering::SeqCst);
    let body = github(SHA);
    assert_eq!(scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await.status, 202);
    scene.shows(SHA, 1, 2).await;
    let seen = ask(&other, SHA, 1).await.json()["output"]["parameters"][0]["state"].clone();
    assert_eq!(seen, json!("2"));
    assert_eq!(scene.runs(), 2);
}
