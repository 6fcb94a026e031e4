//! Signatures with certificates, of an own authority, through the whole gateway: the trusted root is renewed while it runs.

use std::time::Duration;

use super::*;

const ISSUER: &str = "https://token.actions.githubusercontent.com";
const IDENTITY: &str = "https://github.com/org/repo/.github/workflows/build.yml@refs/heads/*";

/// The image, the root and the bundles of `tests/signatures/make`.
pub(super) fn keyless() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/signatures/keyless.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Replaces the trusted root by a rename, and waits until the gateway has looked at it.
async fn renew(app: &TestApp, root: &Value) {
    let next = app.folder.path().join("root.next");
    std::fs::write(&next, root.to_string()).unwrap();
    std::fs::rename(next, app.folder.path().join("root.json")).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

/// A root that lacks the authority is unknown, so that nothing is served and nothing is absent. Once it has the authority, the image is
/// served with the proven commit, without a restart; and no longer once it is taken away again.
#[tokio::test]
async fn a_trusted_root_is_renewed_while_the_gateway_runs() {
    let (registry, made) = (Registry::start().await, keyless());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    registry.put_blob("app", &text(&made["image"]["config"])).await;
    let digest = registry.put_manifest("app", &["1"], MANIFEST, &text(&made["image"]["manifest"])).await;
    assert_eq!(digest, format!("sha256:{}", text(&made["digest"])), "not the image that was signed");
    let bundles: Vec<Value> = ["email", "good"].map(|name| made["bundles"][name].clone()).into();
    attach(&registry, &digest, &bundles).await;

    let mut outdated = made["trustedRoot"].clone();
    outdated["certificateAuthorities"][0]["certChain"] = outdated["timestampAuthorities"][0]["certChain"].clone();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("root.json"), outdated.to_string()).unwrap();
    let images = json!({"app": {"image": format!("{}/app:1", registry.host)}});
    let keyless = json!({"issuer": ISSUER, "identity": IDENTITY, "trustedRoot": "root.json", "transparencyLog": false});
    let more = json!({
        "signature": {"any": [{"keyless": keyless}]},
        "provenance": {"repository": "https://github.com/org/repo", "workflow": ".github/workflows/build.yml",
            "commit": "{{ params.sha }}", "events": ["push"]},
    });
    let app = TestApp::start_in(folder, &config(&[(&registry.host, plain())], &images, more)).await;
    let commit = text(&made["commit"]);
    let ask = async || ask(&app, json!({"sha": commit})).await;
    let later = || app.clock.advance(Duration::from_mins(7));

    let reply = ask().await;
    assert!(reply.status == 502 && reply.text().contains("does not have the authority"), "{}", reply.text());
    renew(&app, &made["trustedRoot"]).await;
    later();
    let reply = ask().await;
    assert!(found(&reply) == 1 && reply.text().contains(&digest), "{}", reply.text());
    let reply = super::ask(&app, json!({"sha": "2".repeat(40)})).await;
    assert_eq!(found(&reply), 0, "another commit: {}", reply.text());
    renew(&app, &outdated).await;
    for _ in 0..2 {
        let reply = ask().await;
        assert!(reply.status == 502 && reply.text().contains("does not have the authority"), "{}", reply.text());
        later();
    }
    // The root comes back.
    renew(&app, &made["trustedRoot"]).await;
    assert_eq!(found(&ask().await), 1);
}
