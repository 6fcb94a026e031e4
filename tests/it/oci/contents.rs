//! The contents of a digest, from real registries and from registries that redirect.

use oci::{Contents, Platform};

use super::*;
use crate::support::{
    images::{self, CONFIG},
    proxy::Proxy,
    registry::Registry,
};

const FULL: &str = "0123456789abcdef0123456789abcdef01234567";

async fn read(registries: &Registries, host: impl ToString, digest: &Digest) -> Result<Arc<Contents>, BackendError> {
    registries.contents(&host.to_string(), "org/app", digest, deadline()).await
}

fn platforms(contents: &Contents) -> Vec<String> {
    contents.platforms.iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn contents_of_a_real_registry_are_read() {
    let (registry, folder) = (Registry::start().await, tempfile::tempdir().unwrap());
    let folder = folder.path();
    images::create(folder);
    let (amd, arm) = (
        json!({"os": "linux", "architecture": "amd64"}),
        json!({"os": "linux", "architecture": "arm", "variant": "v7"}),
    );
    let revision = |by: &str| json!({"org.opencontainers.image.revision": format!("{by} {FULL}")});
    let image =
        |platform: &Value, labels: &Value, annotations: &Value| images::image(folder, platform, labels, annotations);
    let labelled = image(&amd, &revision("label"), &json!({}));
    let annotated = image(&amd, &revision("label"), &revision("manifest"));
    let other = image(&arm, &revision("arm"), &json!({}));
    let mut attestation = image(&json!({"os": "unknown", "architecture": "unknown"}), &json!({}), &json!({}));
    attestation["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
    let all = |first: &Value| [attestation.clone(), first.clone(), other.clone()];
    let index = |first: &Value, annotations| images::index(folder, &all(first), annotations);
    let mut messages = revision("index");
    messages["org.opencontainers.image.created"] = json!("2026-02-02T00:00:00Z");
    messages["org.opencontainers.image.version"] = json!("1.2.3");
    let cases = [
        ("label", labelled.clone(), "label", vec!["linux/amd64"]),
        ("manifest", annotated.clone(), "manifest", vec!["linux/amd64"]),
        ("index-of-labels", index(&labelled, &json!({})), "label", vec!["linux/amd64", "linux/arm/v7"]),
        ("index-of-manifests", index(&annotated, &json!({})), "manifest", vec!["linux/amd64", "linux/arm/v7"]),
        ("index", index(&annotated, &messages), "index", vec!["linux/amd64", "linux/arm/v7"]),
    ];
    let proxy = Proxy::start(&registry.host).await;
    let registries = registries(&plain(&proxy.address));
    for (name, descriptor, by, expected) in cases {
        let digest = images::name(folder, name, descriptor);
        registry.push_all(folder, name, &format!("org/app:{name}")).await;
        assert_eq!(expect_digest(look_up(&registries, &format!("{}/org/app:{name}", proxy.address)).await), digest);
        let contents = read(&registries, proxy.address, &digest).await.unwrap();
        assert_eq!(contents.revision, Some(format!("{by} {FULL}")), "{name}");
        assert_eq!(platforms(&contents), expected, "{name}");
        let created = if name == "index" { "2026-02-02T00:00:00Z" } else { "2026-01-02T03:04:05Z" };
        assert_eq!(contents.created.as_deref(), Some(created), "{name}");
        assert_eq!(contents.version.as_deref(), (name == "index").then_some("1.2.3"), "{name}");
        if name.starts_with("index") {
            let arm: Platform = "linux/arm".parse().unwrap();
            let of_arm = contents.images.iter().find(|(platform, _)| platform.suits(&arm)).unwrap();
            assert_eq!(of_arm.1.as_str(), other["digest"], "{name}");
        }
        // A digest never changes, so it is requested once.
        let before = proxy.requests().len();
        read(&registries, proxy.address, &digest).await.unwrap();
        assert_eq!(proxy.requests().len(), before, "{name}");
    }
    // A tag that moves does not change what its old digest contains.
    let before_move = look_up(&registries, &format!("{}/org/app:label", proxy.address)).await;
    let afresh = super::registries(&plain(&registry.host));
    registry.push_all(folder, "manifest", "org/app:label").await;
    let contents = read(&afresh, &registry.host, &expect_digest(before_move)).await.unwrap();
    assert_eq!(contents.revision, Some(format!("label {FULL}")));
    let moved = expect_digest(look_up(&afresh, &format!("{}/org/app:label", registry.host)).await);
    assert_eq!(moved.as_str(), annotated["digest"]);
}

/// An image whose configuration is `config`: its digest, its manifest, and the configuration's digest.
fn image_of(config: &str) -> (Digest, String, Digest) {
    let config = Digest::of(config.as_bytes());
    let manifest = json!({"schemaVersion": 2, "config": {"mediaType": CONFIG, "digest": config.as_str()}}).to_string();
    (Digest::of(manifest.as_bytes()), manifest, config)
}

const LABELLED: &str = r#"{"os":"linux","architecture":"amd64","created":"2026-01-01T00:00:00Z",
    "config":{"Labels":{"org.opencontainers.image.revision":"abc"}}}"#;

/// A registry that demands a password and keeps its blobs at `location`.
async fn with_blobs_at(location: String) -> Upstream {
    let (_, manifest, _) = image_of(LABELLED);
    Upstream::start(move |request| match request.header("authorization") {
        None => request.answer(401, "WWW-Authenticate: Basic realm=\"x\"", ""),
        Some(_) if request.target.contains("/blobs/") => request.answer(307, &format!("Location: {location}"), ""),
        Some(_) => request.answer(200, OCI, &manifest),
    })
    .await
}

#[tokio::test]
async fn a_blob_redirect_is_followed_without_the_credential() {
    let digest = image_of(LABELLED).0;
    let store = Upstream::start(|request| request.answer(200, "", LABELLED)).await;
    let registry = with_blobs_at(format!("http://{}/store?signed=1", store.address)).await;
    let folder = docker_config(&json!({registry.address.to_string(): user("ci", "hunter2")}));
    let entry = json!({"plainHttp": true, "dockerConfig": "docker.json"});
    let (registries, _) = build(folder.path(), &json!({registry.address.to_string(): entry}));
    let contents = read(&registries, registry.address, &digest).await.unwrap();
    assert_eq!(contents.revision.as_deref(), Some("abc"));
    assert_eq!(platforms(&contents), ["linux/amd64"]);
    assert_eq!(asked(&store), ["GET /store?signed=1"]);
    assert_eq!(store.requests()[0].header("authorization"), None);
}

#[tokio::test]
async fn a_blob_redirect_to_a_forbidden_url_is_refused() {
    let digest = image_of(LABELLED).0;
    let store = Upstream::start_apart(|request| request.answer(200, "", LABELLED)).await;
    for (location, says) in [
        (format!("http://{}/store", store.address), "inner address"),
        ("http://169.254.169.254/latest/meta-data".to_owned(), "inner address"),
        ("ftp://127.0.0.1/store".to_owned(), "not https"),
        ("http://".to_owned(), "to no URL"),
    ] {
        let registry = with_blobs_at(location).await;
        let folder = docker_config(&json!({registry.address.to_string(): user("ci", "hunter2")}));
        let entry = json!({"plainHttp": true, "dockerConfig": "docker.json"});
        let (registries, _) = build(folder.path(), &json!({registry.address.to_string(): entry}));
        refused(read(&registries, registry.address, &digest).await, ErrorKind::InvalidOutput, says);
    }
    assert!(store.requests().is_empty());
}

#[tokio::test]
async fn endless_blob_redirects_are_refused() {
    let (digest, manifest, _) = image_of(LABELLED);
    for (hops, is_found) in [(3, true), (4, false)] {
        let manifest = manifest.clone();
        let registry = Upstream::start(move |request| {
            let hop = match request.target.strip_prefix("/hop/") {
                Some(hop) => hop.parse().unwrap(),
                None if request.target.contains("/blobs/") => 0,
                None => return request.answer(200, OCI, &manifest),
            };
            let further = || request.answer(307, &format!("Location: /hop/{}", hop + 1), "");
            if hop == hops { request.answer(200, "", LABELLED) } else { further() }
        })
        .await;
        let found = read(&registries(&plain(&registry.address)), registry.address, &digest).await;
        if is_found {
            assert_eq!(found.unwrap().revision.as_deref(), Some("abc"));
        } else {
            refused(found, ErrorKind::InvalidOutput, "307");
        }
        assert_eq!(registry.requests().len(), 2 + 3, "the manifest, the blob and three places");
    }
}

#[tokio::test]
async fn content_that_does_not_match_its_digest_is_refused() {
    let (digest, manifest, _) = image_of(LABELLED);
    let right = manifest.clone();
    let registry = Upstream::start(move |request| {
        let is_blob = request.target.contains("/blobs/");
        request.answer(200, OCI, if is_blob { "{}" } else { &*right })
    })
    .await;
    let before_move = registries(&plain(&registry.address));
    refused(read(&before_move, registry.address, &digest).await, ErrorKind::InvalidOutput, "has the digest");
    let registry = Upstream::start(move |request| request.answer(200, OCI, format!("{manifest} "))).await;
    let before_move = registries(&plain(&registry.address));
    refused(read(&before_move, registry.address, &digest).await, ErrorKind::InvalidOutput, "has the digest");
    let registry = Upstream::start(|request| request.answer(404, JSON, "{}")).await;
    let before_move = registries(&plain(&registry.address));
    let message = refused(read(&before_move, registry.address, &digest).await, ErrorKind::InvalidOutput, "404");
    assert!(message.contains(digest.as_str()), "{message}");
}
