//! Registries that send the gateway elsewhere, as registry.k8s.io does for manifests.

use super::*;

/// A registry that demands a password, and redirects manifests and lists to `target`.
async fn redirecting(status: u16, target: String) -> Upstream {
    Upstream::start(move |request| match request.header("authorization") {
        None => request.answer(401, "WWW-Authenticate: Basic realm=\"x\"", ""),
        Some(_) => request.answer(status, &format!("Location: {target}{}", request.target), ""),
    })
    .await
}

/// What is under `reference`, which is asked for with the password of `registry`.
async fn find(registry: &Upstream, reference: &str) -> Result<Lookup, BackendError> {
    let host = registry.address.to_string();
    let folder = docker_config(&json!({&host: user("ci", "hunter2")}));
    let registries = build(folder.path(), &json!({&host: {"plainHttp": true, "dockerConfig": "docker.json"}})).0;
    look_up(&registries, &format!("{host}/{reference}")).await
}

#[tokio::test]
async fn a_manifest_is_found_where_the_registry_sends_us() {
    for status in [301, 302, 307, 308] {
        // Without a digest in the header, the `HEAD` does not suffice.
        for has_digest in [true, false] {
            let store = Upstream::start(
                move |request| {
                    if has_digest { found(request) } else { request.answer(200, OCI, MANIFEST) }
                },
            )
            .await;
            let registry = redirecting(status, format!("http://{}/elsewhere", store.address)).await;
            for reference in ["org/app:1".to_owned(), format!("org/app@{}", manifest_digest())] {
                assert_eq!(expect_digest(find(&registry, &reference).await), manifest_digest(), "{status} {reference}");
            }
            let requests = store.requests();
            assert!(requests.iter().all(|request| request.target.starts_with("/elsewhere/v2/org/app/manifests/")));
            assert!(
                requests.iter().all(|request| request.header("authorization").is_none()),
                "the password stays at home"
            );
            assert!(requests.iter().all(|request| request.header("accept").unwrap().contains("image.index")));
            let methods: Vec<&str> = requests.iter().map(|request| &*request.method).collect();
            assert_eq!(methods, if has_digest { &["HEAD", "HEAD"][..] } else { &["HEAD", "GET", "HEAD", "GET"] });
        }
    }
}

#[tokio::test]
async fn what_is_elsewhere_is_judged_as_at_home() {
    let words = r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#;
    let store = Upstream::start(move |request| request.answer(404, JSON, words)).await;
    let registry = redirecting(307, format!("http://{}", store.address)).await;
    assert_eq!(missing(find(&registry, "org/app:1").await), Missing::Tag);
    for (status, headers, kind) in [
        (404, "", ErrorKind::InvalidOutput),
        (503, "", ErrorKind::Unavailable),
        (403, "", ErrorKind::Denied),
        // No token is bought, and no password is sent, for another host.
        (401, "WWW-Authenticate: Bearer realm=\"http://HOST/token\"", ErrorKind::Denied),
        (401, "WWW-Authenticate: Basic realm=\"x\"", ErrorKind::Denied),
    ] {
        let store = Upstream::start(move |request| {
            request.answer(status, &headers.replace("HOST", request.header("host").unwrap()), "<html>")
        })
        .await;
        let registry = redirecting(307, format!("http://{}", store.address)).await;
        refused(find(&registry, "org/app:1").await, kind, "");
        assert!(store.requests().iter().all(|request| request.header("authorization").is_none()), "{status}");
        assert!(store.requests().iter().all(|request| !request.target.starts_with("/token")), "{status}");
    }
    // What is missing is something else than the manifest.
    let elsewhere = Upstream::start(move |request| {
        if request.target.contains("/manifests/") {
            return request.answer(302, "Location: /sign-in", "");
        }
        request.answer(404, JSON, words)
    })
    .await;
    let found = look_up(&registries(&plain(&elsewhere.address)), &format!("{}/org/app:1", elsewhere.address)).await;
    refused(found, ErrorKind::InvalidOutput, "`/sign-in`, which answers 404, so it proves nothing");
    // Another image than the pinned one.
    let store = Upstream::start(move |request| request.answer(200, OCI, MANIFEST)).await;
    let registry = redirecting(307, format!("http://{}", store.address)).await;
    let pinned = format!("org/app@{}", Digest::of(b"other"));
    refused(find(&registry, &pinned).await, ErrorKind::InvalidOutput, "to a request for");
}

#[tokio::test]
async fn a_redirect_that_must_not_be_followed_is_an_error() {
    let apart = Upstream::start_apart(found).await;
    for (target, says) in [
        (format!("http://{}", apart.address), "inner address"),
        ("ftp://127.0.0.1".to_owned(), "not https"),
        ("http://user:secret@127.0.0.1:1".to_owned(), "a user or a password"),
    ] {
        let registry = redirecting(307, target).await;
        let found = find(&registry, "org/app:1").await;
        refused(found, ErrorKind::InvalidOutput, says);
    }
    let circle = Upstream::start(|request| request.answer(307, &format!("Location: {}", request.target), "")).await;
    let found = look_up(&registries(&plain(&circle.address)), &format!("{}/org/app:1", circle.address)).await;
    refused(found, ErrorKind::InvalidOutput, "redirects more than 3 times");
    assert_eq!(circle.requests().len(), 4);
    assert!(apart.requests().is_empty());
}

#[tokio::test]
async fn a_list_goes_on_where_its_first_page_was() {
    let store = Upstream::start(|request| {
        let link = format!("{JSON}\r\nLink: </elsewhere/v2/org/app/tags/list?last=a>; rel=\"next\"");
        if request.target.ends_with("last=a") {
            request.answer(200, JSON, r#"{"tags":["b"]}"#)
        } else {
            request.answer(200, &link, r#"{"tags":["a"]}"#)
        }
    })
    .await;
    let registry = redirecting(307, format!("http://{}/elsewhere", store.address)).await;
    let host = registry.address.to_string();
    let folder = docker_config(&json!({&host: user("ci", "hunter2")}));
    let registries = build(folder.path(), &json!({&host: {"plainHttp": true, "dockerConfig": "docker.json"}})).0;
    let tags = registries.tags(&host, "org/app", deadline()).await;
    assert_eq!(tags.unwrap().unwrap(), ["a", "b"]);
    assert_eq!(
        asked(&store),
        ["GET /elsewhere/v2/org/app/tags/list?n=250", "GET /elsewhere/v2/org/app/tags/list?last=a"]
    );
    assert!(store.requests().iter().all(|request| request.header("authorization").is_none()));
}
