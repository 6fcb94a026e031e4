//! After which changes ApplicationSets are told, by `argocd.refresh.on`. The gateway looks again in any case.

use super::{
    refresh_scene::{RefreshScene, within},
    *,
};

const NOBODY: &[&str] = &[];

#[tokio::test(flavor = "multi_thread")]
async fn without_events_a_look_tells_nobody() {
    for (on, expected) in [(json!(["renewals", "releases"]), NOBODY), (json!(["events"]), &["argocd/a"])] {
        let told = RefreshScene::start(json!({"on": on}), "", json!({"ttl": "1h"})).await;
        told.ask("a", SHA, 1).await;
        told.scene.state.store(2, Ordering::SeqCst);
        told.finish().await;
        within("a look", async || {
            told.scene.metric("appset_gateway_hook_rechecks_total{result=\"changed\"}").await == 1
        })
        .await;
        told.refreshes(expected).await;
        let answer = told.ask("a", SHA, 1).await.json();
        assert_eq!(answer["output"]["parameters"][0]["state"], "2", "{on}: the answer is there in any case");
        assert_eq!(told.scene.runs(), 2, "{on}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_releases_a_release_tells_nobody() {
    for (on, expected) in [(json!(["events", "renewals"]), NOBODY), (json!(["releases"]), &["argocd/a"])] {
        let told = RefreshScene::start(json!({"on": on}), "", json!({"ttl": "1h"})).await;
        told.ask("a", SHA, 1).await;
        told.scene.state.store(0, Ordering::SeqCst);
        told.finish().await;
        within("it is held", async || {
            told.scene.metric("appset_gateway_hook_rechecks_total{result=\"held\"}").await == 1
        })
        .await;
        told.release().await;
        within("the hold ends", async || told.api.events().iter().any(|event| event["reason"] == "AnswerReleased"))
            .await;
        told.refreshes(expected).await;
        let answer = told.ask("a", SHA, 1).await.json();
        assert_eq!(answer["output"]["parameters"], json!([]), "{on}: the answer is there in any case");
    }
}
