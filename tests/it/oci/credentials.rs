//! Which credential goes to which host, and when credentials are read again.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::*;
use crate::support::{
    registry::{PASSWORD, Registry, USER},
    upstream::Step,
};

pub(super) const BASIC: &str = "WWW-Authenticate: Basic realm=\"x\"";

pub(super) fn basic(name: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:{password}")))
}

/// Registries that take their credentials from the files in `folder`, with plain HTTP to `host`.
fn with_config(folder: &Path, host: &impl ToString) -> Registries {
    build(folder, &json!({host.to_string(): {"plainHttp": true, "dockerConfig": "docker.json"}})).0
}

/// A registry that demands a password, and accepts any.
pub(super) async fn with_password() -> Upstream {
    Upstream::start(|request| match request.header("authorization") {
        None => request.answer(401, BASIC, ""),
        Some(_) => found(request),
    })
    .await
}

#[tokio::test]
async fn a_real_registry_accepts_its_password() {
    let registry = Registry::with_user().await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    let reference = format!("{}/org/app:1", registry.host);
    for (password, is_right) in [(PASSWORD, true), ("wrong-password", false)] {
        let folder = docker_config(&json!({registry.host.clone(): user(USER, password)}));
        let found = look_up(&with_config(folder.path(), &registry.host), &reference).await;
        if is_right {
            expect_digest(found);
        } else {
            refused(found, ErrorKind::Denied, "401");
        }
    }
    let message = refused(look_up(&registries(&plain(&registry.host)), &reference).await, ErrorKind::Denied, "");
    assert!(message.contains("set `dockerConfig`"), "{message}");
}

#[tokio::test]
async fn the_most_specific_entry_is_sent() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let folder = docker_config(&json!({
        format!("{host}/org-a"): user("robot$ci", "a:b"),
        format!("{host}/org-a/secret"): user("secret", "s"),
        format!("http://{host}/v2/"): user("any", "x"),
        host.replace("127.", "*."): user("pattern", "p"),
        "other.example": user("other", "o"),
    }));
    let registries = with_config(folder.path(), &host);
    for (repository, expected) in [
        ("org-a/app", basic("robot$ci", "a:b")),
        ("org-a/secret/app", basic("secret", "s")),
        ("org-ab/app", basic("any", "x")),
    ] {
        expect_digest(look_up(&registries, &format!("{host}/{repository}:1")).await);
        assert_eq!(registry.requests().last().unwrap().header("authorization"), Some(&*expected), "{repository}");
    }
}

#[tokio::test]
async fn docker_hub_credentials_are_found_under_its_old_name() {
    let hub = with_password().await;
    let folder = docker_config(&json!({"https://index.docker.io/v1/": user("ci", "hub")}));
    let entry = json!({"plainHttp": true, "endpoint": hub.address.to_string(), "dockerConfig": "docker.json"});
    let (registries, _) = build(folder.path(), &json!({"docker.io": entry}));
    expect_digest(look_up(&registries, "docker.io/nginx:1").await);
    assert_eq!(hub.requests().last().unwrap().header("authorization"), Some(&*basic("ci", "hub")));
}

#[tokio::test]
async fn a_pattern_matches_parts_of_a_host() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let reference = format!("{host}/org/app:1");
    let folder = docker_config(&json!({host.replace("127.", "12*."): user("pattern", "p")}));
    expect_digest(look_up(&with_config(folder.path(), &host), &reference).await);
    assert_eq!(registry.requests().last().unwrap().header("authorization"), Some(&*basic("pattern", "p")));
    let folder = docker_config(&json!({host.replace("127.0.", "*."): user("pattern", "p")}));
    let found = look_up(&with_config(folder.path(), &host), &reference).await;
    refused(found, ErrorKind::Denied, "set `dockerConfig`");
}

/// The allowed helpers are checked again whenever the file changes.
#[tokio::test]
async fn a_changed_file_cannot_run_a_helper_that_is_not_allowed() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    let folder = docker_config(&json!({host.clone(): user("ci", "hunter2")}));
    let registries = with_config(folder.path(), &host);
    expect_digest(look_up(&registries, &format!("{host}/org/app:1")).await);
    let before = registry.requests().len();
    for (file, says) in [
        (json!({"credHelpers": {&host: "evil"}}).to_string(), "not allowed to run"),
        (json!({"credsStore": "evil"}).to_string(), "not allowed to run"),
        (json!({"auths": {&host: {"auth": "hunter2"}}}).to_string(), "not base64"),
        ("hunter2".to_owned(), "not a Docker config.json"),
    ] {
        std::fs::write(folder.path().join("docker.json"), file).unwrap();
        let message = refused(look_up(&registries, &format!("{host}/org/app:1")).await, ErrorKind::Denied, says);
        assert!(message.contains("docker.json") && !message.contains("hunter2"), "{message}");
    }
    std::fs::remove_file(folder.path().join("docker.json")).unwrap();
    refused(look_up(&registries, &format!("{host}/org/app:1")).await, ErrorKind::Denied, "No such file");
    assert_eq!(registry.requests().len(), before, "it was asked without the credential");
}

