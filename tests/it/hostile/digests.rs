//! Hostile names in the requests of `digests`: gates, tag lists, revisions, image layouts.

use backend::digests::gate::{CI_SYSTEMS, CiSystem};
use serde_json::{Value, json};
use url::Url;

use super::{NUL, values::values};
use crate::support::{
    Reply, TestApp,
    registry::demo_images,
    upstream::{Request, Upstream, refused},
};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// An upstream that answers 404 to everything, as a forge and as a registry.
async fn empty() -> Upstream {
    let words = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    Upstream::start(move |request| request.answer(404, "Content-Type: application/json", words)).await
}

/// A gateway whose route `r` has this backend of the kind `digests`, and asks `upstream` by http.
async fn serve(upstream: &Upstream, digests: Value) -> TestApp {
    let registries = json!({upstream.address.to_string(): {"plainHttp": true}});
    let guard = json!({"onEmpty": "allow", "maxShrink": "100%"});
    let routes = json!([{"name": "r", "backend": {"digests": digests}, "guard": guard}]);
    TestApp::start(&format!("{}registries: {registries}\nroutes: {routes}\n", TestApp::auth())).await
}

/// An image without any value in its name.
fn images(upstream: &Upstream) -> Value {
    json!({"a": {"image": format!("{}/org/app:1", upstream.address)}})
}

/// Sends each value as the parameter `v`. Returns the reply and the requests outside of a registry's API. Without such a
/// request the value was refused.
async fn asked(upstream: &Upstream, app: &TestApp) -> Vec<(String, Reply, Vec<Request>)> {
    let mut all = Vec::new();
    for value in values().into_iter().chain([NUL.to_owned()]) {
        let before = upstream.requests().len();
        let reply = app.ask("r", json!({"v": value})).await;
        assert_eq!((reply.header("x-pwned"), reply.header("set-cookie")), (None, None), "{value:?}");
        let mut requests = upstream.requests().split_off(before);
        for request in &requests {
            assert_eq!(request.header("x-pwned"), None, "{value:?}");
            assert_eq!(request.header("host"), Some(&*upstream.address.to_string()), "{value:?}");
        }
        requests.retain(|request| !request.target.starts_with("/v2/org/app/"));
        if requests.is_empty() {
            refused(&reply, 422, "invalid_input", "");
        }
        all.push((value, reply, requests));
    }
    all
}

/// The segments of a request's path, decoded, and its query.
fn parts(request: &Request) -> (Vec<String>, Vec<(String, String)>) {
    let url = Url::parse(&format!("http://h{}", request.target)).unwrap();
    // The parsed path equals the sent path: no segment goes up.
    assert_eq!(&request.target[..url.path().len()], url.path());
    let decode = |part: &str| percent_encoding::percent_decode_str(part).decode_utf8().unwrap().into_owned();
    (url.path_segments().unwrap().map(decode).collect(), url.query_pairs().into_owned().collect())
}

/// A gate of each system for the commit `sha` of the repository `name`, and the path segments before that name.
fn gate(system: &str, api: &str, name: &str, sha: &str) -> (Value, &'static [&'static str]) {
    let repository = format!("org/{name}");
    match system {
        "github" => {
            (json!({"api": api, "sha": sha, "repository": repository, "workflows": ["b"]}), &["api", "repos", "org"])
        }
        "gitlab" => (json!({"api": api, "sha": sha, "project": name}), &["api", "projects"]),
        "gitea" => (json!({"api": api, "sha": sha, "repository": repository}), &["api", "repos", "org"]),
        "bitbucket" => (json!({"api": api, "sha": sha, "repository": repository}), &["api", "repositories", "org"]),
        "http" => {
            (json!({"url": format!("{api}/jobs/{name}/builds"), "sha": sha, "verdict": "'passed'"}), &["api", "jobs"])
        }
        _ => panic!("tests/it/hostile/digests.rs: `gate` has no case for the CI system `{system}`"),
    }
}

#[tokio::test]
async fn a_forge_request_names_one_repository() {
    for CiSystem { name: system, .. } in CI_SYSTEMS {
        let forge = empty().await;
        let (gate, before) = gate(system, &format!("http://{}/api", forge.address), "{{ params.v }}", COMMIT);
        let app = serve(&forge, json!({"images": images(&forge), "gate": {*system: gate}})).await;
        let mut arrived = 0;
        for (value, _, requests) in asked(&forge, &app).await {
            for request in requests {
                arrived += 1;
                let (segments, _) = parts(&request);
                assert_eq!(segments[..before.len()], *before, "{system} {value:?}: {}", request.target);
                assert_eq!(segments[before.len()], value, "{system}: {}", request.target);
                assert!(!["", ".", ".."].contains(&&*value) && segments.len() > before.len() + 1, "{system} {value:?}");
            }
        }
        assert!(arrived > 0, "{system}: everything was refused");
    }
}

