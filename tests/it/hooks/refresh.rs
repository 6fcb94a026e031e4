//! ApplicationSets are told when there is another answer, and only then: an annotation, by a (fake) API server over TLS.

use std::collections::HashSet;

use super::{
    refresh_scene::{OTHER, RefreshScene, SERVICE_TOKEN, ask_for, within},
    *,
};
use crate::support::apiserver::ApiServer;

/// Of 500 questions, an event concerns one. Those that asked it are told, each once, and nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn application_sets_with_the_question_are_notified_and_no_others() {
    let told = RefreshScene::usual().await;
    told.api.add("teams", "b", "gateway");
    for n in 0..500 {
        told.ask("c", OTHER, n).await;
    }
    for set in ["a", "b", "stranger", "of-nobody"] {
        assert_eq!(told.ask(set, SHA, 7).await.status, 200);
    }
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    told.refreshes(&["argocd/a", "argocd/b", "teams/b"]).await;
    assert_eq!(told.scene.runs(), 502, "one run for the event");
    let metric = async |name: &str| told.scene.metric(&format!("appset_gateway_{name}")).await;
    assert_eq!(metric("refreshes_total{result=\"annotated\"}").await, 2);
    assert_eq!(metric("refresh_duration_seconds_count").await, 2);

    // Whoever has the new answer is not told again. Whoever has not asked for some time is.
    assert_eq!(told.ask("a", SHA, 7).await.json()["output"]["parameters"][0]["state"], "2");
    told.finish().await;
    told.refreshes(&["argocd/a", "argocd/b", "teams/b"]).await;
    sleep(Duration::from_secs(5)).await;
    told.finish().await;
    told.refreshes(&["argocd/a", "argocd/b", "argocd/b", "teams/b", "teams/b"]).await;
    // They may have been made since the list was read, so it is read again first.
    within("others are nobody's", async || metric("refreshes_total{result=\"unknown\"}").await >= 2).await;
    let values: HashSet<String> = told.api.refreshed().into_iter().map(|refreshed| refreshed.value).collect();
    assert_eq!(values.len(), 5, "the same value again would change nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_answer_notifies_nobody() {
    let told = RefreshScene::usual().await;
    told.ask("a", SHA, 1).await;
    told.finish().await;
    within("a look", async || told.looks().await > 0).await;
    // Three looks in vain, and one that fails.
    told.scene.source_fails(true);
    within("the look after 2 s", async || told.looks().await > 1).await;
    told.refreshes(&[]).await;
}

/// Debian's docker-registry tells of a push by `skopeo copy`, and the ApplicationSets that asked for this tag are told.
#[tokio::test(flavor = "multi_thread")]
async fn a_push_to_a_registry_notifies() {
    let api = ApiServer::start(SERVICE_TOKEN).await;
    (0..3).for_each(|n| api.add("argocd", &format!("set-{n}"), "gateway"));
    let refresh = json!({"namespaces": ["argocd"], "configMaps": ["gateway"], "api": api.url,
        "token": {"file": "service-token"}, "ca": "cluster.crt"});
    let more = format!("argocd: {{ refresh: {refresh} }}\n");
    let files = [("service-token", SERVICE_TOKEN), ("cluster.crt", &*api.ca)];
    let (registry, gateway, _folder) = registry_and_gateway(&more, &files).await;
    api.add("argocd", "list", "gateway");
    let mut before = Vec::new();
    for n in 0..3 {
        registry.push("front:feature-branch-1", &format!("org/app:{n}")).await;
        before.push(digest_for(&gateway, &format!("set-{n}"), &n.to_string()).await);
    }
    assert_eq!(tags_for(&gateway, "list").await, 3);
    until_quiet(&gateway).await;
    let known = metric_of(&gateway, "appset_gateway_hook_questions_total").await;
    registry.push("back:feature-branch-1", "org/app:1").await;
    within("it is told", async || api.refreshed().len() == 2).await;
    until_quiet(&gateway).await;
    let mut told = api.refreshed_sets();
    told.sort();
    assert_eq!(told, ["argocd/list", "argocd/set-1"]);
    let concerned = "appset_gateway_hook_questions_total";
    assert_eq!(metric_of(&gateway, concerned).await, known + 2, "a layer concerns nothing");
    assert_ne!(digest_for(&gateway, "set-1", "1").await, before[1], "Argo CD asks, and has the new digest");
    // A tag that nobody asked about is on the list.
    registry.push("back:feature-branch-1", "org/app:new").await;
    within("it is told", async || api.refreshed().len() == 3).await;
    assert_eq!(tags_for(&gateway, "list").await, 4);
}

