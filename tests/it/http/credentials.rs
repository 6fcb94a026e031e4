//! Credentials: a secret that is read at each use, or a token that is requested, kept, and requested again after a refusal.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use tempfile::TempDir;

use super::*;
use crate::support::upstream::Request;

/// A folder with the secret `hunter2`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("secret"), "hunter2\n").unwrap();
    folder
}

async fn start(upstream: &Upstream, credential: Value) -> TestApp {
    TestApp::start_in(folder(), &config(upstream, "/list", json!({"credential": credential}))).await
}

/// The `Authorization` headers that `upstream` got.
fn sent(upstream: &Upstream) -> Vec<String> {
    upstream.requests().iter().filter_map(|request| Some(request.header("authorization")?.to_owned())).collect()
}

#[tokio::test]
async fn a_secret_is_read_at_each_use() {
    let upstream = Upstream::always(json_response(SETS)).await;
    let app = start(&upstream, json!({"bearer": {"file": "secret"}})).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
    std::fs::write(app.folder.path().join("secret"), "hunter3").unwrap();
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
    assert_eq!(sent(&upstream), ["Bearer hunter2", "Bearer hunter3"]);

    let upstream = Upstream::always(json_response(SETS)).await;
    let app = start(&upstream, json!({"basic": {"username": "ä user", "password": {"file": "secret"}}})).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
    assert_eq!(sent(&upstream), [format!("Basic {}", STANDARD.encode("ä user:hunter2"))]);
    std::fs::remove_file(app.folder.path().join("secret")).unwrap();
    refused(&app.ask_afresh("h", json!({})).await, 502, "backend_failed", "secret");
}

#[tokio::test]
async fn a_secret_is_never_shown_in_an_error() {
    for credential in
        [json!({"bearer": {"file": "secret"}}), json!({"basic": {"username": "u", "password": {"file": "secret"}}})]
    {
        let upstream =
            Upstream::start(|request| request.answer(403, "", format!("no: {:?} hunter2", request.headers))).await;
        let message =
            refused(&start(&upstream, credential).await.ask_afresh("h", json!({})).await, 502, "backend_failed", "403");
        let encoded = STANDARD.encode("u:hunter2");
        assert!(!message.contains("hunter2") && !message.contains(&encoded), "{message}");
    }
}

/// A token server that issues `t1`, `t2`, … for `expires` seconds, and a source that accepts tokens from number `good` on.
struct OauthService {
    tokens: Upstream,
    source: Upstream,
    good: Arc<AtomicUsize>,
}

async fn start_oauth(expires: Value) -> OauthService {
    let sold = AtomicUsize::new(0);
    let tokens = Upstream::start(move |request| {
        let n = sold.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = json!({"access_token": format!("t{n}"), "token_type": "bearer", "expires_in": expires});
        request.answer(200, "Content-Type: application/json\r\nCache-Control: no-store", answer.to_string())
    })
    .await;
    let good = Arc::new(AtomicUsize::new(1));
    let taken = Arc::clone(&good);
    let source = Upstream::start(move |request: &Request| {
        let wanted = format!("Bearer t{}", taken.load(Ordering::SeqCst));
        if request.header("authorization") == Some(&*wanted) { json(SETS) } else { status(401, "", "who?") }
    })
    .await;
    OauthService { tokens, source, good }
}

fn oauth2(tokens: &Upstream, more: Value) -> Value {
    let mut config = json!({
        "tokenUrl": format!("http://{}/oauth/token", tokens.address),
        "clientId": "gate way", "clientSecret": {"file": "secret"},
    });
    let Value::Object(more) = more else { panic!("{more}") };
    config.as_object_mut().unwrap().extend(more);
    json!({"oauth2": config})
}

