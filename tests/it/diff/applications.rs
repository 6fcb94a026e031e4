//! The names of the Applications that Argo CD would delete, from a (fake) API server.

use super::*;
use crate::support::apiserver::ApiServer;

const SERVICE_TOKEN: &str = "the token of the service account";

async fn scene(api: &ApiServer) -> Scene {
    let refresh = json!({"namespaces": ["argocd"], "configMaps": ["gateway"], "api": api.url,
        "token": {"file": "service-token"}, "ca": "cluster.crt"});
    let more = format!("argocd: {{ refresh: {refresh} }}\n");
    let files = [("service-token", SERVICE_TOKEN), ("cluster.crt", &*api.ca)];
    let scene = Scene::with(|url| json!([http("r", url, "old")]), &more, &files).await;
    scene.next(|url| json!([http("r", url, "few")]));
    scene
}

/// An ApplicationSet with one plugin generator.
fn spec(template: &str) -> Value {
    json!({
        "goTemplate": true,
        "generators": [{"plugin": {"configMapRef": {"name": "gateway"}, "input": {"parameters": {}}}}],
        "template": {"metadata": {"name": template}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_applications_that_would_be_deleted_are_named() {
    let api = ApiServer::start(SERVICE_TOKEN).await;
    api.add_with("argocd", "one", spec("app-{{ .name }}"), &["app-a", "app-b", "app-c"]);
    let scene = scene(&api).await;
    scene.ask("/r", "one", json!({})).await;
    scene.diff(&[]).says(
        1,
        &[
            "Argo CD would delete these Applications in the namespace argocd:",
            "certainly  app-b",
            "certainly  app-c",
            "perhaps    app-d",
            "note       not before the guard accepts the answer",
        ],
    );
    let (_, report) = scene.diff_json(&["--save", "saved.json"]);
    assert_eq!(report["applicationSets"][0]["deletes"][0]["certain"], json!(["app-b", "app-c"]));
    // A file tells as much as the gateway did, without access to the API.
    scene.diff_against("saved.json", &[]).says(1, &["certainly  app-b"]);
    // A value of a set that stays may be part of the name.
    api.remove("argocd", "one");
    api.add_with("argocd", "one", spec("{{.name}}-{{.tag}}"), &["a-1", "b-1"]);
    scene.next(|url| json!([http("r", url, "new")]));
    scene.diff(&[]).says(1, &["certainly  a-1", "perhaps    d-1"]);
    assert!(api.refreshed().is_empty(), "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exists_is_named_if_the_answer_of_before_is_not_known() {
    let api = ApiServer::start(SERVICE_TOKEN).await;
    api.add_with("argocd", "one", spec("app-{{ .name }}"), &["app-a", "app-x"]);
    let scene = scene(&api).await;
    scene.is_failing.store(true, Ordering::SeqCst);
    assert_ne!(scene.ask("/r", "one", json!({})).await.status, 200);
    scene.is_failing.store(false, Ordering::SeqCst);
    let done = scene.diff(&[]);
    done.says(1, &["perhaps    app-x", "is not known, so its status was read"]);
    assert!(!done.out.contains("app-a"), "{}", done.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_certain_is_said() {
    let api = ApiServer::start(SERVICE_TOKEN).await;
    // The generator of the fake's usual ApplicationSet is a matrix.
    api.add("argocd", "one", "gateway");
    let scene = scene(&api).await;
    scene.ask("/r", "one", json!({})).await;
    scene.diff(&[]).says(1, &["the names are not known, because its generators (matrix) add other parameters"]);
    let told = |spec: Value, lines: &[&str]| {
        api.remove("argocd", "one");
        api.add_with("argocd", "one", spec, &["app-b"]);
        scene.diff(&[]).says(1, lines);
    };
    told(spec("app-{{ .name | lower }}"), &["the names do not follow from the template `app-{{ .name | lower }}`"]);
    let mut kept = spec("app-{{ .name }}");
    kept["syncPolicy"] = json!({"applicationsSync": "create-update", "preserveResourcesOnDeletion": true});
    told(
        kept,
        &[
            "certainly  app-b",
            "its `applicationsSync: create-update` forbids it to delete",
            "`preserveResourcesOnDeletion`",
        ],
    );
    let mut patched = spec("app-{{ .name }}");
    patched["templatePatch"] = json!("metadata: { name: other }");
    told(patched, &["perhaps    app-b", "its `templatePatch` may give other names"]);
    // Without access, only the names are missing.
    api.fail("GET", "applicationsets", &[(403, None)]);
    scene.diff(&[]).says(
        1,
        &[
            "which Applications would be deleted is not known: ",
            "needs the right to list applicationsets",
            "- removed  b",
        ],
    );
}
