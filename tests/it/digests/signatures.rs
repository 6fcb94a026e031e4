//! Signatures by the real cosign in the real docker-registry, which has no referrers API: the image and the documents of
//! `tests/signatures/make`, as cosign pushed them.

mod check;
mod keyless;

use std::{path::Path, time::Duration};

use oci::Digest;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::keyless::keyless;
use super::{config, plain};
use crate::support::{Reply, TestApp, registry::Registry, upstream::refused};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The image's configuration and the begin of its manifest, byte by byte as the script wrote them.
const CONFIG: &str = r#"{"architecture": "amd64", "os": "linux", "config": {"Labels": {"note": "keys"}}, "rootfs": {"type": "layers", "diff_ids": []}}"#;

/// What cosign made with the key called `key`.
fn made(key: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/signatures/keys.json");
    let all: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    all["keys"][key].clone()
}

/// A registry with the image that cosign signed, under the tag `1`; and the image's digest.
async fn registry() -> (Registry, String) {
    let registry = Registry::start().await;
    let config = registry.put_blob("app", CONFIG).await;
    let manifest = format!(
        "{{\"schemaVersion\": 2, \"mediaType\": \"{MANIFEST}\", \"config\": {{\"mediaType\": \
         \"application/vnd.oci.image.config.v1+json\", \"digest\": \"{config}\", \"size\": {}}}, \"layers\": []}}",
        CONFIG.len()
    );
    let digest = registry.put_manifest("app", &["1"], MANIFEST, &manifest).await;
    assert!(digest.contains("76788d8935fb0002"), "not the image that cosign signed: {digest}");
    (registry, digest)
}

/// Puts bundles beside the image, as cosign 3 does: a document for each, and the fallback tag.
async fn attach(registry: &Registry, digest: &str, bundles: &[Value]) {
    let empty = registry.put_blob("app", "{}").await;
    let mut listed = Vec::new();
    for bundle in bundles {
        let bundle = bundle.to_string();
        let layer = registry.put_blob("app", &bundle).await;
        let document = json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": empty, "size": 2},
            "layers": [{"mediaType": BUNDLE, "digest": layer, "size": bundle.len()}],
            "subject": {"mediaType": MANIFEST, "digest": digest, "size": 1}})
        .to_string();
        let name = Digest::of(document.as_bytes()).to_string();
        registry.put_manifest("app", &[&name], MANIFEST, &document).await;
        listed.push(json!({"mediaType": MANIFEST, "digest": name, "size": document.len()}));
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).to_string();
    registry.put_manifest("app", &[&digest.replace(':', "-")], INDEX, &index).await;
}

fn folder(key: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("cosign.pub"), made(key)["pem"].as_str().unwrap()).unwrap();
    folder
}

async fn start(registry: &Registry, key: &str, more: Value) -> TestApp {
    let images = json!({"app": {"image": format!("{}/app:1", registry.host)}});
    TestApp::start_in(folder(key), &config(&[(&registry.host, plain())], &images, more)).await
}

async fn ask(app: &TestApp, parameters: Value) -> Reply {
    app.ask("d", parameters).await
}

fn found(reply: &Reply) -> usize {
    serde_json::from_str::<Value>(&reply.sets()).unwrap().as_array().unwrap().len()
}