#[tokio::test]
async fn a_token_request_follows_rfc_6749() {
    let OauthService { tokens, source, .. } = start_oauth(json!(3600.0)).await;
    let more = json!({"scopes": ["read", "list"], "parameters": {"audience": "https://api.example.com"}});
    let app = start(&source, oauth2(&tokens, more)).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
    let request = &tokens.requests()[0];
    assert_eq!((&*request.method, &*request.target), ("POST", "/oauth/token"));
    assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(request.header("authorization"), Some(&*format!("Basic {}", STANDARD.encode("gate+way:hunter2"))));
    assert_eq!(
        String::from_utf8_lossy(&request.body),
        "grant_type=client_credentials&scope=read+list&audience=https%3A%2F%2Fapi.example.com"
    );

    let OauthService { tokens, source, .. } = start_oauth(json!("3600")).await;
    let app = start(&source, oauth2(&tokens, json!({"clientAuthentication": "body"}))).await;
    assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
    let request = &tokens.requests()[0];
    assert_eq!(request.header("authorization"), None);
    assert_eq!(
        String::from_utf8_lossy(&request.body),
        "grant_type=client_credentials&client_id=gate+way&client_secret=hunter2"
    );
}

#[tokio::test]
async fn one_token_serves_all_requests_for_four_fifths_of_its_life() {
    let OauthService { tokens, source, good } = start_oauth(json!(100)).await;
    let app = start(&source, oauth2(&tokens, json!({}))).await;
    let all = join_all((0..30).map(|n| app.ask("h", json!({"n": n.to_string()})))).await;
    assert!(all.iter().all(|reply| reply.sets() == SETS));
    app.clock.advance(Duration::from_secs(79));
    assert_eq!(app.ask("h", json!({})).await.sets(), SETS);
    assert_eq!(tokens.requests().len(), 1);
    app.clock.advance(Duration::from_secs(2));
    good.store(2, Ordering::SeqCst);
    assert_eq!(app.ask("h", json!({})).await.sets(), SETS);
    assert_eq!(tokens.requests().len(), 2);
}

#[tokio::test]
async fn a_refused_token_is_requested_again_once() {
    let OauthService { tokens, source, good } = start_oauth(json!(3600)).await;
    let app = start(&source, oauth2(&tokens, json!({}))).await;
    assert_eq!(app.ask("h", json!({})).await.sets(), SETS);
    // The token is revoked before it expires.
    good.store(2, Ordering::SeqCst);
    assert_eq!(app.ask("h", json!({})).await.sets(), SETS);
    assert_eq!((tokens.requests().len(), source.requests().len()), (2, 3));
    good.store(9, Ordering::SeqCst);
    refused(&app.ask("h", json!({"n": "2"})).await, 502, "backend_failed", "access denied (401 Unauthorized): who?");
    assert_eq!((tokens.requests().len(), source.requests().len()), (3, 5));
}

#[tokio::test]
async fn a_form_encoded_secret_is_never_shown() {
    let tokens = Upstream::start(|request| request.answer(400, "", request.body.clone())).await;
    let source = Upstream::always(json_response(SETS)).await;
    let folder = folder();
    std::fs::write(folder.path().join("secret"), "hunter+2/\n").unwrap();
    let credential = oauth2(&tokens, json!({"clientAuthentication": "body"}));
    let app = TestApp::start_in(folder, &config(&source, "/list", json!({"credential": credential}))).await;
    let message = refused(&app.ask_afresh("h", json!({})).await, 502, "backend_failed", "client_secret=[redacted]");
    assert!(!message.contains("hunter"), "{message}");
}

