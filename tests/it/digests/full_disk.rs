//! A registry whose disk is full: a push fails, and may damage an image that was there before.

use super::*;

#[tokio::test]
async fn a_registry_with_a_full_disk_removes_no_image_from_the_answer() {
    let registry = Registry::start().await;
    for tag in ["untouched", "again", "moving"] {
        registry.push("front:feature-branch-1", &format!("org/app:{tag}")).await;
    }
    registry.push("front:feature-branch-2", "org/app:second").await;
    let (first, second) = (registry.inspect("org/app:moving").await, registry.inspect("org/app:second").await);
    let images = json!({"app": {"image": format!("{}/org/app:{{{{ params.tag }}}}", registry.host)}});
    let app = TestApp::start(&config(&[(&*registry.host, plain())], &images, json!({}))).await;
    let (ask, afresh) = (
        async |tag: &str| app.ask("d", json!({"tag": tag})).await,
        async |tag| app.ask_afresh("d", json!({"tag": tag})).await,
    );
    let sets = |digest: &str| json!([{"app": digest}]).to_string();
    for tag in ["untouched", "again", "moving"] {
        assert_eq!(ask(tag).await.sets(), sets(&first), "{tag}");
    }

    registry.is_full(true).await;
    let failure = registry.fail_to_push("back:feature-branch-1", "org/app:new").await;
    assert!(failure.contains("500 Internal Server Error"), "{failure}");
    for tag in ["untouched", "again", "moving"] {
        assert_eq!(ask(tag).await.sets(), sets(&first), "{tag}");
    }
    assert_eq!(ask("new").await.sets(), "[]");

    // The registry begins to rewrite an existing image and so loses it.
    registry.fail_to_push("front:feature-branch-1", "org/app:again").await;
    registry.fail_to_push("front:feature-branch-2", "org/app:moving").await;
    for tag in ["untouched", "again", "moving", "untouched", "again", "moving"] {
        assert_eq!(ask(tag).await.sets(), sets(&first), "{tag}");
    }
    for tag in ["untouched", "again", "moving"] {
        let found = reqwest::Client::new().get(registry.url(&format!("org/app/manifests/{tag}"))).send().await.unwrap();
        assert_eq!(found.status(), 500, "{tag}");
        refused(&afresh(tag).await, 502, "backend_failed", "500 Internal Server Error");
    }

    registry.is_full(false).await;
    registry.push("front:feature-branch-1", "org/app:again").await;
    registry.push("front:feature-branch-2", "org/app:moving").await;
    registry.push("front:feature-branch-2", "org/app:new").await;
    for (tag, digest) in [("untouched", &first), ("again", &first), ("moving", &second), ("new", &second)] {
        assert_eq!(afresh(tag).await.sets(), sets(digest), "{tag}");
        assert_eq!(registry.inspect(&format!("org/app:{tag}")).await, *digest);
    }
}
