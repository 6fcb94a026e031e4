//! The meaning of a registry's answer for a tag.

use std::time::Duration;

use domain::error::ErrorKind;
use oci::Missing;
use serde_json::json;

use super::*;

const UNKNOWN: &str = r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#;
const API: &str = "Docker-Distribution-Api-Version: registry/2.0";

#[tokio::test]
async fn each_class_of_answer_has_its_own_outcome() {
    let throttled = ErrorKind::Throttled { retry_after: Some(Duration::from_secs(7)) };
    for (status, headers, body, expected) in [
        (404, JSON, UNKNOWN, Ok(Missing::Tag)),
        (404, JSON, r#"{"errors":[{"code":"NAME_UNKNOWN"}]}"#, Ok(Missing::Repository)),
        (404, JSON, r#"{"errors":[{"code":"NOT_FOUND"}]}"#, Ok(Missing::Tag)),
        (404, "Content-Type: text/html", "<html>", Err(ErrorKind::InvalidOutput)),
        (404, JSON, r#"[[{"code":"MANIFEST_UNKNOWN"}]]"#, Err(ErrorKind::InvalidOutput)),
        (404, JSON, r#"{"errors":[["MANIFEST_UNKNOWN"]]}"#, Err(ErrorKind::InvalidOutput)),
        (403, "", "", Err(ErrorKind::Denied)),
        (429, "Retry-After: 7", "", Err(throttled)),
        (408, "", "", Err(ErrorKind::Unavailable)),
        (500, "", "", Err(ErrorKind::Unavailable)),
        (503, "", UNKNOWN, Err(ErrorKind::Unavailable)),
        (200, JSON, "{}", Err(ErrorKind::InvalidOutput)),
        (200, OCI, "<html>", Err(ErrorKind::InvalidOutput)),
        (200, "Docker-Content-Digest: sha256:abc", "", Err(ErrorKind::InvalidOutput)),
        (307, "Location: /elsewhere", "", Err(ErrorKind::InvalidOutput)),
    ] {
        let registry = Upstream::start(move |request| request.answer(status, headers, body)).await;
        let registries = registries(&plain(&registry.address));
        let found = look_up(&registries, &format!("{}/org/app:1", registry.address)).await;
        match expected {
            Ok(expected) => assert_eq!(missing(found), expected, "{status} {body}"),
            Err(kind) => {
                refused(found, kind, &format!("registry {}: ", registry.address));
            }
        }
    }
}

#[tokio::test]
async fn without_a_digest_in_its_header_a_manifest_is_hashed() {
    let registry = Upstream::start(|request| request.answer(200, OCI, MANIFEST)).await;
    let registries = registries(&plain(&registry.address));
    assert_eq!(
        expect_digest(look_up(&registries, &format!("{}/org/app:1", registry.address)).await),
        manifest_digest()
    );
    assert_eq!(asked(&registry), ["HEAD /v2/org/app/manifests/1", "GET /v2/org/app/manifests/1"]);
    for request in registry.requests() {
        assert_eq!(request.header("accept-encoding"), Some("identity"));
        let accept = request.header("accept").unwrap();
        for kind in ["oci.image.index.v1", "distribution.manifest.list.v2", "oci.image.manifest.v1", "manifest.v2"] {
            assert!(accept.contains(kind), "{accept}");
        }
    }
}

#[tokio::test]
async fn a_head_404_is_trusted_without_a_get_if_configured() {
    let answers = |headers: &'static str| {
        Upstream::start(move |request| match &*request.method {
            "HEAD" => request.answer(404, headers, ""),
            _ => found(request),
        })
    };
    for (rule, headers, requests, is_there) in
        [("get", API, 2, true), ("get", "", 2, true), ("head", API, 1, false), ("head", "", 2, true)]
    {
        let registry = answers(headers).await;
        let entry = json!({"plainHttp": true, "confirm404": rule});
        let registries = registries(&json!({registry.address.to_string(): entry}));
        let found = look_up(&registries, &format!("{}/org/app:1", registry.address)).await;
        if is_there {
            assert_eq!(expect_digest(found), manifest_digest(), "{rule} {headers}");
        } else {
            assert_eq!(missing(found), Missing::Tag, "{rule} {headers}");
        }
        assert_eq!(registry.requests().len(), requests, "{rule} {headers}");
    }
}

#[tokio::test]
async fn a_refusal_means_a_missing_tag_only_if_configured() {
    for on_head in [true, false] {
        let registry = Upstream::start(move |request| {
            let status = if on_head || request.method == "GET" { 403 } else { 404 };
            request.answer(status, JSON, r#"{"errors":[{"status":403,"message":"Forbidden"}]}"#)
        })
        .await;
        let reference = format!("{}/org/app:1", registry.address);
        let strict = registries(&plain(&registry.address));
        refused(look_up(&strict, &reference).await, ErrorKind::Denied, "403");
        let entry = json!({"plainHttp": true, "deniedMeansMissing": true});
        let lenient = registries(&json!({registry.address.to_string(): entry}));
        assert_eq!(missing(look_up(&lenient, &reference).await), Missing::Denied);
    }
    // An answer of a proxy, or a rate limit, never means that something is missing.
    for (headers, body, kind) in [
        ("Content-Type: text/html", "<html>Access denied</html>", ErrorKind::Denied),
        (JSON, "", ErrorKind::Denied),
        (JSON, r#"{"errors":[]}"#, ErrorKind::Denied),
        (
            "Retry-After: 30",
            r#"{"errors":[{"code":"DENIED"}]}"#,
            ErrorKind::Throttled { retry_after: Some(Duration::from_secs(30)) },
        ),
    ] {
        let registry = Upstream::start(move |request| request.answer(403, headers, body)).await;
        let entry = json!({"plainHttp": true, "deniedMeansMissing": true});
        let lenient = registries(&json!({registry.address.to_string(): entry}));
        refused(look_up(&lenient, &format!("{}/org/app:1", registry.address)).await, kind, "403");
    }
}

#[tokio::test]
async fn a_digest_other_than_the_pinned_one_is_refused() {
    for with_header in [true, false] {
        let registry = Upstream::start(
            move |request| {
                if with_header { found(request) } else { request.answer(200, OCI, MANIFEST) }
            },
        )
        .await;
        let registries = registries(&plain(&registry.address));
        let reference = |digest: &Digest| format!("{}/org/app:1@{digest}", registry.address);
        assert_eq!(expect_digest(look_up(&registries, &reference(&manifest_digest())).await), manifest_digest());
        let other = look_up(&registries, &reference(&Digest::of(b"other"))).await;
        refused(other, ErrorKind::InvalidOutput, "to a request for sha256:");
    }
}

#[tokio::test]
async fn docker_hub_is_reached_by_all_its_names() {
    let hub = Upstream::start(found).await;
    let config = json!({"docker.io": {"plainHttp": true, "endpoint": hub.address.to_string()}});
    let registries = registries(&config);
    for (reference, path) in [
        ("docker.io/nginx:1", "library/nginx"),
        ("index.docker.io/nginx:1", "library/nginx"),
        ("registry-1.docker.io/org/nginx:1", "org/nginx"),
    ] {
        assert_eq!(expect_digest(look_up(&registries, reference).await), manifest_digest());
        assert_eq!(asked(&hub).last(), Some(&format!("HEAD /v2/{path}/manifests/1")));
    }
    refused(registries.tags("index.docker.io", "library/nginx", deadline()).await, ErrorKind::InvalidOutput, "no list");
}
