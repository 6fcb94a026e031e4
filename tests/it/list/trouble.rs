//! Requests of a list to a registry, and failing registries: a part of a list is never an answer.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use oci::Digest;
use serde_json::{Value, json};

use super::{config, gateway, outputs};
use crate::support::{
    TestApp,
    registry::Registry,
    upstream::{Request, Step, Upstream, refused},
};

const JSON: &str = "Content-Type: application/json";
const OCI: &str = "application/vnd.oci.image.manifest.v1+json";

/// The tags of each repository. Each tag has a word that determines its content.
type Tags = Vec<(&'static str, Vec<(String, String)>)>;

fn manifest(word: &str) -> String {
    json!({"schemaVersion": 2, "mediaType": OCI, "annotations": {"word": word}}).to_string()
}

fn unknown(request: &Request, code: &str) -> Vec<Step> {
    request.answer(404, JSON, json!({"errors": [{"code": code}]}).to_string())
}

/// The answer of a registry with `tags`.
fn answer(request: &Request, tags: &Tags) -> Vec<Step> {
    let path = request.target.split('?').next().unwrap();
    if path == "/v2/_catalog" {
        let names: Vec<&str> = tags.iter().map(|(name, _)| *name).collect();
        return request.answer(200, JSON, json!({"repositories": names}).to_string());
    }
    let of = |rest: &str| tags.iter().find(|(name, _)| path.strip_prefix("/v2/") == Some(&format!("{name}{rest}")));
    if let Some((name, tags)) = of("/tags/list") {
        let names: Vec<&String> = tags.iter().map(|(tag, _)| tag).collect();
        return request.answer(200, JSON, json!({"name": name, "tags": names}).to_string());
    }
    let (_, wanted) = path.rsplit_once('/').unwrap();
    let is_wanted =
        |(tag, word): &&(String, String)| tag == wanted || Digest::of(manifest(word).as_bytes()).as_str() == wanted;
    match of(&format!("/manifests/{wanted}")).map(|(_, tags)| tags.iter().find(is_wanted)) {
        Some(Some((_, word))) => {
            let content = manifest(word);
            let digest = Digest::of(content.as_bytes());
            request.answer(200, &format!("Content-Type: {OCI}\r\nDocker-Content-Digest: {digest}"), content)
        }
        Some(None) => unknown(request, "MANIFEST_UNKNOWN"),
        None => unknown(request, "NAME_UNKNOWN"),
    }
}

fn repository(tags: &[&str]) -> Vec<(String, String)> {
    tags.iter().map(|&tag| (tag.to_owned(), tag.to_owned())).collect()
}

/// A registry with `org/a` (three tags) and `org/b` (one tag). Answers of `special` come first.
async fn fake(special: impl Fn(&Request) -> Option<Vec<Step>> + Send + Sync + 'static) -> Upstream {
    let tags = vec![("org/a", repository(&["1.0.0", "1.1.0", "2.0.0"])), ("org/b", repository(&["1.0.0"]))];
    Upstream::start(move |request| special(request).unwrap_or_else(|| answer(request, &tags))).await
}

/// The number of list, `HEAD` and content `GET` requests since `start`.
fn counts(upstream: &Upstream, start: usize) -> [usize; 3] {
    let requests = upstream.requests().split_off(start);
    let count = |is: &dyn Fn(&Request) -> bool| requests.iter().filter(|request| is(request)).count();
    let is_list = |request: &Request| request.target.contains("/tags/list") || request.target.contains("_catalog");
    [count(&is_list), count(&|one| one.method == "HEAD"), count(&|one| one.method == "GET" && !is_list(one))]
}

#[tokio::test]
async fn known_contents_are_not_read_again() {
    let tags = Arc::new(Mutex::new(vec![
        ("org/a", repository(&["1.0.0", "1.1.0", "2.0.0"])),
        ("org/b", repository(&["1.0.0"])),
    ]));
    let current = Arc::clone(&tags);
    let upstream = Upstream::start(move |request| answer(request, &current.lock().unwrap())).await;
    let host = upstream.address.to_string();
    let list = json!({"repositories": ["~/org/a", "~/org/b"], "tags": {"semver": "*"}, "limit": 2});
    let app = gateway(&host, list, "{{ repository }}:{{ tag }} {{ annotations.word }}").await;
    let expected = ["org/a:2.0.0 2.0.0", "org/a:1.1.0 1.1.0", "org/b:1.0.0 1.0.0"];
    assert_eq!(outputs(&app.ask("l", json!({})).await), expected);
    assert_eq!(counts(&upstream, 0), [2, 3, 3]);
    assert_eq!(outputs(&app.ask("l", json!({})).await), expected);
    assert_eq!(counts(&upstream, 0), [2, 3, 3], "the answer is fresh");
    for _ in 0..2 {
        let before = upstream.requests().len();
        assert_eq!(outputs(&app.ask_afresh("l", json!({})).await), expected);
        assert_eq!(counts(&upstream, before), [2, 3, 0]);
    }
    // A moved tag is read again.
    tags.lock().unwrap()[0].1[2].1 = "new".to_owned();
    let before = upstream.requests().len();
    let moved = ["org/a:2.0.0 new", "org/a:1.1.0 1.1.0", "org/b:1.0.0 1.0.0"];
    assert_eq!(outputs(&app.ask_afresh("l", json!({})).await), moved);
    assert_eq!(counts(&upstream, before), [2, 3, 1]);
}

#[tokio::test]
async fn a_stopped_registry_is_an_error() {
    let mut registry = Registry::start().await;
    registry.put_image("org/front", &["1", "2"], "2026-01-01T00:00:00Z").await;
    let host = registry.host.clone();
    for repository in ["~/org/front", "~/org/*"] {
        let list = json!({"repositories": [repository], "missingRepository": "absent"});
        let app = gateway(&host, list, "{{ tag }}").await;
        assert_eq!(outputs(&app.ask("l", json!({})).await), ["2", "1"]);
        registry.stop().await;
        refused(&app.ask_afresh("l", json!({})).await, 502, "backend_failed", &host);
        registry.restart().await;
    }
}

#[tokio::test]
async fn a_failure_in_one_part_makes_the_whole_list_unknown() {
    type Rule = (&'static str, &'static str, u16, &'static str);
    let unknown = r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#;
    let rules: [(Rule, (u16, &str, &str)); 12] = [
        (("GET", "/org/b/tags/list", 503, ""), (502, "backend_failed", "the tags of org/b")),
        (("GET", "/org/b/tags/list", 403, ""), (502, "backend_failed", "the tags of org/b: access denied")),
        (("GET", "/org/b/tags/list", 404, "<html>"), (502, "backend_output_invalid", "it proves nothing")),
        (("GET", "/org/b/tags/list", 404, unknown), (502, "backend_output_invalid", "missingRepository")),
        (("GET", "/org/b/tags/list", 200, ""), (502, "backend_output_invalid", "it answered no list")),
        (("GET", "/org/b/tags/list", 200, "{}"), (502, "backend_output_invalid", "it answered no list")),
        (
            ("GET", "/org/b/tags/list", 200, r#"{"tags":["a b"]}"#),
            (502, "backend_output_invalid", "`a b` is not a tag"),
        ),
        (
            (
                "GET",
                "/org/b/tags/list",
                200,
                r#"{"tags":["1@sha256:0000000000000000000000000000000000000000000000000000000000000000"]}"#,
            ),
            (502, "backend_output_invalid", "is not a tag"),
        ),
        (("HEAD", "/org/b/manifests/1.0.0", 500, ""), (502, "backend_failed", "500")),
        (("HEAD", "/org/b/manifests/1.0.0", 429, ""), (429, "throttled", "429")),
        (("GET", "/org/b/manifests/sha256:", 403, ""), (502, "backend_failed", "the contents of 127.0.0.1")),
        (("GET", "/org/b/manifests/sha256:", 404, unknown), (502, "backend_output_invalid", "org/b:1.0.0")),
    ];
    for (rule, expected) in rules {
        let (method, path, status, body) = rule;
        let upstream = fake(move |request| {
            let is_meant = request.method == method && request.target.starts_with(&format!("/v2{path}"));
            is_meant.then(|| request.answer(status, JSON, body))
        })
        .await;
        let host = upstream.address.to_string();
        let app = gateway(&host, json!({"repositories": ["~/org/a", "~/org/b"]}), "{{ tag }}").await;
        refused(&app.ask("l", json!({})).await, expected.0, expected.1, expected.2);
    }
}

#[tokio::test]
async fn a_refused_catalogue_advises_to_name_the_repositories() {
    for (status, body, code) in [
        (401, "", "backend_failed"),
        (403, "", "backend_failed"),
        (404, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#, "backend_output_invalid"),
        (404, "<html>", "backend_output_invalid"),
        (405, "", "backend_output_invalid"),
        (200, "{}", "backend_output_invalid"),
    ] {
        let upstream =
            fake(move |request| request.target.starts_with("/v2/_catalog").then(|| request.answer(status, JSON, body)))
                .await;
        let host = upstream.address.to_string();
        let list = json!({"repositories": ["~/org/*"], "missingRepository": "absent"});
        let reply = gateway(&host, list, "{{ tag }}").await.ask("l", json!({})).await;
        refused(&reply, 502, code, "its catalogue: ");
        assert!(reply.message().contains("name the repositories"), "{}", reply.message());
    }
    let upstream =
        fake(|request| request.target.starts_with("/v2/_catalog").then(|| request.answer(503, "", ""))).await;
    let app = gateway(&upstream.address.to_string(), json!({"repositories": ["~/org/*"]}), "{{ tag }}").await;
    let reply = app.ask("l", json!({})).await;
    refused(&reply, 502, "backend_failed", "its catalogue: ");
    assert!(!reply.message().contains("name the repositories"), "{}", reply.message());
}

/// The catalogue still names repositories that are deleted or have no tags.
#[tokio::test]
async fn repositories_gone_from_an_outdated_catalogue_are_skipped() {
    let tags: Tags = vec![("org/a", repository(&["1"])), ("org/empty", Vec::new())];
    let upstream = Upstream::start(move |request| match &*request.target {
        "/v2/_catalog?n=250" => {
            request.answer(200, JSON, r#"{"repositories":["org/a","org/empty","org/gone","org/null"]}"#)
        }
        "/v2/org/null/tags/list?n=250" => request.answer(200, JSON, r#"{"name":"org/null","tags":null}"#),
        _ => answer(request, &tags),
    })
    .await;
    let host = upstream.address.to_string();
    let app = gateway(&host, json!({"repositories": ["~/org/*"]}), "{{ repository }}").await;
    assert_eq!(outputs(&app.ask("l", json!({})).await), ["org/a"]);
    let odd = fake(|request| {
        let is_catalogue = request.target.starts_with("/v2/_catalog");
        is_catalogue.then(|| request.answer(200, JSON, r#"{"repositories":["org/a","org/x?y"]}"#))
    })
    .await;
    let app = gateway(&odd.address.to_string(), json!({"repositories": ["~/org/*"]}), "{{ tag }}").await;
    refused(&app.ask("l", json!({})).await, 502, "backend_output_invalid", "`org/x?y` is not a repository");
    // A repository given by name must exist, whatever a pattern finds.
    let app = gateway(&host, json!({"repositories": ["~/org/*", "~/org/gone"]}), "{{ repository }}").await;
    refused(&app.ask("l", json!({})).await, 502, "backend_output_invalid", "org/gone: 404");
}

#[tokio::test]
async fn a_tag_deleted_during_the_listing_is_skipped() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&is_gone);
    let upstream = fake(move |request| {
        if request.target.contains("/org/a/manifests/2.0.0") {
            gone.store(true, Ordering::SeqCst);
            return Some(unknown(request, "MANIFEST_UNKNOWN"));
        }
        let is_list = request.target.contains("/org/a/tags/list") && gone.load(Ordering::SeqCst);
        is_list.then(|| request.answer(200, JSON, r#"{"tags":["1.0.0","1.1.0"]}"#))
    })
    .await;
    let list = json!({"repositories": ["~/org/a"], "sort": "semver", "limit": 1});
    let app = gateway(&upstream.address.to_string(), list.clone(), "{{ tag }}").await;
    assert_eq!(outputs(&app.ask("l", json!({})).await), ["1.1.0"]);

    // A tag that stays on the list but is missing contradicts the list.
    let upstream =
        fake(|request| request.target.contains("/org/a/manifests/2.0.0").then(|| unknown(request, "MANIFEST_UNKNOWN")))
            .await;
    let app = gateway(&upstream.address.to_string(), list, "{{ tag }}").await;
    let message = refused(&app.ask("l", json!({})).await, 502, "backend_failed", "org/a:2.0.0 is listed");
    assert!(message.contains("`tags.ignore`"), "{message}");
    let list = json!({"repositories": ["~/org/a"], "tags": {"ignore": ["2.0.0"]}});
    let app = gateway(&upstream.address.to_string(), list, "{{ tag }}").await;
    assert_eq!(outputs(&app.ask("l", json!({})).await), ["1.1.0", "1.0.0"]);
}

#[tokio::test]
async fn too_many_tags_are_an_error() {
    let all: Vec<(String, String)> = (0..501).map(|number| (format!("1.{number}.0"), "same".to_owned())).collect();
    let tags = vec![("org/a", all)];
    let upstream = Upstream::start(move |request| answer(request, &tags)).await;
    let host = upstream.address.to_string();
    for (more, is_refused) in [
        (json!({}), true),
        (json!({"limit": 3, "sort": "created"}), true),
        (json!({"limit": 3, "annotations": {"word": "same"}}), true),
        (json!({"limit": 3, "sort": "semver"}), false),
        (json!({"tags": {"ignore": ["1.0.0"]}, "limit": 500}), false),
    ] {
        let mut list = json!({"repositories": ["~/org/a"]});
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let app = gateway(&host, list, "{{ tag }}").await;
        let reply = app.ask("l", json!({})).await;
        if is_refused {
            assert_eq!(counts(&upstream, 0)[1], 0, "nothing was looked up");
            refused(&reply, 502, "backend_output_invalid", "501 tags must be opened, and 500 is the limit");
        } else {
            assert!(outputs(&reply).len() >= 3);
        }
    }
}

/// Docker Hub has several host names, and a folder for official images.
#[tokio::test]
async fn docker_hub_is_reached_by_all_its_names() {
    let tags: Tags = vec![("library/nginx", repository(&["1"])), ("bitnami/nginx", repository(&["1"]))];
    let upstream = Upstream::start(move |request| answer(request, &tags)).await;
    let names = ["docker.io/nginx", "index.docker.io/library/nginx", "registry-1.docker.io/bitnami/nginx"];
    let list = json!({"repositories": names});
    let yaml = config("docker.io", &[list], Some("{{ registry }}/{{ repository }}"));
    let endpoint = format!("{{\"endpoint\":\"{}\",", upstream.address);
    let app = TestApp::start(&yaml.replacen("\"docker.io\":{", &format!("\"docker.io\":{endpoint}"), 1)).await;
    let expected = ["docker.io/library/nginx", "docker.io/bitnami/nginx"];
    assert_eq!(outputs(&app.ask("l", json!({})).await), expected);
}

#[tokio::test]
async fn two_lists_share_one_registry() {
    let upstream = fake(|_| None).await;
    let host = upstream.address.to_string();
    let list = |glob: &str| json!({"repositories": [format!("{host}/org/a")], "tags": {"glob": glob}});
    let lists: Vec<Value> = vec![list("1.*"), list("2.*")];
    let app = TestApp::start(&config(&host, &lists, Some("{{ tag }}"))).await;
    assert_eq!(outputs(&app.ask("l", json!({})).await), ["1.1.0", "1.0.0"]);
    assert_eq!(outputs(&app.ask("l2", json!({})).await), ["2.0.0"]);
}
