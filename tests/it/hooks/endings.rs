//! A gateway that is told to end: events still count, and ApplicationSets are told by it or by another replica. What the API server refuses.

use nix::sys::signal::Signal;

use super::{
    refresh_scene::{RefreshScene, ask_for, within},
    *,
};

/// A gateway that drains still takes events, and tells ApplicationSets.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_during_the_drain_notifies() {
    let mut told = RefreshScene::usual().await;
    told.restart_with("drain: 0s", "drain: 4s");
    told.ask("a", SHA, 1).await;
    told.scene.gateway.signal(Signal::SIGTERM);
    sleep(Duration::from_millis(500)).await;
    let ready = exchange_admin(told.scene.gateway.admin, b"GET /readyz HTTP/1.1\r\nHost: g\r\n\r\n").await;
    assert_eq!(ready.status, 503, "it drains");
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    told.refreshes(&["argocd/a"]).await;
    assert!(told.scene.gateway.wait(Duration::from_secs(20)).0.success());
}

/// What was found just before the end is told, even without a drain.
#[tokio::test(flavor = "multi_thread")]
async fn refreshes_that_are_due_at_the_end_are_sent() {
    let mut told = RefreshScene::usual().await;
    told.ask("a", SHA, 1).await;
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    within("the change is found", async || {
        told.scene.metric("appset_gateway_hook_rechecks_total{result=\"changed\"}").await == 1
    })
    .await;
    told.scene.gateway.signal(Signal::SIGTERM);
    let (status, log) = told.scene.gateway.wait(Duration::from_secs(20));
    assert!(status.success());
    assert_eq!(told.api.refreshed_sets(), ["argocd/a"], "{log}");
}

/// A refresh that waits for another attempt when its replica ends is made by another replica, once.
#[tokio::test(flavor = "multi_thread")]
async fn refreshes_that_wait_at_the_end_are_sent_by_another_replica() {
    let store = StoreServer::start(&[]).await;
    let cache = format!("cache: {{ shared: {{ url: \"{}\", timeout: 800ms }} }}\n", store.url());
    let mut told = RefreshScene::start(json!({}), &cache, json!({"ttl": "1h"})).await;
    let file = told.scene.folder.path().join("gateway.yaml");
    let others = [Gateway::serve(&file), Gateway::serve(&file)];
    within("contact", async || {
        ask_for(&others[0], "b", SHA, 2).await.status == 200 && told.ask("a", SHA, 1).await.status == 200
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    told.api.fail("PATCH", "applicationsets", &[(429, Some(120))]);
    told.scene.state.store(2, Ordering::SeqCst);
    let body = json!({"workflow_run": {"head_sha": SHA}, "action": "completed"}).to_string();
    told.scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(body.as_bytes()))], body.as_bytes()).await;
    // One of the two refreshes is refused.
    within("a refresh waits", async || {
        told.scene.metric("appset_gateway_refreshes_total{result=\"failed\"}").await == 1
            && told.api.refreshed().len() == 1
    })
    .await;
    told.scene.gateway.signal(Signal::SIGTERM);
    let (status, log) = told.scene.gateway.wait(Duration::from_secs(20));
    assert!(status.success() && log.contains("refreshed by another replica"), "{log}");
    assert_eq!(told.api.refreshed().len(), 1);
    told.refreshes(&["argocd/a", "argocd/b"]).await;
    // The third replica has its turn too.
    sleep(Duration::from_secs(6)).await;
    told.refreshes(&["argocd/a", "argocd/b"]).await;
}

/// A right is missing: the log says which, and each attempt counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_named() {
    let mut told = RefreshScene::usual().await;
    told.ask("a", SHA, 1).await;
    told.api.fail("PATCH", "applicationsets", &[(403, None); 3]);
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    told.refreshes(&["argocd/a"]).await;
    assert_eq!(told.scene.metric("appset_gateway_refreshes_total{result=\"failed\"}").await, 3);
    assert_eq!(told.scene.metric("appset_gateway_refreshes_dropped_total").await, 0);
    told.scene.gateway.signal(Signal::SIGTERM);
    let log = told.scene.gateway.wait(Duration::from_secs(20)).1;
    let named = "needs the right to patch applicationsets.argoproj.io in the namespace `argocd`";
    assert_eq!(log.matches(named).count(), 3, "{log}");
}

/// A list that expires between two of its pages is read again from the beginning, and nothing of it counts twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_expires_half_way_is_read_again() {
    let told = RefreshScene::usual().await;
    told.ask("a", SHA, 1).await;
    told.ask("c", SHA, 1).await;
    told.api.fail("GET", "applicationsets?continue=", &[(410, None)]);
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    // Two items are on a page: `a` is on the first one, and `c` on the second one.
    told.refreshes(&["argocd/a", "argocd/c"]).await;
    assert_eq!(told.scene.metric("appset_gateway_refreshes_total{result=\"failed\"}").await, 0);
}

/// A source that never answered recovers, and says so by its URL. Whoever was given the error is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_url_concerns_a_question_that_was_never_answered() {
    let own = json!({"name": "own", "token": {"file": "secret"}, "subjects": "[{'url': body.url}]"});
    let told = RefreshScene::of(json!([own]), json!({}), "", json!({"ttl": "1h"})).await;
    told.scene.source_fails(true);
    assert_eq!(told.ask("a", "team", 1).await.status, 502);
    assert_eq!(told.ask("b", "other", 2).await.status, 502);
    told.scene.source_fails(false);
    let event = json!({"url": format!("http://{}/team", told.scene.source.address)}).to_string();
    let bearer = format!("Bearer {SECRET}");
    let reply = told.scene.post("/hooks/own", &[("Authorization", &bearer)], event.as_bytes()).await;
    assert_eq!(reply.status, 202, "{}", reply.text());
    told.refreshes(&["argocd/a"]).await;
    assert_eq!(told.ask("a", "team", 1).await.status, 200);
}

/// After a restart, an event concerns the questions that the file knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_forgets_no_question() {
    let cache = "cache: { path: answers.redb }\n";
    let mut scene = Scene::of(json!([hook("github", "secret")]), cache, json!({"ttl": "1h"}), &[]).await;
    let (event, other) = (github(SHA), "f".repeat(40));
    scene.ask(SHA, 1).await;
    scene.ask(&other, 2).await;
    // Answers are written a moment later.
    sleep(Duration::from_secs(1)).await;
    scene.gateway.signal(Signal::SIGKILL);
    scene.gateway = Gateway::serve(&scene.folder.path().join("gateway.yaml"));
    within("it has asked again after its start", async || scene.runs() == 4).await;
    assert_eq!(scene.ask(SHA, 1).await, json!("1"));
    scene.state.store(2, Ordering::SeqCst);
    let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&event))], &event).await;
    assert_eq!(reply.json(), json!({"result": "taken"}));
    scene.shows(SHA, 1, 2).await;
    assert_eq!((scene.ask(&other, 2).await, scene.runs()), (json!("1"), 5), "one run for one question");
}
