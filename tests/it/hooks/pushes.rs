//! Events that name the digests that were pushed.

use super::{refresh_scene::within, *};

/// The number of looks, and of those that found something new.
async fn looks(gateway: &Gateway) -> (u64, u64) {
    let of = async |result: &str| {
        metric_of(gateway, &format!("appset_gateway_hook_rechecks_total{{result=\"{result}\"}}")).await
    };
    let changed = of("changed").await;
    (changed + of("unchanged").await, changed)
}

/// A hundred events about one tag are at most two runs. An event whose digest the registry does not name yet has more.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_is_repeated_until_the_registry_names_the_digest() {
    let (registry, gateway, _folder) = registry_and_gateway("", &[]).await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    // The registry tells of this push a moment later, when it is to concern nothing yet.
    sleep(Duration::from_secs(1)).await;
    let digest = digest_for(&gateway, "a", "1").await;
    registry.push("back:feature-branch-1", "org/app:1").await;
    within("the push is found", async || looks(&gateway).await.1 > 0).await;
    assert_ne!(digest_for(&gateway, "a", "1").await, digest);
    let (pushed, bearer) = (digest_for(&gateway, "a", "1").await, format!("Bearer {SECRET}"));
    let push = async |digest: &str| {
        let target = json!({"repository": "org/app", "tag": "1", "digest": digest});
        let event = json!({"action": "push", "request": {"host": registry.host}, "target": target});
        let body = json!({"events": [event]}).to_string();
        post(gateway.hooks.unwrap(), "/hooks/distribution", &[("Authorization", &bearer)], body.as_bytes()).await
    };
    // The registry may tell of its first push late, which is looked for until the sixth second.
    sleep(Duration::from_secs(3)).await;
    let before = looks(&gateway).await;
    let pushed = pushed.as_str().unwrap();
    let replies = join_all((0..100).map(|_| push(pushed))).await;
    assert!(replies.iter().all(|reply| reply.status == 202));
    sleep(Duration::from_secs(6)).await;
    let after = looks(&gateway).await;
    assert!((before.0 + 1..=before.0 + 2).contains(&after.0), "{before:?}, {after:?}");

    // The registry is behind this event. The third look finds it.
    let behind = digest.as_str().unwrap();
    assert_eq!(push(behind).await.status, 202);
    within("the look is repeated", async || looks(&gateway).await.0 >= after.0 + 2).await;
    assert_eq!(looks(&gateway).await.1, after.1, "nothing is new yet");
    registry.push("front:feature-branch-1", "org/app:1").await;
    within("the push is found", async || looks(&gateway).await.1 > after.1).await;
    assert_eq!(digest_for(&gateway, "a", "1").await, digest);
}

/// Two images of one question are pushed. One event names its digest and is found at once. The other has no digest, and its registry is
/// behind: it is looked for again, though the first look has found something new.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_event_of_a_look_is_not_lost() {
    let route = |host: &str| {
        let images =
            json!({"app": {"image": format!("{host}/org/app:1")}, "web": {"image": format!("{host}/org/web:1")}});
        json!({"name": "two", "backend": {"digests": {"images": images}}, "output": {"app": "{{ app.digest }}", "web": "{{ web.digest }}"}, "cache": {"ttl": "1h"}})
    };
    let registry = Registry::start().await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), SECRET).unwrap();
    let mut mapped = hook("generic", "token");
    mapped["subjects"] = json!("body.images.map(i, {'image': i})");
    let config = format!(
        "server: {{ listen: \"127.0.0.1:0\", admin: \"127.0.0.1:0\", hooks: \"127.0.0.1:0\", drain: 0s }}\n{}hooks: {}\n\
         registries: {{ \"{}\": {{ plainHttp: true }} }}\nroutes: {}\n",
        TestApp::auth(),
        json!([mapped]),
        registry.host,
        json!([route(&registry.host)])
    );
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, config).unwrap();
    let gateway = Gateway::serve(&file);
    let answer = async || {
        let body = json!({"applicationSetName": "a"}).to_string();
        let reply =
            exchange(gateway.address, &argo_request("/two/api/v1/getparams.execute", TOKEN, body.as_bytes())).await;
        reply.json()["output"]["parameters"][0].clone()
    };
    registry.push("front:feature-branch-1", "org/app:1").await;
    registry.push("front:feature-branch-1", "org/web:1").await;
    let before = answer().await;
    assert!(before["web"].is_string(), "{before}");
    registry.push("back:feature-branch-1", "org/app:1").await;
    let digest = registry.inspect("org/app:1").await;
    let images = [format!("{}/org/app:1@{digest}", registry.host), format!("{}/org/web:1", registry.host)];
    let body = json!({ "images": images }).to_string();
    let headers = [("Authorization", &*format!("Bearer {SECRET}"))];
    assert_eq!(post(gateway.hooks.unwrap(), "/hooks/generic", &headers, body.as_bytes()).await.status, 202);
    within("the first image is found", async || answer().await["app"] != before["app"]).await;
    registry.push("back:feature-branch-1", "org/web:1").await;
    within("the second image is found", async || answer().await["web"] != before["web"]).await;
}
