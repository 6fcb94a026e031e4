//! Events that name the digests that were pushed.

use super::{told::within, *};

/// The number of looks, and of those that found something new.
async fn looks(gateway: &Gateway) -> (u64, u64) {
    let of = async |result: &str| {
        metric_of(gateway, &format!("appset_gateway_hook_looks_total{{result=\"{result}\"}}")).await
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
