//! Tokens: requested once per scope, renewed in time, and sent only to their own registry.

use std::{
    collections::BTreeSet,
    sync::{Mutex, atomic::AtomicUsize},
};

use futures_util::future::join_all;

use super::*;
use crate::support::{
    registry::{Registry, Setup},
    signer::Signer,
    upstream::Step,
};

/// A registry that accepts an authorization if `is_good` does. Its challenge is `challenge` (`HOST` is its own address), and
/// its token server answers `token`.
async fn with_tokens(
    challenge: &'static str,
    is_good: impl Fn(&str) -> bool + Send + Sync + 'static,
    token: impl Fn(&Request) -> Vec<Step> + Send + Sync + 'static,
) -> Upstream {
    Upstream::start(move |request| {
        if request.target.starts_with("/token") {
            return token(request);
        }
        if request.header("authorization").is_some_and(&is_good) {
            return found(request);
        }
        let challenge = challenge.replace("HOST", request.header("host").unwrap());
        request.answer(401, &format!("WWW-Authenticate: {challenge}"), "")
    })
    .await
}

const BEARER: &str = "Bearer realm=\"http://HOST/token\",service=\"s\"";

fn token_requests(upstream: &Upstream) -> Vec<Request> {
    upstream.requests().into_iter().filter(|request| request.target.starts_with("/token")).collect()
}

/// A token server that lets everybody pull, and a registry setup that trusts it.
async fn token_server() -> (Upstream, Setup, Arc<Signer>) {
    let signer = Arc::new(Signer::new());
    let key = Arc::clone(&signer);
    let server = Upstream::start(move |request| {
        let url = reqwest::Url::parse(&format!("http://x{}", request.target)).unwrap();
        let scope = url.query_pairs().find(|(name, _)| name == "scope").unwrap().1.into_owned();
        let repository = scope.split(':').nth(1).unwrap();
        request.answer(200, JSON, json!({"token": key.token(repository, 60), "expires_in": 30}).to_string())
    })
    .await;
    let tokens = Some((format!("http://{}/auth", server.address), signer.certificate()));
    (server, Setup { tokens, ..Setup::default() }, signer)
}

#[tokio::test]
async fn a_real_registry_accepts_a_token() {
    let mut registry = Registry::start().await;
    registry.push("front:feature-branch-1", "org/app:1").await;
    let digest = registry.inspect("org/app:1").await;
    registry.stop().await;
    let (server, setup, _signer) = token_server().await;
    registry.restart_as(setup).await;
    assert_eq!(reqwest::get(registry.url("org/app/manifests/1")).await.unwrap().status(), 401);
    let registries = registries(&plain(&registry.host));
    assert_eq!(expect_digest(look_up(&registries, &format!("{}/org/app:1", registry.host)).await).as_str(), digest);
    let contents = registries.contents(&registry.host, "org/app", &Digest::parse(&digest).unwrap(), deadline()).await;
    assert_eq!(contents.unwrap().platforms.len(), 1);
    assert_eq!(server.requests().len(), 1, "one token opens all of a repository");
}

#[tokio::test]
async fn a_silent_token_server_is_named_in_the_error() {
    let registry = with_tokens(BEARER, |_| true, |_| vec![Step::Hang]).await;
    let registries = registries(&plain(&registry.address));
    let reference = Reference::parse(&format!("{}/org/app:1", registry.address)).unwrap();
    let deadline = Instant::now() + Duration::from_millis(300);
    let found = registries.look_up(&reference, Patience { deadline, max_age: Duration::ZERO, joins: true }).await;
    let message = refused(found, ErrorKind::Timeout, "token server: ");
    assert!(message.contains(&registry.address.to_string()), "{message}");
}

