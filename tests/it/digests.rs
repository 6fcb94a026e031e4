//! The `digests` backend: real registries, registries that misbehave, and image layouts. Only a digest
//! that a registry confirms is present, only an image that it denies is absent, everything else is an error.

mod credentials;
mod full_disk;
mod nowhere;
mod signatures;

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use oci::Digest;
use serde_json::{Value, json};

use crate::support::{
    Reply, TestApp,
    registry::{PASSWORD, Registry, USER, demo_images},
    upstream::{Request, Step, Upstream, refused},
};

const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json"}"#;
const OCI: &str = "Content-Type: application/vnd.oci.image.manifest.v1+json";
const JSON: &str = "Content-Type: application/json";
const HTML: &str = "<html><head><title>404 Not Found</title></head><body>nginx</body></html>";
const UNKNOWN: &str = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"Tag":"x"}}]}"#;

/// A configuration with a route `d` that answers the digests of `images` and caches nothing.
fn config(hosts: &[(&str, Value)], images: &Value, more: Value) -> String {
    let mut digests = json!({"images": images});
    let Value::Object(more) = more else { panic!("{more}") };
    digests.as_object_mut().unwrap().extend(more);
    let registries: Value = hosts.iter().map(|(host, config)| ((*host).to_owned(), config.clone())).collect();
    let output: Value = images
        .as_object()
        .unwrap()
        .keys()
        .map(|name| (name.clone(), json!(format!("{{{{ {name}.digest }}}}"))))
        .collect();
    let route = json!({"name": "d", "backend": {"digests": digests}, "output": output, "cache": {"ttl": "0s"},
        "deadline": "1s"});
    format!("{}registries: {registries}\nroutes: {}\n", TestApp::auth(), json!([route]))
}

fn plain() -> Value {
    json!({"plainHttp": true})
}

/// A gateway that asks `host` for the images `front` and `back` of a branch.
async fn front_and_back(host: &str, more: Value) -> TestApp {
    let image = |name: &str| json!({"image": format!("{host}/org/{name}:{{{{ params.branch | tag }}}}")});
    let images = json!({"front": image("front"), "back": image("back")});
    TestApp::start(&config(&[(host, plain())], &images, more)).await
}

/// A gateway that asks the fake `upstream` for `org/app:1`.
async fn app_of(upstream: &Upstream) -> TestApp {
    let host = upstream.address.to_string();
    let images = json!({"app": {"image": format!("{host}/org/app:{{{{ params.tag }}}}")}});
    TestApp::start(&config(&[(&host, plain())], &images, json!({}))).await
}

async fn ask_app(upstream: &Upstream) -> Reply {
    app_of(upstream).await.ask_afresh("d", json!({"tag": "1"})).await
}

async fn branch(app: &TestApp, branch: &str) -> Reply {
    app.ask_afresh("d", json!({"branch": branch})).await
}

#[tokio::test]
async fn a_real_registry_is_read_as_skopeo_reads_it() {
    let mut registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/front:feat-1").await;
    registry.push("back:feature-branch-1", "org/back:feat-1").await;
    registry.push("front:feature-branch-2", "org/front:half").await;
    let app = front_and_back(&registry.host, json!({})).await;
    let (front, back) = (registry.inspect("org/front:feat-1").await, registry.inspect("org/back:feat-1").await);
    assert_ne!(front, back);
    let both = json!([{"front": front, "back": back}]).to_string();
    assert_eq!(branch(&app, "feat/1").await.sets(), both);

    // The answer contains all images or none. A missing repository is absent, like a missing tag.
    assert_eq!(branch(&app, "half").await.sets(), "[]");
    assert_eq!(branch(&app, "never-built").await.sets(), "[]");
    let strict = front_and_back(&registry.host, json!({"onMissing": "error"})).await;
    assert_eq!(branch(&strict, "feat/1").await.sets(), both);
    let message = refused(&branch(&strict, "half").await, 422, "invalid_input", "not built: ");
    assert!(message.contains("org/back:half") && !message.contains("front:half"), "{message}");

    // A moved tag has another digest.
    registry.push("front:feature-branch-2", "org/front:feat-1").await;
    let moved = json!([{"front": registry.inspect("org/front:half").await, "back": back}]).to_string();
    assert_eq!(branch(&app, "feat/1").await.sets(), moved);

    registry.stop().await;
    for name in ["feat/1", "never-built"] {
        let message = refused(&branch(&app, name).await, 502, "backend_failed", &registry.host);
        assert!(message.contains("image front: ") && message.contains("image back: "), "{message}");
    }
    registry.restart().await;
    assert_eq!(branch(&app, "feat/1").await.sets(), moved);
    assert_eq!(branch(&app, "never-built").await.sets(), "[]");
}