/// A source with one list per tenant. Its only version is a date.
#[tokio::test]
async fn a_kept_answer_of_one_tenant_is_never_served_to_another() {
    const DATES: &str = "Last-Modified: Sat, 21 Nov 2026 10:00:00 GMT\r\nDate: Sat, 21 Nov 2026 11:00:00 GMT";
    let tokens = Upstream::start(|request| {
        let body = String::from_utf8_lossy(&request.body);
        let tenant = body.split_once("tenant=").map_or("none", |(_, tenant)| tenant);
        let answer = json!({"access_token": tenant, "token_type": "bearer"});
        request.answer(200, "Content-Type: application/json", answer.to_string())
    })
    .await;
    let source = Upstream::start(|request| {
        if request.header("if-modified-since").is_some() {
            return status(304, "", "");
        }
        let whose = format!("{:?} {:?}", request.header("authorization"), request.header("x-tenant"));
        request.answer(200, &format!("Content-Type: application/json\r\n{DATES}"), json!([{"a": whose}]).to_string())
    })
    .await;
    let folder = folder();
    std::fs::write(folder.path().join("other"), "hunter3\n").unwrap();
    let route = |name: &str, tenant: &str, secret: &str| {
        let credential = oauth2(&tokens, json!({"parameters": {"tenant": tenant}}));
        let url = format!("http://{}/list", source.address);
        let http = json!({"url": url, "credential": credential, "headers": {"X-Tenant": {"file": secret}}});
        json!({"name": name, "backend": {"http": http}, "cache": {"ttl": "0s"}})
    };
    let routes = json!([route("a", "a", "secret"), route("b", "b", "secret"), route("c", "a", "other")]);
    let app = TestApp::start_in(folder, &format!("{}routes: {routes}\n", TestApp::auth())).await;
    let mut all = Vec::new();
    for name in ["a", "b", "c", "a", "b", "c"] {
        all.push(app.ask_afresh(name, json!({})).await.sets());
    }
    assert_eq!(all[..3], all[3..]);
    assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2], "{all:?}");
    let conditional = source.requests().iter().filter(|request| request.header("if-modified-since").is_some()).count();
    assert_eq!(conditional, 3, "each asked whether its own list has changed");
}