#[tokio::test]
async fn each_repository_has_its_own_token() {
    let (server, setup, _signer) = token_server().await;
    let registry = Registry::start_as(setup).await;
    let registries = registries(&plain(&registry.host));
    let lookups = (0..20).map(|tag| {
        let reference = format!("{}/org/app{}:{tag}", registry.host, tag % 2);
        let registries = registries.clone();
        async move { look_up(&registries, &reference).await }
    });
    for found in join_all(lookups).await {
        assert_eq!(missing(found), Missing::Tag);
    }
    let scopes: Vec<String> = server.requests().into_iter().map(|request| request.target).collect();
    let once: BTreeSet<&String> = scopes.iter().collect();
    assert_eq!((scopes.len(), once.len()), (2, 2), "{scopes:?}");
    let scope = "/auth?service=test+registry&scope=repository%3Aorg%2Fapp0%3Apull";
    assert!(scopes.iter().any(|target| target == scope), "{scopes:?}");
    // A token is renewed after four fifths of its lifetime.
    advance_seconds(25).await;
    missing(look_up(&registries, &format!("{}/org/app0:x", registry.host)).await);
    assert_eq!(server.requests().len(), 3);
    missing(look_up(&registries, &format!("{}/org/app0:y", registry.host)).await);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_token_without_a_lifetime_is_kept_for_a_minute() {
    for (answer, life) in [
        (r#"{"token":"good"}"#, 60),
        (r#"{"token":"good","expires_in":null}"#, 60),
        (r#"{"access_token":"good","expires_in":300}"#, 300),
        (r#"{"token":"","access_token":"good","expires_in":"300"}"#, 300),
    ] {
        let registry =
            with_tokens(BEARER, |seen| seen == "Bearer good", move |request| request.answer(200, JSON, answer)).await;
        let registries = registries(&plain(&registry.address));
        let reference = format!("{}/org/app:1", registry.address);
        expect_digest(look_up(&registries, &reference).await);
        for (seconds, bought) in [(life * 4 / 5 - 2, 1), (4, 2)] {
            advance_seconds(seconds).await;
            expect_digest(look_up(&registries, &reference).await);
            assert_eq!(token_requests(&registry).len(), bought, "{answer}");
        }
    }
}

#[tokio::test]
async fn a_revoked_token_is_requested_again_once() {
    for status in [401, 403, 400] {
        let epoch = Arc::new(AtomicUsize::new(0));
        let (now, selling) = (Arc::clone(&epoch), Arc::clone(&epoch));
        let registry = Upstream::start(move |request| {
            let host = request.header("host").unwrap();
            if request.target.starts_with("/token") {
                let token = format!("t{}", selling.load(Ordering::SeqCst));
                return request.answer(200, JSON, json!({ "token": token }).to_string());
            }
            match request.header("authorization") {
                Some(seen) if seen == format!("Bearer t{}", now.load(Ordering::SeqCst)) => found(request),
                // No challenge, as at ECR, except for the first time.
                Some(_) if status != 401 => request.answer(status, "", ""),
                _ => request.answer(401, &format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\""), ""),
            }
        })
        .await;
        let registries = registries(&plain(&registry.address));
        let ask = |tag: usize| {
            let (registries, reference) = (registries.clone(), format!("{}/org/app:{tag}", registry.address));
            async move { look_up(&registries, &reference).await }
        };
        expect_digest(ask(0).await);
        epoch.fetch_add(1, Ordering::SeqCst);
        for found in join_all((0..20).map(ask)).await {
            expect_digest(found);
        }
        assert_eq!(token_requests(&registry).len(), 2, "{status}");
    }
}

#[tokio::test]
async fn a_refused_fresh_token_is_a_denial() {
    let registry = with_tokens(BEARER, |_| false, |request| request.answer(200, JSON, r#"{"token":"t"}"#)).await;
    let registries = registries(&plain(&registry.address));
    refused(look_up(&registries, &format!("{}/org/app:1", registry.address)).await, ErrorKind::Denied, "401");
    assert_eq!(token_requests(&registry).len(), 1);
    assert_eq!(registry.requests().len(), 3);
}

#[tokio::test]
async fn a_failing_token_server_is_no_denial() {
    for (status, kind) in [
        (500, ErrorKind::Unavailable),
        (503, ErrorKind::Unavailable),
        (408, ErrorKind::Unavailable),
        (429, ErrorKind::Throttled { retry_after: None }),
        (401, ErrorKind::Denied),
        (403, ErrorKind::Denied),
        (404, ErrorKind::InvalidOutput),
    ] {
        let registry = with_tokens(BEARER, |_| true, move |request| request.answer(status, "", "")).await;
        let registries = registries(&plain(&registry.address));
        let found = look_up(&registries, &format!("{}/org/app:1", registry.address)).await;
        refused(found, kind, "token server: ");
    }
}

#[tokio::test]
async fn an_identity_token_requests_tokens_by_form() {
    let registry = with_tokens(
        BEARER,
        |seen| seen == "Bearer good",
        |request| request.answer(200, JSON, r#"{"access_token":"good"}"#),
    )
    .await;
    let folder = docker_config(&json!({registry.address.to_string(): {"identitytoken": "a+b &c"}}));
    let entry = json!({"plainHttp": true, "dockerConfig": "docker.json"});
    let (registries, _) = build(folder.path(), &json!({registry.address.to_string(): entry}));
    expect_digest(look_up(&registries, &format!("{}/org/app:1", registry.address)).await);
    let request = token_requests(&registry).remove(0);
    assert_eq!((&*request.method, &*request.target), ("POST", "/token"));
    assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(request.header("authorization"), None);
    assert_eq!(
        String::from_utf8(request.body).unwrap(),
        "service=s&scope=repository%3Aorg%2Fapp%3Apull&grant_type=refresh_token&client_id=appset-gateway\
         &refresh_token=a%2Bb+%26c"
    );
}

#[tokio::test]
async fn the_challenge_determines_the_token_request() {
    for (challenge, query) in [
        // GitLab names a service that is no host, and may demand more than pull rights.
        (
            "Bearer realm=\"http://HOST/token\",service=\"container:registry\",scope=\"repository:org/app:pull,push\"",
            "?service=container%3Aregistry&scope=repository%3Aorg%2Fapp%3Apull%2Cpush",
        ),
        (
            "Bearer realm=\"http://HOST/token\",scope=\"repository:org/app:pull repository:base:pull\"",
            "?scope=repository%3Aorg%2Fapp%3Apull&scope=repository%3Abase%3Apull",
        ),
        ("Bearer realm=\"http://HOST/token?account=x\"", "?account=x&scope=repository%3Aorg%2Fapp%3Apull"),
    ] {
        let registry = with_tokens(challenge, |_| true, |request| request.answer(200, JSON, r#"{"token":"t"}"#)).await;
        let registries = registries(&plain(&registry.address));
        expect_digest(look_up(&registries, &format!("{}/org/app:1", registry.address)).await);
        assert_eq!(token_requests(&registry)[0].target, format!("/token{query}"));
    }
}

#[tokio::test]
async fn no_credential_goes_to_an_unsafe_realm() {
    let other = Upstream::start_apart(|request| request.answer(200, JSON, r#"{"token":"t"}"#)).await;
    for (realm, says) in [
        (format!("http://{}/token", other.address), "inner address 127.77."),
        ("http://169.254.169.254/latest/meta-data".to_owned(), "inner address 169.254.169.254"),
        ("ftp://registry.example/token".to_owned(), "not https"),
        ("http://ci@registry.example/token".to_owned(), "holds a user"),
        ("/token".to_owned(), "not a URL"),
    ] {
        let challenge = format!("Bearer realm=\"{realm}\"").leak();
        let registry = with_tokens(challenge, |_| true, |request| request.answer(200, JSON, "{}")).await;
        let folder = docker_config(&json!({registry.address.to_string(): user("ci", "hunter2")}));
        let entry = json!({"plainHttp": true, "dockerConfig": "docker.json"});
        let (registries, _) = build(folder.path(), &json!({registry.address.to_string(): entry}));
        let found = look_up(&registries, &format!("{}/org/app:1", registry.address)).await;
        refused(found, ErrorKind::Denied, says);
        assert!(registry.requests().iter().all(|request| request.header("authorization").is_none()));
    }
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_moved_token_server_is_found_again() {
    let path = Arc::new(Mutex::new("old"));
    let now = Arc::clone(&path);
    let registry = Upstream::start(move |request| {
        let (host, path) = (request.header("host").unwrap(), *now.lock().unwrap());
        if request.target.starts_with(&format!("/token/{path}")) {
            return request.answer(200, JSON, json!({ "token": path }).to_string());
        }
        if request.target.starts_with("/token/") {
            return request.answer(404, "", "");
        }
        if request.header("authorization") == Some(&*format!("Bearer {path}")) {
            return found(request);
        }
        request.answer(401, &format!("WWW-Authenticate: Bearer realm=\"http://{host}/token/{path}\""), "")
    })
    .await;
    let registries = registries(&plain(&registry.address));
    let reference = format!("{}/org/app:1", registry.address);
    expect_digest(look_up(&registries, &reference).await);
    // With a valid token, the registry's challenge names the new server.
    *path.lock().unwrap() = "new";
    expect_digest(look_up(&registries, &reference).await);
    // Without a token, the next lookup learns it.
    *path.lock().unwrap() = "newer";
    advance_seconds(49).await;
    refused(look_up(&registries, &reference).await, ErrorKind::InvalidOutput, "token server: ");
    expect_digest(look_up(&registries, &reference).await);
}

#[tokio::test]
async fn registries_on_one_host_share_no_tokens() {
    let registry =
        with_tokens(BEARER, |_| true, |request| request.answer(200, JSON, r#"{"token":"t","expires_in":300}"#)).await;
    let folder = docker_config(&json!({"one.example": user("one", "1")}));
    let entry = |more: Value| {
        let mut entry = json!({"plainHttp": true, "endpoint": registry.address.to_string()});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    let (registries, _) = build(
        folder.path(),
        &json!({"one.example": entry(json!({"dockerConfig": "docker.json"})), "two.example": entry(json!({}))}),
    );
    for host in ["one.example", "two.example", "one.example", "two.example"] {
        expect_digest(look_up(&registries, &format!("{host}/org/app:1")).await);
    }
    let seen: Vec<bool> =
        token_requests(&registry).iter().map(|request| request.header("authorization").is_some()).collect();
    assert_eq!(seen, [true, false]);
}

/// A registry with two token servers: it offers both on each 401, and refuses with `status` the tokens of the one that it does not trust.
async fn with_two_servers(trusted: &Arc<Mutex<&'static str>>, status: u16) -> Upstream {
    let trusted = Arc::clone(trusted);
    Upstream::start(move |request| {
        let (host, trusted) = (request.header("host").unwrap(), *trusted.lock().unwrap());
        if let Some(server) = request.target.strip_prefix("/token/") {
            return request.answer(200, JSON, json!({ "token": &server[..1] }).to_string());
        }
        let offers =
            ["a", "b"].map(|server| format!("WWW-Authenticate: Bearer realm=\"http://{host}/token/{server}\""));
        match request.header("authorization") {
            Some(token) if token == format!("Bearer {trusted}") => found(request),
            Some(_) => request.answer(status, &offers.join("\r\n"), ""),
            None => request.answer(401, &offers.join("\r\n"), ""),
        }
    })
    .await
}

/// The challenge that the registry accepted last, and then the others; also after a 403.
#[tokio::test]
async fn each_challenge_is_tried() {
    for status in [401, 403] {
        let trusted = Arc::new(Mutex::new("a"));
        let registry = with_two_servers(&trusted, status).await;
        let registries = registries(&plain(&registry.address));
        let reference = format!("{}/org/app:1", registry.address);
        for server in ["a", "b", "b", "a"] {
            *trusted.lock().unwrap() = server;
            expect_digest(look_up(&registries, &reference).await);
            advance_seconds(120).await;
        }
        *trusted.lock().unwrap() = "neither";
        let asked = registry.requests().len();
        assert!(look_up(&registries, &reference).await.is_err(), "{status}");
        assert!(registry.requests().len() - asked <= 6, "{status}: each is tried once");
    }
}

/// All challenges of all lines are read. A token is tried before a password, and then the next.
#[tokio::test]
async fn the_challenge_that_can_be_answered_is_taken() {
    let bearer = r#"Bearer realm="http://HOST/token",service="s""#;
    for challenge in [
        format!("WWW-Authenticate: Basic realm=\"a, b\", {bearer}"),
        format!("WWW-Authenticate: Basic realm=\"x\"\r\nWWW-Authenticate: {bearer}"),
        format!("WWW-Authenticate: Negotiate, Basic realm = \"say \\\"Bearer\\\", please\" , {bearer}"),
        "WWW-Authenticate: bearer realm = \"http://HOST/token\" , service = s".to_owned(),
        format!("WWW-Authenticate: Basic realm=\"\u{e9}\"\r\nWWW-Authenticate: {bearer}, Basic realm=\"x\""),
    ] {
        for (accepted, token_status, with_password) in [
            ("Bearer good", 200, false),
            ("Bearer good", 200, true),
            ("Basic Y2k6aHVudGVyMg==", 200, true),
            ("Basic Y2k6aHVudGVyMg==", 403, true),
        ] {
            if accepted.starts_with("Basic") && !challenge.contains("Basic") {
                continue;
            }
            let asked_for = challenge.clone();
            let registry = Upstream::start(move |request| {
                let host = request.header("host").unwrap();
                if request.target.starts_with("/token") {
                    return request.answer(token_status, JSON, r#"{"token":"good"}"#);
                }
                if request.header("authorization") == Some(accepted) {
                    return found(request);
                }
                request.answer(401, &asked_for.replace("HOST", host), "")
            })
            .await;
            let host = registry.address.to_string();
            let folder = docker_config(&json!({&host: user("ci", "hunter2")}));
            let entry = if with_password {
                json!({"plainHttp": true, "dockerConfig": "docker.json"})
            } else {
                json!({"plainHttp": true})
            };
            let (registries, _) = build(folder.path(), &json!({&host: entry}));
            for tag in 1..3 {
                expect_digest(look_up(&registries, &format!("{host}/org/app:{tag}")).await);
            }
            // What was accepted is remembered.
            let refusals =
                registry.requests().iter().filter(|request| request.header("authorization") != Some(accepted)).count();
            assert!(refusals <= 3, "{challenge}: {refusals}");
        }
    }
}