/// Absent at first, by the 404 of the API and the registry's words about the tag; then signed by each kind of key.
#[tokio::test]
async fn signatures_of_cosign_are_found_and_verified() {
    let (registry, digest) = registry().await;
    let demanded = json!({"signature": {"any": [{"key": {"file": "cosign.pub"}}]}});
    for key in ["p256", "p384", "rsa"] {
        let app = start(&registry, key, demanded.clone()).await;
        assert_eq!(found(&ask(&app, json!({})).await), 0, "{key}");
    }
    let all: Vec<Value> = ["p256", "p384", "rsa"].map(|key| made(key)["sign"].clone()).into();
    attach(&registry, &digest, &all).await;
    for key in ["p256", "p384", "rsa"] {
        let app = start(&registry, key, demanded.clone()).await;
        let reply = ask(&app, json!({})).await;
        assert!(found(&reply) == 1 && reply.text().contains(&digest), "{key}: {}", reply.text());
    }
    // Provenance is demanded, and there are only signatures.
    let commit = "1".repeat(40);
    let provenance = json!({"repository": "https://github.com/org/repo", "commit": "{{ params.sha }}"});
    let mut demanded = demanded;
    demanded["provenance"] = provenance;
    let app = start(&registry, "p256", demanded.clone()).await;
    assert_eq!(found(&ask(&app, json!({"sha": commit})).await), 0);
    attach(&registry, &digest, &[made("p256")["scan"].clone(), made("p256")["provenance"].clone()]).await;
    assert_eq!(found(&ask(&app, json!({"sha": commit})).await), 1);
    assert_eq!(found(&ask(&app, json!({"sha": "2".repeat(40)})).await), 0, "another commit");
}

/// A list under another key than before: the tag is not left out, and the list is an error, until cosign signed by that key too.
#[tokio::test]
async fn a_list_under_another_key_of_cosign() {
    let (registry, digest) = registry().await;
    attach(&registry, &digest, &[made("p256")["sign"].clone()]).await;
    let digests = json!({"list": {"repositories": [format!("{}/app", registry.host)]},
        "signature": {"any": [{"key": {"file": "cosign.pub"}}]}});
    // The guard accepts every answer.
    let guard = json!({"onEmpty": "allow", "maxShrink": "100%"});
    let routes = json!([{"name": "d", "backend": {"digests": digests}, "cache": {"ttl": "0s"}, "guard": guard}]);
    let registries = json!({&*registry.host: plain()});
    let text = format!("{}registries: {registries}\nroutes: {routes}\n", TestApp::auth());
    let app = TestApp::start_in(folder("p256"), &text).await;
    assert_eq!(found(&ask(&app, json!({})).await), 1);
    std::fs::write(app.folder.path().join("cosign.pub"), made("p384")["pem"].as_str().unwrap()).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for _ in 0..2 {
        refused(&ask(&app, json!({})).await, 502, "backend_failed", "is no longer signed as the configuration demands");
        app.clock.advance(Duration::from_mins(10));
    }
    attach(&registry, &digest, &[made("p256")["sign"].clone(), made("p384")["sign"].clone()]).await;
    assert_eq!(found(&ask(&app, json!({})).await), 1);
}

/// Signatures of cosign before version 3, in a tag of their own.
#[tokio::test]
async fn older_signatures_of_cosign_are_found_and_verified() {
    let (registry, digest) = registry().await;
    let empty = registry.put_blob("app", "{}").await;
    let mut layers = Vec::new();
    for key in ["p384", "rsa", "p256"] {
        let legacy = &made(key)["legacy"];
        let payload = legacy["payload"].as_str().unwrap();
        let layer = registry.put_blob("app", payload).await;
        assert_eq!(layer, legacy["layerDigest"].as_str().unwrap());
        layers.push(json!({"mediaType": "application/vnd.dev.cosign.simplesigning.v1+json", "digest": layer, "size": payload.len(),
            "annotations": {"dev.cosignproject.cosign/signature": legacy["signature"]}}));
    }
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "layers": layers,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": empty, "size": 2}})
    .to_string();
    registry.put_manifest("app", &[&format!("{}.sig", digest.replace(':', "-"))], MANIFEST, &manifest).await;
    for (formats, expected) in [(json!(["bundle"]), 0), (json!(["legacy"]), 1), (json!(["bundle", "legacy"]), 1)] {
        let demanded = json!({"signature": {"any": [{"key": {"file": "cosign.pub"}}], "formats": formats}});
        let app = start(&registry, "p256", demanded).await;
        assert_eq!(found(&ask(&app, json!({})).await), expected, "{formats}");
    }
}
