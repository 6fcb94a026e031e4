//! The witness of signatures: every fault of the catalogue on the requests for what is beside an image, while the image itself is there. A
//! signed digest was served before; the next digest has no proof. No answer may have that digest, and none may be empty by mistake.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use appset_gateway::clients::oci::Digest;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::{
    catalogue,
    rendition::{Fault, HELD, JSON, OCI, TIMEOUT, UNKNOWN, Wire},
};
use crate::support::{
    Reply, TestApp, Verdict,
    signing::{BUNDLE, Key},
    upstream::{Request, Step, Upstream},
};

/// How many routes are asked at once.
const AT_ONCE: usize = 16;

/// The registry of one route.
struct Scene {
    name: String,
    upstream: Upstream,
    mode: Arc<AtomicU8>,
    code: &'static str,
}

/// The signed image, and the next one.
const SIGNED: u8 = 0;
const NEXT: u8 = 1;

fn manifest(mode: u8) -> String {
    json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "annotations": {"build": mode.to_string()}})
        .to_string()
}

fn digest(mode: u8) -> Digest {
    Digest::of(manifest(mode).as_bytes())
}

/// The registry without a fault: a tag, and beside the first image a signature under the fallback tag.
fn well(request: &Request, mode: u8, bundle: &str) -> Vec<Step> {
    let layer = Digest::of(bundle.as_bytes());
    let document =
        json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": BUNDLE,
        "layers": [{"mediaType": BUNDLE, "digest": layer.as_str(), "size": bundle.len()}]})
        .to_string();
    let listed = Digest::of(document.as_bytes());
    let target = &*request.target;
    let found = |body: &str, kind: &str| {
        let head = format!("{kind}\r\nDocker-Content-Digest: {}", Digest::of(body.as_bytes()));
        request.answer(200, &head, body)
    };
    if target.ends_with("/manifests/1") {
        return found(&manifest(mode), OCI);
    }
    if target.contains("/referrers/") {
        return request.answer(404, "Content-Type: text/plain", "404 page not found\n");
    }
    if target.ends_with(&format!("/manifests/sha256-{}", &digest(SIGNED).as_str()["sha256:".len()..])) {
        let index =
            json!({"schemaVersion": 2, "manifests": [{"mediaType": "x", "digest": listed.as_str(), "size": 1}]});
        return found(&index.to_string(), "Content-Type: application/vnd.oci.image.index.v1+json");
    }
    if target.ends_with(listed.as_str()) {
        return found(&document, OCI);
    }
    if target.ends_with(layer.as_str()) {
        return request.answer(200, "Content-Type: application/octet-stream", bundle);
    }
    request.answer(404, JSON, UNKNOWN)
}

/// Whether the request is for the image itself.
fn is_image(request: &Request) -> bool {
    request.target.ends_with("/manifests/1")
}

async fn scene(index: usize, fault: &Fault, bundle: Arc<str>) -> Scene {
    let mode = Arc::new(AtomicU8::new(SIGNED));
    let current = Arc::clone(&mode);
    let play = match &fault.digests.does {
        Wire::Plays(play) => Arc::clone(play),
        Wire::Refuses => Arc::new(|_: &Request| vec![Step::Reset]),
    };
    let upstream = Upstream::start_apart(move |request| match current.load(Ordering::SeqCst) {
        NEXT if !is_image(request) => play(request),
        mode => well(request, mode, &bundle),
    })
    .await;
    Scene { name: format!("w{index:02}"), upstream, mode, code: fault.digests.code }
}

async fn ask(app: &TestApp, scenes: &[Scene], parameters: Value) -> Vec<Reply> {
    stream::iter(scenes)
        .map(async |scene| app.ask(&scene.name, parameters.clone()).await)
        .buffered(AT_ONCE)
        .collect()
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_fault_beside_an_image_makes_a_wrong_success() {
    let key = Key::new();
    let folder = tempfile::tempdir().unwrap();
    key.write(&folder.path().join("cosign.pub"));
    let bundle: Arc<str> = key.signature(digest(SIGNED).as_str()).into();
    let faults = catalogue::all();
    let mut scenes = Vec::new();
    // An ailment of the gateway does not concern the witness.
    for (index, fault) in faults.iter().enumerate().filter(|(_, fault)| fault.ailment.is_none()) {
        scenes.push(scene(index, fault, Arc::clone(&bundle)).await);
    }
    assert!(scenes.len() >= 100);
    let route = |scene: &Scene| {
        let images = json!({"app": {"image": format!("{}/org/app:1", scene.upstream.address)}});
        let signature = json!({"any": [{"key": {"file": "cosign.pub"}}]});
        json!({"name": scene.name, "backend": {"digests": {"images": images, "signature": signature}},
            "output": {"app": "{{ app.digest }}", "stale": "{{ stale }}"}, "cache": {"ttl": "60s", "staleIfError": "2h"},
            "lineage": ["branch"], "deadline": if scene.code == TIMEOUT { "2s" } else { "10s" }})
    };
    let routes: Vec<Value> = scenes.iter().map(route).collect();
    let registries: Value = scenes
        .iter()
        .map(|scene| (scene.upstream.address.to_string(), json!({"plainHttp": true, "deniedMeansMissing": true})))
        .collect();
    let text = format!("{}registries: {registries}\nroutes: {}\n", TestApp::auth(), json!(routes));
    let app = TestApp::start_in(folder, &text).await;
    let served = |reply: &Reply| match reply.verdict() {
        Verdict::Parameters(sets) => sets[0]["app"].as_str().unwrap().to_owned(),
        Verdict::ExplicitlyEmpty => "nothing".to_owned(),
        _ => format!("{}", reply.status),
    };
    let (good, next) = (digest(SIGNED).to_string(), digest(NEXT).to_string());
    for reply in ask(&app, &scenes, json!({"branch": "x"})).await {
        assert_eq!(served(&reply), good, "{}", reply.text());
    }
    for scene in &scenes {
        scene.mode.store(NEXT, Ordering::SeqCst);
    }
    // Fresh; stale, while a run renews it; stale, since the source fails; and again, while it rests.
    for minutes in [0, 2, 10, 0] {
        app.clock.advance(std::time::Duration::from_mins(minutes));
        for (scene, reply) in scenes.iter().zip(ask(&app, &scenes, json!({"branch": "x"})).await) {
            assert_eq!(served(&reply), good, "{} after {minutes} min: {}", faults[index(scene)].name, reply.text());
        }
        app.settle().await;
    }
    // A question without an earlier answer: an error, unless the fault is a registry's proof that nothing is there.
    for (scene, reply) in scenes.iter().zip(ask(&app, &scenes, json!({"branch": "y"})).await) {
        let found = served(&reply);
        assert_ne!(found, next, "{}", faults[index(scene)].name);
        let may_be_absent = scene.code == HELD || found.parse::<u16>().is_ok_and(|status| status >= 400);
        assert!(may_be_absent, "{}: {found}: {}", faults[index(scene)].name, reply.text());
    }
    // The last good answer is too old.
    app.clock.advance(std::time::Duration::from_hours(200));
    for (scene, reply) in scenes.iter().zip(ask(&app, &scenes, json!({"branch": "x"})).await) {
        let found = served(&reply);
        // The last build stands in for a proven absence, whatever its age: it is verified.
        let is_right = found.parse::<u16>().is_ok_and(|status| status >= 400) || (scene.code == HELD && found == good);
        assert!(is_right, "{}: {found}: {}", faults[index(scene)].name, reply.text());
    }
}

fn index(scene: &Scene) -> usize {
    scene.name[1..].parse().unwrap()
}