/// Whoever was given an error waits for Argo CD's next attempt, unless it is told.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_error_the_first_answer_notifies() {
    let told = RefreshScene::usual().await;
    told.scene.source_fails(true);
    assert_eq!(told.ask("a", SHA, 1).await.status, 502);
    told.scene.source_fails(false);
    told.finish().await;
    told.refreshes(&["argocd/a"]).await;
}

/// A held answer is nobody's. Its release is.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_answer_notifies_when_it_is_released() {
    let told = RefreshScene::usual().await;
    told.ask("a", SHA, 1).await;
    told.scene.state.store(0, Ordering::SeqCst);
    told.finish().await;
    within("it is held", async || {
        let events = told.api.events();
        events.iter().any(|event| event["reason"] == "AnswerHeld")
    })
    .await;
    told.refreshes(&[]).await;
    told.release().await;
    told.refreshes(&["argocd/a"]).await;
    let events = told.api.events();
    let reasons: Vec<&str> = events.iter().map(|event| event["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["AnswerHeld", "AnswerReleased"]);
    let event = &events[0];
    assert_eq!(event["involvedObject"]["name"], "a");
    assert_eq!(event["involvedObject"]["uid"], "uid-of-a");
    assert_eq!((&event["type"], &event["count"]), (&json!("Warning"), &json!(1)));
    assert!(event["message"].as_str().unwrap().starts_with("route h: "), "{event}");
}

/// What the gateway finds by itself is told too, unless `on` leaves it out.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_in_the_background_notify() {
    for (on, expected) in [(json!(["renewals"]), &["argocd/b"][..]), (json!(["events", "releases"]), &[])] {
        let cache = json!({"ttl": "300ms", "staleWhileRevalidate": "1h"});
        let told = RefreshScene::start(json!({"on": on}), "", cache).await;
        told.ask("a", SHA, 1).await;
        told.ask("b", SHA, 1).await;
        told.scene.state.store(2, Ordering::SeqCst);
        within("A asks until it has the new answer", async || {
            told.ask("a", SHA, 1).await.json()["output"]["parameters"][0]["state"] == "2"
        })
        .await;
        within("the renewal is looked into", async || {
            let sets = told.api.refreshed_sets();
            expected.iter().all(|set| sets.contains(&(*set).to_owned()))
        })
        .await;
        sleep(Duration::from_millis(500)).await;
        // A may be told before it asks again.
        let mut sets = told.api.refreshed_sets();
        sets.retain(|set| set != "argocd/a" || expected.is_empty());
        sets.dedup();
        assert_eq!(sets, expected, "{on}");
    }
}