#[tokio::test]
async fn a_branch_stays_one_query_parameter_at_gitlab() {
    let forge = empty().await;
    let gate = json!({"api": format!("http://{}/api", forge.address), "project": "g/r", "sha": COMMIT, "ref": "{{ params.v }}"});
    let app = serve(&forge, json!({"images": images(&forge), "gate": {"gitlab": gate}})).await;
    let mut arrived = 0;
    for (value, _, requests) in asked(&forge, &app).await {
        for request in requests {
            arrived += 1;
            let (segments, query) = parts(&request);
            assert_eq!(segments, ["api", "projects", "g/r", "pipelines"], "{value:?}");
            let refs: Vec<&str> =
                query.iter().filter(|(name, _)| name == "ref").map(|(_, value)| value.as_str()).collect();
            assert_eq!(refs, [value.as_str()]);
            let names: Vec<&str> = query.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["sha", "ref", "order_by", "sort", "per_page"]);
        }
    }
    assert!(arrived > 0, "everything was refused");
}

/// An invalid commit id or merge request number is refused before any request.
#[tokio::test]
async fn invalid_commit_ids_and_merge_request_numbers_are_refused() {
    let forge = empty().await;
    let api = format!("http://{}/api", forge.address);
    let mut gates: Vec<(&str, Value, bool)> = CI_SYSTEMS
        .iter()
        .map(|CiSystem { name, .. }| (*name, gate(name, &api, "r", "{{ params.v }}").0, false))
        .collect();
    let merge_request = json!({"api": api, "project": "g/r", "sha": COMMIT, "mergeRequest": "{{ params.v }}"});
    gates.push(("gitlab", merge_request, true));
    for (system, gate, is_number) in gates {
        let app = serve(&forge, json!({"images": images(&forge), "gate": {system: gate}})).await;
        for (value, _, requests) in asked(&forge, &app).await {
            let may_arrive = is_number && value.chars().all(|c| c.is_ascii_digit());
            assert!(requests.is_empty() || may_arrive, "{system} {value:?}: {:?}", requests[0].target);
        }
    }
    let revision = json!({"expect": "{{ params.v }}"});
    let app = serve(&forge, json!({"images": images(&forge), "revision": revision})).await;
    assert!(asked(&forge, &app).await.iter().all(|(.., requests)| requests.is_empty()));
}

#[tokio::test]
async fn a_tag_list_request_names_one_repository() {
    let registry = empty().await;
    let host = registry.address;
    let repositories = json!([format!("{host}/org/list/{{{{ params.v }}}}")]);
    let list = json!({"repositories": repositories, "missingRepository": "absent"});
    let app = serve(&registry, json!({"list": list})).await;
    let mut arrived = 0;
    for (value, _, requests) in asked(&registry, &app).await {
        for request in requests {
            arrived += 1;
            // Never the catalogue, which only a pattern needs.
            let (segments, _) = parts(&request);
            let name = segments[3..segments.len() - 2].join("/");
            assert_eq!(
                (&*name, segments[..3].join("/"), &*segments.last().unwrap().clone()),
                (&*value, "v2/org/list".to_owned(), "list")
            );
        }
    }
    assert!(arrived > 0, "everything was refused");
}

#[tokio::test]
async fn values_add_no_wildcards_to_a_tag_pattern() {
    let manifest = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    let tags = r#"{"name":"org/list","tags":["X-1","X-2","a-1","true-1","main-1"]}"#;
    let registry = Upstream::start(move |request| {
        let is_list = request.target.contains("/tags/list");
        let (kind, body) = if is_list { ("", tags) } else { ("vnd.oci.image.index.v1+", manifest) };
        request.answer(200, &format!("Content-Type: application/{kind}json"), body)
    })
    .await;
    let list =
        json!({"repositories": [format!("{}/org/list", registry.address)], "tags": {"glob": "{{ params.v }}-*"}});
    let app = serve(&registry, json!({"list": list})).await;
    let mut found = 0;
    for (value, reply, _) in asked(&registry, &app).await {
        if reply.status == 200 {
            let sets = reply.json()["output"]["parameters"].take();
            let sets = sets.as_array().unwrap();
            found += sets.len();
            assert!(
                sets.iter().all(|set| set["tag"].as_str().unwrap().starts_with(&format!("{value}-"))),
                "{value:?}: {sets:?}"
            );
        }
    }
    assert_eq!(found, 3, "those of `X` and of `true`");
}

#[tokio::test]
async fn values_are_no_paths_in_an_image_layout() {
    let nobody = empty().await;
    for layout in ["", "/blobs"] {
        let image = format!("oci:{}{layout}:{{{{ params.v }}}}", demo_images().display());
        let app = serve(&nobody, json!({"images": {"a": {"image": image}}})).await;
        for value in values().into_iter().chain([NUL.to_owned()]) {
            let reply = app.ask("r", json!({"v": value})).await;
            match (reply.status, layout) {
                (200, "") => assert_eq!(reply.sets(), "[]", "{value:?}"),
                (502, "/blobs") => _ = refused(&reply, 502, "backend_failed", "is not an OCI image layout"),
                _ => _ = refused(&reply, 422, "invalid_input", ""),
            }
        }
    }
    assert_eq!(nobody.requests().len(), 0);
}