#[tokio::test]
async fn one_failing_registry_fails_the_whole_answer() {
    let registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/front:1").await;
    let broken = Upstream::start(|request| request.answer(503, "", "")).await;
    let other = broken.address.to_string();
    let hosts = [(&*registry.host, plain()), (&*other, plain())];
    let images = json!({
        "front": {"image": format!("{}/org/front:{{{{ params.branch }}}}", registry.host)},
        "back": {"image": format!("{other}/org/back:{{{{ params.branch }}}}")},
    });
    let app = TestApp::start(&config(&hosts, &images, json!({}))).await;
    for name in ["1", "missing"] {
        let message = refused(&branch(&app, name).await, 502, "backend_failed", "image back: ");
        assert!(!message.contains("image front"), "{message}");
    }
}

fn digest(content: &str) -> Digest {
    Digest::of(content.as_bytes())
}

/// Each case: the response to `HEAD`, the response to `GET`, and the expected outcome.
#[tokio::test]
async fn only_a_registrys_own_response_is_proof() {
    type Said = (u16, &'static str, &'static str);
    let api = "Docker-Distribution-Api-Version: registry/2.0";
    let found = format!("{OCI}\r\nDocker-Content-Digest: {}", digest(MANIFEST)).leak();
    let other = format!("{OCI}\r\nDocker-Content-Digest: {}", digest("other")).leak();
    let present = json!([{"app": digest(MANIFEST).as_str()}]).to_string();
    let silent: Said = (200, OCI, "");
    let gone: Said = (404, "", "");
    let never: Said = (500, "", "never asked");
    for (name, head, get, expected) in [
        ("a digest", (200, &*found, ""), never, Ok(&*present)),
        ("no HEAD", (405, "", ""), (200, &*found, MANIFEST), Ok(&*present)),
        ("no digest header", silent, (200, OCI, MANIFEST), Ok(&*present)),
        ("no 404 to a GET", gone, (200, &*found, MANIFEST), Ok(&*present)),
        ("a 404 by a registry", gone, (404, JSON, UNKNOWN), Ok("[]")),
        ("no repository", gone, (404, JSON, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#), Ok("[]")),
        ("Harbor", gone, (404, JSON, r#"{"errors":[{"code":"NOT_FOUND"}]}"#), Ok("[]")),
        ("gone in between", silent, (404, JSON, UNKNOWN), Ok("[]")),
        // A 404 that proves nothing.
        (
            "nginx",
            (404, "Content-Type: text/html", HTML),
            (404, "Content-Type: text/html", HTML),
            Err("proves nothing"),
        ),
        ("no body", gone, gone, Err("proves nothing")),
        ("the header alone", (404, api, ""), (404, api, HTML), Err("proves nothing")),
        ("denied", (404, api, ""), (404, api, r#"{"errors":[{"code":"DENIED"}]}"#), Err("proves nothing")),
        (
            "two errors",
            gone,
            (404, JSON, r#"{"errors":[{"code":"MANIFEST_UNKNOWN"},{"code":"TOOMANYREQUESTS"}]}"#),
            Err("proves nothing"),
        ),
        ("another error", gone, (404, JSON, r#"{"errors":[{"code":"DENIED"}]}"#), Err("proves nothing")),
        ("no error", gone, (404, JSON, r#"{"errors":[]}"#), Err("proves nothing")),
        ("JSON", gone, (404, JSON, "{}"), Err("proves nothing")),
        ("410", (410, api, ""), never, Err("410")),
        // A 200 that proves nothing.
        ("a sign-in page", (200, "Content-Type: text/html", ""), (200, "Content-Type: text/html", HTML), Err("")),
        ("an empty GET", silent, (200, OCI, ""), Err("")),
        ("no manifest", silent, (200, JSON, "{}"), Err("")),
        ("half a manifest", silent, (200, OCI, &MANIFEST[..20]), Err("")),
        ("another manifest", silent, (200, &*other, MANIFEST), Err("")),
        ("204", (204, "", ""), never, Err("204")),
        ("a redirect", (307, "Location: /v2/elsewhere", ""), never, Err("307")),
        ("a digest of nothing", (200, "Docker-Content-Digest:", ""), never, Err("Docker-Content-Digest")),
        ("a short digest", (200, "Docker-Content-Digest: sha256:abc", ""), never, Err("Docker-Content-Digest")),
        (
            "another algorithm",
            (200, "Docker-Content-Digest: md5:d41d8cd98f00b204e9800998ecf8427e", ""),
            never,
            Err("Docker-Content-Digest"),
        ),
        ("an upper-case digest", (200, found.to_uppercase().leak(), ""), never, Err("Docker-Content-Digest")),
        ("a tail", (200, format!("{found}0").leak(), ""), never, Err("Docker-Content-Digest")),
    ] {
        let (head, get): (Said, Said) = (head, get);
        let registry = Upstream::start(move |request| {
            let (status, headers, body) = if request.method == "HEAD" { head } else { get };
            request.answer(status, headers, body)
        })
        .await;
        let reply = ask_app(&registry).await;
        match expected {
            Ok(sets) => assert_eq!((reply.status, reply.sets()), (200, sets.to_owned()), "{name}"),
            Err(says) => {
                assert_eq!(reply.status, 502, "{name}: {}", reply.text());
                refused(&reply, 502, "backend_output_invalid", says);
            }
        }
    }
}

#[tokio::test]
async fn a_registry_in_trouble_is_unknown() {
    let large = "x".repeat(5 * 1024 * 1024);
    let answers =
        |status: u16, headers: &'static str| Upstream::start(move |request| request.answer(status, headers, ""));
    for (status, headers, expected, says) in [
        (500, "", (502, "backend_failed"), "500"),
        (503, "Docker-Distribution-Api-Version: registry/2.0", (502, "backend_failed"), "503"),
        (408, "", (502, "backend_failed"), "408"),
        (403, "", (502, "backend_failed"), "access denied (403"),
        (401, "", (502, "backend_failed"), "without a challenge"),
        (400, "", (502, "backend_output_invalid"), "400"),
        (405, "", (502, "backend_output_invalid"), "405"),
        (429, "Retry-After: 9", (429, "throttled"), "429"),
    ] {
        let registry = answers(status, headers).await;
        let reply = ask_app(&registry).await;
        let message = refused(&reply, expected.0, expected.1, says);
        assert!(message.contains(&format!("image app: registry {}", registry.address)), "{message}");
        assert_eq!(reply.header("retry-after"), (status == 429).then_some("9"));
    }
    let too_large = Upstream::start(move |request| match &*request.method {
        "HEAD" => request.answer(200, OCI, ""),
        _ => request.answer(200, OCI, &large),
    })
    .await;
    refused(&ask_app(&too_large).await, 502, "backend_output_invalid", "larger than");
    let reset = Upstream::start(|_| vec![Step::Reset]).await;
    refused(&ask_app(&reset).await, 502, "backend_failed", "image app: registry 127.0.0.1:");
    // The condition names the registry that hangs.
    for slow in [
        vec![Step::Hang],
        vec![Step::Drip(format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(100)).into(), Duration::from_millis(50))],
    ] {
        let slow = Upstream::start(move |_| slow.clone()).await;
        refused(&ask_app(&slow).await, 504, "backend_timeout", &slow.address.to_string());
    }
}

/// A gateway that reads `images`, a copy of the demonstration's layout.
async fn layout() -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    copy(&demo_images(), &folder.path().join("images"));
    let images = json!({
        "front": {"image": "oci:images:front:{{ params.branch }}"},
        "back": {"image": "oci:images:back:{{ params.branch }}"},
    });
    TestApp::start_in(folder, &config(&[], &images, json!({}))).await
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() { copy(&entry.path(), &to) } else { _ = std::fs::copy(entry.path(), &to).unwrap() }
    }
}

#[tokio::test]
async fn the_images_of_a_layout_are_found_by_tag() {
    let app = layout().await;
    let index: Value = serde_json::from_slice(&std::fs::read(demo_images().join("index.json")).unwrap()).unwrap();
    let digest = |name: &str| {
        let is_named = |item: &&Value| item["annotations"]["org.opencontainers.image.ref.name"] == name;
        index["manifests"].as_array().unwrap().iter().find(is_named).unwrap()["digest"].clone()
    };
    let both = json!([{"front": digest("front:feature-branch-1"), "back": digest("back:feature-branch-1")}]);
    assert_eq!(branch(&app, "feature-branch-1").await.sets(), both.to_string());
    for name in ["", "../images:front:feature-branch-1", "\u{0}", "🚀", "a\r\nb", "%2e"] {
        refused(&branch(&app, name).await, 422, "invalid_input", "cannot be in an image reference");
    }
    for name in ["never-built", "../../x"] {
        assert_eq!(branch(&app, name).await.sets(), "[]", "{name}");
    }
    assert_eq!(branch(&app, &"x".repeat(10_000)).await.sets(), "[]");
}

#[tokio::test]
async fn a_damaged_layout_is_unknown() {
    let digest = "764e326368aeb62e3f85b1a40246b2ea58ca65a063ebf93f12a5c83f920f090f";
    let blob = format!("blobs/sha256/{digest}");
    let named = |digest: &str| json!({"digest": digest, "annotations": {"org.opencontainers.image.ref.name": "front:feature-branch-1"}});
    let twice =
        json!({"manifests": [named(&format!("sha256:{digest}")), named(&format!("sha256:{digest}"))]}).to_string();
    let outside = json!({"manifests": [named("sha256:../../../oci-layout")]}).to_string();
    for (file, content) in [
        ("index.json", Some("")),
        ("index.json", Some("{\"schemaVersion\":2,\"manifests\":[")),
        ("index.json", Some("null")),
        ("index.json", Some("{}")),
        ("index.json", Some("[]")),
        ("index.json", Some("[[]]")),
        ("index.json", Some("{\"schemaVersion\":2}")),
        ("index.json", Some("{\"schemaVersion\":2,\"manifests\":null}")),
        ("index.json", Some("{\"schemaVersion\":2,\"manifests\":[{}]}")),
        ("index.json", Some(&twice)),
        ("index.json", Some(&outside)),
        ("index.json", None),
        ("oci-layout", None),
        (&blob, Some("{}")),
        (&blob, Some("")),
        (&blob, None),
    ] {
        let app = layout().await;
        let path = app.folder.path().join("images").join(file);
        match content {
            Some(content) => std::fs::write(&path, content).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        let reply = branch(&app, "feature-branch-1").await;
        assert_eq!(reply.status, 502, "{file} {content:?}: {}", reply.text());
        refused(&reply, 502, &reply.code(), "image front: ");
    }
    let app = layout().await;
    std::fs::remove_dir_all(app.folder.path().join("images")).unwrap();
    refused(&branch(&app, "feature-branch-1").await, 502, "backend_failed", "is not an OCI image layout");
    refused(&branch(&app, "never-built").await, 502, "backend_failed", "is not an OCI image layout");
}