/// The API server refuses, throttles, conflicts and fails. Each ApplicationSet is told in the end, once.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_api_server_refuses_is_tried_again() {
    let mut told = RefreshScene::usual().await;
    told.ask("a", SHA, 1).await;
    let mut state = 1;
    let change = async |told: &RefreshScene, state: &mut u64, count: usize| {
        *state += 1;
        told.scene.state.store(*state, Ordering::SeqCst);
        let began = Instant::now();
        told.finish().await;
        within("it is told", async || told.api.refreshed().len() >= count).await;
        sleep(Duration::from_millis(300)).await;
        assert_eq!(told.api.refreshed().len(), count);
        assert_eq!(told.ask("a", SHA, 1).await.status, 200);
        began.elapsed()
    };
    for (count, failure) in [(403, None), (409, None), (500, None), (429, Some(3))].into_iter().enumerate() {
        told.api.fail("PATCH", "applicationsets", &[failure]);
        let took = change(&told, &mut state, count + 1).await;
        assert!(failure.1.is_none() || took >= Duration::from_secs(3), "{failure:?}: {took:?}");
    }
    // The list expires while it is read, and is refused. It has pages.
    told.api.add("argocd", "d", "gateway");
    told.ask("d", SHA, 1).await;
    told.api.fail("GET", "applicationsets", &[(403, None), (410, None)]);
    change(&told, &mut state, 6).await;
    // An ApplicationSet that is gone is nobody's business.
    told.api.remove("argocd", "d");
    change(&told, &mut state, 7).await;
    // The token is replaced.
    told.api.set_token("the next token");
    std::fs::write(told.scene.folder.path().join("service-token"), "the next token\n").unwrap();
    change(&told, &mut state, 8).await;
    // The server is away for a while.
    told.api.set_away(true).await;
    told.scene.state.store(99, Ordering::SeqCst);
    told.finish().await;
    within("an attempt has failed", async || {
        told.scene.metric("appset_gateway_refreshes_total{result=\"failed\"}").await > 4
    })
    .await;
    told.api.set_away(false).await;
    within("it is told", async || told.api.refreshed().len() >= 9).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(told.api.refreshed_sets().iter().filter(|set| *set == "argocd/a").count(), 8);
}

/// A restart forgets neither who asked nor what they were given. What changed meanwhile is told.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_forgets_nobody() {
    let mut told = RefreshScene::start(json!({}), "cache: { path: answers.redb }\n", json!({"ttl": "1h"})).await;
    for set in ["a", "b"] {
        told.ask(set, SHA, 1).await;
    }
    // Who asked is written a moment later.
    sleep(Duration::from_secs(1)).await;
    let file = told.scene.folder.path().join("gateway.yaml");
    told.scene.gateway.signal(nix::sys::signal::Signal::SIGKILL);
    told.scene.state.store(2, Ordering::SeqCst);
    told.scene.gateway = Gateway::serve(&file);
    told.refreshes(&["argocd/a", "argocd/b"]).await;
    assert_eq!(told.ask("b", SHA, 1).await.json()["output"]["parameters"][0]["state"], "2");
    sleep(Duration::from_secs(1)).await;
    told.scene.gateway.signal(nix::sys::signal::Signal::SIGKILL);
    told.scene.gateway = Gateway::serve(&file);
    told.refreshes(&["argocd/a", "argocd/a", "argocd/b"]).await;
}

/// What came just before the end is not lost: whoever asks after the start makes the source be asked.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_just_before_the_end_counts() {
    let cache = json!({"ttl": "1h", "staleWhileRevalidate": "1h"});
    let mut scene = Scene::of(json!([hook("github", "secret")]), "cache: { path: answers.redb }\n", cache, &[]).await;
    scene.ask(SHA, 1).await;
    scene.state.store(2, Ordering::SeqCst);
    let body = github(SHA);
    let reply = scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await;
    scene.gateway.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(reply.status, 202);
    scene.gateway.wait(Duration::from_secs(20));
    scene.gateway = Gateway::serve(&scene.folder.path().join("gateway.yaml"));
    assert_eq!(scene.ask(SHA, 1).await, json!("2"));
}

/// A namespace that refuses the gateway does not keep the others from being told, and these are told once.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_refuses_concerns_no_other() {
    let told = RefreshScene::usual().await;
    told.api.add("teams", "a", "gateway");
    told.ask("a", SHA, 1).await;
    told.api.fail("PATCH", "teams/applicationsets", &[(403, None), (403, None)]);
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    told.refreshes(&["argocd/a", "teams/a"]).await;
    told.api.fail("GET", "teams/applicationsets", &[(403, None); 50]);
    told.api.add("argocd", "new", "gateway");
    told.ask("new", OTHER, 1).await;
    told.scene.state.store(3, Ordering::SeqCst);
    let body = github(OTHER);
    told.scene.post("/hooks/github", &[("X-Hub-Signature-256", &signed(&body))], &body).await;
    told.refreshes(&["argocd/a", "argocd/new", "teams/a"]).await;
}

