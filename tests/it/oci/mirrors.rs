//! A mirror is asked first, but it never decides that something is missing.

use super::*;
use crate::support::{
    proxy::Proxy,
    registry::{PASSWORD, Registry, USER, demo_images},
};

#[tokio::test]
async fn a_tag_that_a_mirror_lacks_is_read_from_the_origin() {
    let (mut mirror, origin) = (Registry::start().await, Registry::with_user().await);
    origin.push("front:feature-branch-1", "org/app:1").await;
    origin.push("front:feature-branch-2", "org/app:2").await;
    mirror.push("front:feature-branch-1", "org/app:1").await;
    let (before_mirror, before) = (Proxy::start(&mirror.host).await, Proxy::start(&origin.host).await);
    let name = before.address.to_string();
    let folder = docker_config(&json!({name.clone(): user(USER, PASSWORD)}));
    let (registries, _) = build(
        folder.path(),
        &json!({
            name.clone(): {"plainHttp": true, "dockerConfig": "docker.json"},
            before_mirror.address.to_string(): {"plainHttp": true, "mirrorOf": name.clone()},
        }),
    );
    let ask = |tag: &str| {
        let reference = format!("{name}/org/app:{tag}");
        let registries = registries.clone();
        async move { look_up(&registries, &reference).await }
    };
    let first = expect_digest(ask("1").await);
    assert_eq!(first.as_str(), origin.inspect("org/app:1").await);
    let contents = registries.contents(&name, "org/app", &first, deadline()).await.unwrap();
    assert_eq!(contents.revision.as_deref(), Some("1".repeat(40).as_str()), "{}", demo_images().display());
    assert!(before.requests().is_empty(), "the origin was asked for what the mirror has");

    let second = expect_digest(ask("2").await);
    assert_eq!(second.as_str(), origin.inspect("org/app:2").await);
    let contents = registries.contents(&name, "org/app", &second, deadline()).await.unwrap();
    assert_eq!(contents.revision.as_deref(), Some("2".repeat(40).as_str()));
    assert_eq!(missing(ask("3").await), Missing::Tag);
    // A mirror holds only what passed through it, so lists never come from a mirror.
    let mut tags = registries.tags(&name, "org/app", deadline()).await.unwrap().unwrap();
    tags.sort();
    assert_eq!(tags, ["1", "2"]);

    mirror.stop().await;
    assert_eq!(expect_digest(ask("1").await), first);
    assert_eq!(missing(ask("3").await), Missing::Tag);
    assert!(before.requests().iter().any(|request| request.header("authorization").is_some()));
    for request in before_mirror.requests() {
        assert_eq!(request.header("authorization"), None, "{}", request.target);
        assert!(!request.target.contains("tags"), "{}", request.target);
    }
}

#[tokio::test]
async fn a_failing_mirror_is_skipped() {
    let origin = Upstream::start(found).await;
    for (status, headers) in
        [(401, "WWW-Authenticate: Basic realm=\"x\""), (403, ""), (429, ""), (500, ""), (200, JSON)]
    {
        let mirror = Upstream::start(move |request| request.answer(status, headers, "")).await;
        let registries = registries(&json!({
            mirror.address.to_string(): {"plainHttp": true, "mirrorOf": "docker.io"},
            "index.docker.io": {"plainHttp": true, "endpoint": origin.address.to_string()},
        }));
        let found = expect_digest(look_up(&registries, "docker.io/nginx:1").await);
        assert_eq!((found, asked(&mirror)[0].as_str()), (manifest_digest(), "HEAD /v2/library/nginx/manifests/1"));
    }
    // A hanging mirror leaves enough time for the origin.
    let mirror = Upstream::start(|_| vec![crate::support::upstream::Step::Hang]).await;
    let registries = registries(&json!({
        mirror.address.to_string(): {"plainHttp": true, "mirrorOf": origin.address.to_string()},
        origin.address.to_string(): {"plainHttp": true},
    }));
    let patience =
        Patience { deadline: Instant::now() + Duration::from_millis(800), max_age: Duration::ZERO, joins: true };
    let reference = Reference::parse(&format!("{}/org/app:1", origin.address)).unwrap();
    assert_eq!(expect_digest(registries.look_up(&reference, patience).await), manifest_digest());
}