/// A registry whose password expires during a request. The new password is written to the file then.
async fn expiring(folder: &Path, status: u16, to: &'static str) -> Upstream {
    let file = folder.join("docker.json");
    Upstream::start(move |request| -> Vec<Step> {
        let host = request.header("host").unwrap();
        match request.header("authorization") {
            None => request.answer(401, BASIC, ""),
            Some(seen) if seen == basic("AWS", "new") => found(request),
            Some(_) => {
                let renewed = json!({"auths": {host: user("AWS", to)}});
                std::fs::write(&file, renewed.to_string()).unwrap();
                request.answer(status, "", "")
            }
        }
    })
    .await
}

#[tokio::test]
async fn an_expired_credential_is_reread_once() {
    for (status, to, expected) in
        [(403, "new", None), (400, "new", None), (401, "new", None), (403, "old", Some(2)), (403, "bad", Some(3))]
    {
        let folder = tempfile::tempdir().unwrap();
        let registry = expiring(folder.path(), status, to).await;
        let auths = json!({"auths": {registry.address.to_string(): user("AWS", "old")}});
        std::fs::write(folder.path().join("docker.json"), auths.to_string()).unwrap();
        let registries = with_config(folder.path(), &registry.address);
        let found = look_up(&registries, &format!("{}/org/app:1", registry.address)).await;
        match expected {
            None => assert_eq!((expect_digest(found), registry.requests().len()), (manifest_digest(), 3), "{status}"),
            Some(requests) => {
                refused(found, ErrorKind::Denied, "403");
                assert_eq!(registry.requests().len(), requests, "{status} {to}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_server_gets_the_renewed_credential_after_a_refusal() {
    for status in [400, 401, 403] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("docker.json");
        let registry = Upstream::start(move |request| {
            let host = request.header("host").unwrap();
            let seen = request.header("authorization").unwrap_or_default();
            if !request.target.starts_with("/token") {
                let bearer = format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\"");
                return if seen == "Bearer t" { found(request) } else { request.answer(401, &bearer, "") };
            }
            if seen == basic("ci", "new") {
                return request.answer(200, JSON, r#"{"token":"t"}"#);
            }
            std::fs::write(&file, json!({"auths": {host: user("ci", "new")}}).to_string()).unwrap();
            request.answer(status, JSON, r#"{"error":"invalid_grant"}"#)
        })
        .await;
        let auths = json!({"auths": {registry.address.to_string(): user("ci", "old")}});
        std::fs::write(folder.path().join("docker.json"), auths.to_string()).unwrap();
        let registries = with_config(folder.path(), &registry.address);
        expect_digest(look_up(&registries, &format!("{}/org/app:1", registry.address)).await);
    }
}

/// As Docker and the kubelet read it: an entry that cannot be read concerns its own registry.
#[tokio::test]
async fn a_file_is_read_as_docker_and_the_kubelet_read_it() {
    let registry = with_password().await;
    let host = registry.address.to_string();
    for entry in [
        // `ci:hunter`, which needs padding.
        json!({"auth": "Y2k6aHVudGVy\n", "username": "older", "password": "p"}),
        json!({"auth": "", "username": "ci", "password": "hunter"}),
        json!({"Auth": "Y2k6aHVu\r\ndGVy"}),
    ] {
        let folder = docker_config(
            &json!({&host: entry, "bad.example": {"auth": "!"}, "worse.example": 7, "none.example": null}),
        );
        expect_digest(look_up(&with_config(folder.path(), &host), &format!("{host}/org/app:1")).await);
        assert_eq!(
            registry.requests().last().unwrap().header("authorization"),
            Some(&*basic("ci", "hunter")),
            "{entry}"
        );
    }
    let folder = docker_config(&json!({&host: {"auth": "Y2k6aHVudGVyMg"}}));
    expect_digest(look_up(&with_config(folder.path(), &host), &format!("{host}/org/app:1")).await);
    assert_eq!(registry.requests().last().unwrap().header("authorization"), Some(&*basic("ci", "hunter2")));
    let open = Upstream::start(found).await;
    let folder = docker_config(&Value::Null);
    expect_digest(look_up(&with_config(folder.path(), &open.address), &format!("{}/org/app:1", open.address)).await);
}

/// Hosts have no case.
#[tokio::test]
async fn a_registry_is_the_same_in_capitals() {
    let registry = with_password().await;
    let port = registry.address.port();
    let folder = docker_config(&json!({format!("LOCALHOST:{port}"): user("ci", "p")}));
    let (registries, _) =
        build(folder.path(), &json!({format!("Localhost:{port}"): {"plainHttp": true, "dockerConfig": "docker.json"}}));
    expect_digest(look_up(&registries, &format!("localhost:{port}/org/app:1")).await);
    expect_digest(look_up(&registries, &format!("LocalHost:{port}/org/app:1")).await);
}

/// A registry that lets anybody read may answer 404 for what only some may see. Such a 404 proves nothing while there is a credential.
#[tokio::test]
async fn repositories_hidden_from_anonymous_requests_are_read_with_the_credential() {
    let unknown = r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#;
    let right = basic("ci", "right");
    for asks in [true, false] {
        let right = right.clone();
        let registry =
            Upstream::start(move |request| match (request.header("authorization"), request.target.as_str()) {
                (Some(given), _) if given == right => found(request),
                (Some(_), _) => request.answer(401, BASIC, ""),
                (None, "/v2/") if asks => request.answer(401, BASIC, ""),
                (None, "/v2/") => request.answer(200, JSON, "{}"),
                (None, _) => request.answer(404, JSON, unknown),
            })
            .await;
        let host = registry.address.to_string();
        let folder = docker_config(&json!({host.clone(): user("ci", "right")}));
        let allowed = with_config(folder.path(), &host);
        expect_digest(look_up(&allowed, &format!("{host}/org/app:1")).await);
        let count = registry.requests().len();
        expect_digest(look_up(&allowed, &format!("{host}/org/app:2")).await);
        assert_eq!(registry.requests().len(), count + 1, "the credential is sent at once");
        missing(look_up(&registries(&plain(&host)), &format!("{host}/org/app:1")).await);
        let folder = docker_config(&json!({host.clone(): user("ci", "wrong")}));
        let found = look_up(&with_config(folder.path(), &host), &format!("{host}/org/app:1")).await;
        refused(found, ErrorKind::Denied, "401");
    }
}

/// With a credential that cannot be used, or a root that has no clear answer, a 404 to anybody proves nothing.
#[tokio::test]
async fn a_404_proves_nothing_if_the_credential_cannot_be_used() {
    let unknown = r#"{"errors":[{"code":"MANIFEST_UNKNOWN"}]}"#;
    let negotiate = "WWW-Authenticate: Negotiate";
    let token = json!({"identitytoken": "refresh"});
    let unclear = "/v2/, which says how to use it, answers";
    for (root, headers, credential, kind, says) in [
        (401, negotiate, user("ci", "right"), ErrorKind::Denied, "asks for a login that is not understood"),
        (401, negotiate, token.clone(), ErrorKind::Denied, "asks for a login that is not understood"),
        (401, "X: y", token.clone(), ErrorKind::Denied, "asks for a login that is not understood"),
        (200, "X: y", token.clone(), ErrorKind::Denied, "names no token server that would take an identity token"),
        (503, "X: y", token, ErrorKind::Unavailable, unclear),
        (503, "X: y", user("ci", "right"), ErrorKind::Unavailable, unclear),
        (404, "X: y", user("ci", "right"), ErrorKind::Unavailable, unclear),
    ] {
        let registry = Upstream::start(move |request| match request.target.as_str() {
            "/v2/" => request.answer(root, headers, "{}"),
            _ => request.answer(404, JSON, unknown),
        })
        .await;
        let host = registry.address.to_string();
        let folder = docker_config(&json!({&host: credential}));
        let found = look_up(&with_config(folder.path(), &host), &format!("{host}/org/app:1")).await;
        let message = refused(found, kind, says);
        assert!(message.contains("a reply to anybody proves nothing"), "{message}");
        // Without a credential, it is what everybody sees.
        missing(look_up(&registries(&plain(&host)), &format!("{host}/org/app:1")).await);
    }
}

/// A registry may show anybody a part of its catalogue.
#[tokio::test]
async fn the_catalogue_is_read_with_the_credential() {
    let registry = Upstream::start(|request| {
        let has_login = request.header("authorization") == Some(&basic("ci", "right"));
        match (request.target.as_str(), has_login) {
            ("/v2/", false) => request.answer(401, BASIC, ""),
            (_, false) => request.answer(200, JSON, r#"{"repositories":["public"]}"#),
            (_, true) => request.answer(200, JSON, r#"{"repositories":["private","public"]}"#),
        }
    })
    .await;
    let host = registry.address.to_string();
    let folder = docker_config(&json!({&host: user("ci", "right")}));
    let all = with_config(folder.path(), &host).repositories(&host, deadline()).await.unwrap();
    assert_eq!(all, ["private", "public"]);
    let public = registries(&plain(&host)).repositories(&host, deadline()).await.unwrap();
    assert_eq!(public, ["public"], "without a credential, it is what everybody sees");
}