/// An ApplicationSet whose namespace the caller says is told there only.
#[tokio::test(flavor = "multi_thread")]
async fn only_the_namespace_of_the_request_is_notified() {
    let told = RefreshScene::usual().await;
    told.api.add("teams", "a", "gateway");
    let parameters = json!({"sha": SHA, "n": "1"});
    let body =
        json!({"applicationSetName": "a", "applicationSetNamespace": "teams", "input": {"parameters": parameters}});
    let request = argo_request("/h/api/v1/getparams.execute", TOKEN, body.to_string().as_bytes());
    assert_eq!(exchange(told.scene.gateway.address, &request).await.status, 200);
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    told.refreshes(&["teams/a"]).await;
}

/// An API server that does not answer one request is asked again. Callers are answered meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_hangs_gets_the_request_again() {
    let told = RefreshScene::usual().await;
    told.ask("a", SHA, 1).await;
    told.api.fail("PATCH", "applicationsets", &[(0, None)]);
    told.scene.state.store(2, Ordering::SeqCst);
    told.finish().await;
    told.scene.shows(SHA, 1, 2).await;
    assert_eq!(told.api.refreshed(), []);
    told.refreshes(&["argocd/a"]).await;
}

/// A source that fails several times, and one that is well again, are shown on the ApplicationSets.
#[tokio::test(flavor = "multi_thread")]
async fn events_tell_of_failing_sources() {
    let told = RefreshScene::start(json!({}), "", json!({"ttl": "1ms", "staleIfError": "1h"})).await;
    told.ask("a", SHA, 1).await;
    told.scene.source_fails(true);
    let reasons = || {
        let events = told.api.events();
        events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    within("it fails", async || {
        told.ask("a", SHA, 1).await;
        reasons() == ["SourceFailing"]
    })
    .await;
    assert!(told.api.events()[0]["message"].as_str().unwrap().contains("503"), "{:?}", told.api.events());
    told.scene.source_fails(false);
    within("it is well again", async || {
        told.ask("a", SHA, 1).await;
        reasons() == ["SourceFailing", "SourceRecovered"]
    })
    .await;
}

/// Who asked one replica is told by the replica that looks. A delivery that comes to both is one.
#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_the_application_sets_of_a_question() {
    let store = StoreServer::start(&[]).await;
    let cache = format!("cache: {{ shared: {{ url: \"{}\", timeout: 800ms }} }}\n", store.url());
    let told = RefreshScene::start(json!({}), &cache, json!({"ttl": "1h"})).await;
    let other = Gateway::serve(&told.scene.folder.path().join("gateway.yaml"));
    within("contact", async || {
        ask_for(&other, "b", SHA, 1).await.status == 200 && told.ask("a", SHA, 1).await.status == 200
    })
    .await;
    // Who asked is shared a moment later.
    within("it is shared", async || !store.run(&["KEYS", "*notes:askers*"]).is_empty()).await;
    sleep(Duration::from_millis(500)).await;
    told.scene.state.store(2, Ordering::SeqCst);
    let body = github(SHA);
    let signature = signed(&body);
    let headers = [("X-Hub-Signature-256", &*signature), ("X-GitHub-Delivery", "one")];
    let first = told.scene.post("/hooks/github", &headers, &body).await;
    let second = post(other.hooks.unwrap(), "/hooks/github", &headers, &body).await;
    assert_eq!((first.json()["result"].as_str(), second.json()["result"].as_str()), (Some("taken"), Some("duplicate")));
    told.refreshes(&["argocd/a", "argocd/b"]).await;
}