#[tokio::test]
async fn a_bad_token_answer_is_reported_without_its_secret() {
    let answer = |status: u16, body: &str| send(response(status, "Content-Type: application/json", body));
    // A truncated message could show half of the secret.
    let cut = json!({"error": "e", "error_description": format!("{}hunter2", "x".repeat(191))}).to_string();
    let also_cut = format!("{}hunter2", "x".repeat(194));
    for (steps, code, says) in [
        (
            answer(401, r#"{"error":"invalid_client","error_description":"no hunter2 here"}"#),
            "backend_failed",
            "no token (401 Unauthorized): invalid_client: no [redacted] here; check `clientId`",
        ),
        (answer(400, r#"{"error":"invalid_scope"}"#), "backend_failed", "invalid_scope; check"),
        (answer(400, &cut), "backend_failed", "xx[redac…; check"),
        (answer(500, &also_cut), "backend_failed", "xx[redac…"),
        (answer(403, "<html>"), "backend_failed", "no token (403 Forbidden): <html>; check"),
        (answer(503, "soon"), "backend_failed", "503"),
        (answer(302, ""), "backend_output_invalid", "302"),
        (answer(200, r#"{"token":"hunter3"}"#), "backend_output_invalid", "not a token as RFC 6749 has it"),
        (
            answer(200, r#"{"access_token":"hunter3","token_type":"mac"}"#),
            "backend_output_invalid",
            "not a bearer token",
        ),
        (answer(200, r#"{"access_token":""}"#), "backend_output_invalid", "the token is empty"),
        (answer(200, r#"{"access_token":"hunter3\n"}"#), "backend_output_invalid", "no header can carry"),
        (answer(200, r#"{"access_token":"hunter3","expires_in":"soon"}"#), "backend_output_invalid", "`expires_in`"),
        (vec![Step::Reset], "backend_failed", "token server"),
    ] {
        let tokens = Upstream::start(move |_| steps.clone()).await;
        let source = Upstream::always(json_response(SETS)).await;
        let app = start(&source, oauth2(&tokens, json!({"clientAuthentication": "body"}))).await;
        let message = refused(&app.ask_afresh("h", json!({})).await, 502, code, says);
        assert!(message.contains("token server: ") && !message.contains("hunter"), "{message}");
        assert!(source.requests().is_empty(), "nothing is asked without a token");
    }
}

#[tokio::test]
async fn a_github_app_authenticates_as_its_installation() {
    let sold = AtomicUsize::new(0);
    let github = Upstream::start(move |request: &Request| {
        let authorization = request.header("authorization").unwrap_or_default();
        if request.target == "/api/v3/app/installations/67/access_tokens" {
            assert!(request.method == "POST" && authorization.starts_with("Bearer ey"), "{authorization}");
            let n = sold.fetch_add(1, Ordering::SeqCst) + 1;
            let token = json!({"token": format!("ghs_{n}"), "expires_at": "2099-01-01T00:00:00Z"});
            return send(response(201, "Content-Type: application/json", token.to_string()));
        }
        if authorization == "Bearer ghs_1" { json(SETS) } else { status(401, "", "bad credentials") }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key.pem");
    let made =
        std::process::Command::new("openssl").args(["genrsa", "-traditional", "-out"]).arg(&key).arg("2048").output();
    assert!(made.unwrap().status.success());
    let app = json!({
        "id": 45, "installation": 67, "privateKey": {"file": "key.pem"}, "api": format!("http://{}/api/v3", github.address),
    });
    let app = TestApp::start_in(folder, &config(&github, "/api/v3/x", json!({"credential": {"githubApp": app}}))).await;
    for _ in 0..3 {
        assert_eq!(app.ask_afresh("h", json!({})).await.sets(), SETS);
    }
    assert_eq!(github.requests().iter().filter(|request| request.method == "POST").count(), 1);
}

#[test]
fn credential_mistakes_are_reported_at_startup() {
    let folder = folder();
    for (more, says) in [
        (json!({"credential": {"bearer": {"file": "none"}}}), "credential.bearer: "),
        (
            json!({"credential": {"basic": {"username": "a:b", "password": {"file": "secret"}}}}),
            "credential.basic.username: ",
        ),
        (
            json!({"credential": {"oauth2": {"tokenUrl": "/t", "clientId": "c", "clientSecret": {"file": "secret"}}}}),
            "credential.oauth2.tokenUrl: ",
        ),
        (
            json!({"credential": {"oauth2": {"tokenUrl": "http://h/", "clientId": "c", "clientSecret": {"file": "secret"}, "parameters": {"scope": "x"}}}}),
            "credential.oauth2.parameters.scope: it has a key of its own",
        ),
        (
            json!({"credential": {"githubApp": {"id": 1, "installation": 2, "privateKey": {"file": "secret"}}}}),
            "credential.githubApp.privateKey: ",
        ),
        (
            json!({"credential": {"bearer": {"file": "secret"}}, "headers": {"authorization": "x"}}),
            "credential: it is sent as `Authorization`",
        ),
    ] {
        let mut http = json!({"url": "https://h.example/"});
        http.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let routes = json!([{"name": "h", "backend": {"http": http}}]);
        let config = format!("{}routes: {routes}\n", TestApp::auth());
        let Err(report) = crate::support::app::build(folder.path(), &config, crate::support::TestClock::standing())
        else {
            panic!("{more} is taken");
        };
        let text = report.lines().join("\n");
        assert!(text.contains(&format!("routes[0].backend.http.{says}")), "{text}");
    }
}

/// As Django wants it. The prefix is not a secret, and the secret after it is none in a message.
#[tokio::test]
async fn a_header_has_its_secret_after_a_prefix() {
    let upstream = Upstream::start(|request| match request.header("authorization") {
        Some("Token hunter2") => vec![Step::Send(json_response(SETS))],
        other => request.answer(403, "", format!("no: {other:?}")),
    })
    .await;
    let more = |prefix: &str| json!({"headers": {"Authorization": {"file": "secret", "prefix": prefix}}});
    let start = async |prefix: &str| TestApp::start_in(folder(), &config(&upstream, "/list", more(prefix))).await;
    assert_eq!(start("Token ").await.ask_afresh("h", json!({})).await.sets(), SETS);
    let message = refused(&start("ApiKey ").await.ask_afresh("h", json!({})).await, 502, "backend_failed", "403");
    assert!(message.contains("[redacted]") && !message.contains("hunter2"), "{message}");
}
