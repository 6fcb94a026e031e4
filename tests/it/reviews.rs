//! Callers that a Kubernetes API server authenticates (`TokenReview`). A fake answers as the API documents it.

mod unknown_callers;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use auth::hash_token;
use jsonwebtoken::Algorithm;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    ADMIN_TOKEN, Reply, TOKEN, TestApp,
    app::build,
    binary::Gateway,
    issuer::SigningKey,
    upstream::{Request, Step, Upstream, response},
    wire::{argo_request, exchange},
};

const AUDIENCE: &str = "appset-gateway";
const USER: &str = "system:serviceaccount:argocd:argocd-applicationset-controller";

/// The `status` of a review.
fn authenticated(user: &str, audiences: &[&str]) -> Value {
    let groups = ["system:serviceaccounts", "system:serviceaccounts:argocd", "system:authenticated"];
    json!({"authenticated": true, "audiences": audiences, "user": {"username": user, "uid": "5", "groups": groups}})
}

/// A response with a review.
fn reviewed(status: &Value) -> Vec<u8> {
    let review =
        json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "status": status});
    response(201, "Content-Type: application/json", review.to_string())
}

/// The API server's error for a refused call.
fn status(code: u16, reason: &str) -> Vec<u8> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": format!("tokenreviews.authentication.k8s.io is forbidden: {reason}")});
    response(code, "Content-Type: application/json", status.to_string())
}

/// A fake API server.
struct Api {
    upstream: Upstream,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Api {
    async fn start(answer: Vec<u8>) -> Self {
        let answer = Arc::new(Mutex::new(answer));
        let current_answer = Arc::clone(&answer);
        let upstream = Upstream::start_apart(move |_| vec![Step::Send(current_answer.lock().unwrap().clone())]).await;
        Self { upstream, answer }
    }

    fn say(&self, answer: Vec<u8>) {
        *self.answer.lock().unwrap() = answer;
    }

    fn requests(&self) -> Vec<Request> {
        self.upstream.requests()
    }
}

fn config(api: &Upstream, callers: &Value) -> Value {
    let token = |name: &str, token: &str, role: &str| json!({"name": name, "sha256": hash_token(token), "role": role});
    let review = json!({"api": format!("http://{}", api.address), "token": {"file": "own"},
        "audiences": [AUDIENCE], "callers": callers});
    json!({
        "auth": {"tokens": [token("test", TOKEN, "caller"), token("operator", ADMIN_TOKEN, "admin")], "tokenReview": review},
        "routes": [
            {"name": "r", "match": {}, "backend": {"fixed": {"parameters": [{"a": "b"}]}}},
            {"name": "other", "backend": {"fixed": {"parameters": [{"c": "d"}]}}},
        ],
    })
}

/// A gateway that accepts the service accounts of Argo CD.
async fn gateway(api: &Api) -> TestApp {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own"), "own-token\n").unwrap();
    let callers = json!([{"user": "system:serviceaccount:argocd:*", "routes": ["r"]}]);
    TestApp::start_in(folder, &config(&api.upstream, &callers).to_string()).await
}

/// A token like a service account's. Only the API server checks its signature.
fn token(life: u64) -> String {
    let now = crate::support::TestClock::standing();
    let now = domain::clock::Clock::now(&*now).0 / 1000;
    let claims = json!({"iss": "https://kubernetes.default.svc", "aud": [AUDIENCE], "sub": USER, "exp": now + life});
    SigningKey::shared("nobody knows").sign(&claims)
}

async fn ask(app: &TestApp, route: &str, token: &str) -> Reply {
    app.send(&argo_request(&format!("/{route}/api/v1/getparams.execute"), token, b"{}")).await
}

#[tokio::test]
async fn a_service_account_is_a_caller() {
    let api = Api::start(reviewed(&authenticated(USER, &[AUDIENCE]))).await;
    let app = gateway(&api).await;
    let token = token(3600);
    for _ in 0..3 {
        assert_eq!(ask(&app, "r", &token).await.status, 200);
        assert_eq!(ask(&app, "r", TOKEN).await.status, 200);
    }
    let refused = ask(&app, "other", &token).await;
    assert_eq!(refused.message(), format!("the caller `{USER}` may not ask the route `other`; see its `routes`"));
    let [request] = &api.requests()[..] else { panic!("{:?}", api.requests()) };
    assert_eq!((&*request.method, &*request.target), ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"));
    assert_eq!(request.header("authorization"), Some("Bearer own-token"));
    let sent: Value = serde_json::from_slice(&request.body).unwrap();
    let expected = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": [AUDIENCE]}});
    assert_eq!(sent, expected);
    assert_eq!(app.metric("appset_gateway_token_reviews_total{outcome=\"authenticated\"}").await, 1);
    app.clock.advance(Duration::from_secs(59));
    assert_eq!(ask(&app, "r", &token).await.status, 200);
    assert_eq!(api.requests().len(), 1);
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(ask(&app, "r", &token).await.status, 200);
    assert_eq!(api.requests().len(), 2, "a token that was revoked works no longer than a minute");
}

#[tokio::test]
async fn other_service_accounts_are_refused() {
    let stranger = "the bearer token is missing or wrong";
    for (status, says) in [
        (json!({"error": "[invalid bearer token, service account token has expired]"}), stranger),
        (json!({"authenticated": false}), stranger),
        (json!({}), stranger),
        (authenticated(USER, &[]), "the token is for another audience; it must be for `appset-gateway`"),
        (authenticated(USER, &["https://kubernetes.default.svc"]), "the token is for another audience"),
        (
            authenticated("system:serviceaccount:argocd2:x", &[AUDIENCE]),
            "the cluster's user `system:serviceaccount:argocd2:x` is none of",
        ),
        (authenticated("system:anonymous", &[AUDIENCE]), "the cluster's user `system:anonymous` is none of"),
    ] {
        let api = Api::start(reviewed(&status)).await;
        let app = gateway(&api).await;
        let token = token(3600);
        for _ in 0..2 {
            let reply = ask(&app, "r", &token).await;
            assert_eq!((reply.status, &*reply.code()), (403, "forbidden"), "{status}");
            assert!(reply.message().starts_with(says), "{status}: {}", reply.message());
        }
        assert_eq!(api.requests().len(), 1, "{status}: it is remembered");
        api.say(reviewed(&authenticated(USER, &[AUDIENCE])));
        app.clock.advance(Duration::from_secs(10));
        assert_eq!(ask(&app, "r", &token).await.status, 200, "{status}: not for long");
    }
}

#[tokio::test]
async fn a_token_is_not_accepted_beyond_its_lifetime() {
    let api = Api::start(reviewed(&authenticated(USER, &[AUDIENCE]))).await;
    let app = gateway(&api).await;
    let token = token(20);
    assert_eq!(ask(&app, "r", &token).await.status, 200);
    api.say(reviewed(&json!({"error": "token has expired"})));
    app.clock.advance(Duration::from_secs(21));
    assert_eq!(ask(&app, "r", &token).await.status, 403);
}

#[tokio::test]
async fn a_failing_api_server_is_a_temporary_error() {
    let api = Api::start(Vec::new()).await;
    let app = gateway(&api).await;
    let mut api = api;
    let review = json!({"status": authenticated("", &[AUDIENCE])}).to_string();
    for (what, answer) in [
        ("its own token is refused", status(401, "Unauthorized")),
        ("it may not ask", status(403, "User \"gateway\" cannot create resource \"tokenreviews\"")),
        ("in trouble", status(500, "InternalError")),
        ("no such path", status(404, "NotFound")),
        ("redirected", response(302, "Location: https://login.example\r\nContent-Type: application/json", "{}")),
        ("HTML", response(200, "Content-Type: text/html", "<html>")),
        ("blank", response(200, "Content-Type: application/json", "")),
        ("no review", response(200, "Content-Type: application/json", "{}")),
        ("nobody by name", response(200, "Content-Type: application/json", review)),
        ("closed", Vec::new()),
    ] {
        api.say(answer);
        let reply = ask(&app, "r", &token(3600)).await;
        assert_eq!((reply.status, &*reply.code()), (503, "unavailable"), "{what}: {}", reply.text());
        assert_eq!(reply.header("retry-after"), Some("5"));
        app.clock.advance(Duration::from_mins(1));
    }
    api.upstream.refuse().await;
    let token = token(7200);
    assert_eq!(ask(&app, "r", &token).await.status, 503);
    assert_eq!(ask(&app, "r", TOKEN).await.status, 200, "others are not concerned");
    assert!(app.metric("appset_gateway_token_reviews_total{outcome=\"failed\"}").await >= 11);
    api.upstream.listen().await;
    api.say(reviewed(&authenticated(USER, &[AUDIENCE])));
    app.clock.advance(Duration::from_mins(1));
    assert_eq!(ask(&app, "r", &token).await.status, 200, "a failure is not remembered");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_with_one_token_cause_one_review() {
    let api = Api::start(reviewed(&authenticated(USER, &[AUDIENCE]))).await;
    let app = Arc::new(gateway(&api).await);
    let token = Arc::new(token(3600));
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let (app, token) = (Arc::clone(&app), Arc::clone(&token));
            tokio::spawn(async move { ask(&app, "r", &token).await.status })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), 200);
    }
    assert_eq!(api.requests().len(), 1);
}

/// A token that is no JWT, or that names a configured issuer, is not sent to the API server.
#[tokio::test]
async fn only_possible_cluster_tokens_are_reviewed() {
    let api = Api::start(reviewed(&authenticated(USER, &[AUDIENCE]))).await;
    let key = SigningKey::new("k", Algorithm::EdDSA);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("own"), "own-token").unwrap();
    std::fs::write(folder.path().join("key.pem"), &key.public_pem).unwrap();
    let mut configured = config(&api.upstream, &json!([{"user": "*", "groups": ["system:authenticated"]}]));
    configured["auth"]["jwt"] =
        json!([{"issuer": "own", "audience": AUDIENCE, "algorithms": ["EdDSA"], "publicKey": "key.pem"}]);
    let app = TestApp::start_in(folder, &configured.to_string()).await;
    let of_own = key.sign(&json!({"iss": "own", "aud": "other", "sub": "s", "exp": 9_999_999_999_u64}));
    for token in ["a-mistyped-password", &"x.".repeat(5000), &of_own] {
        assert_eq!(ask(&app, "r", token).await.status, 403, "{token}");
    }
    assert_eq!(api.requests().len(), 0);
    assert_eq!(ask(&app, "r", &token(60)).await.status, 200);
}

#[test]
fn review_mistakes_are_reported_all_at_once() {
    let problems = |review: Value| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own"), "t").unwrap();
        let tokens = json!([{"name": "t", "sha256": hash_token(TOKEN)}]);
        let config = json!({"auth": {"tokens": tokens, "tokenReview": review},
            "routes": [{"name": "r", "backend": {"fixed": {"parameters": []}}}]});
        let built = build(folder.path(), &config.to_string(), crate::support::TestClock::standing());
        built.err().map(|report| report.lines().join("\n")).unwrap_or_default()
    };
    let callers = json!([{"user": "a"}]);
    let reported = problems(json!({"audiences": [], "callers": []}));
    for says in ["audiences: without an audience", "callers: without callers", "token: cannot read", "ca: "] {
        assert!(reported.contains(&format!("auth.tokenReview.{says}")), "{says}: {reported}");
    }
    let plain = problems(
        json!({"api": "http://api.example", "token": {"file": "own"}, "audiences": ["a"], "callers": callers}),
    );
    assert!(plain.contains("auth.tokenReview.api: it is not https"), "{plain}");
    let local = json!({"api": "http://127.0.0.1:1", "token": {"file": "own"}, "audiences": ["a"], "callers": callers});
    assert_eq!(problems(local), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_gives_the_reason_and_never_the_token() {
    // An API server that repeats the request.
    let echoing = Upstream::start_apart(|request| {
        let body = String::from_utf8_lossy(&request.body).replace('"', "'");
        let own = request.header("authorization").unwrap().to_owned();
        let is_denied = own.contains("denied");
        vec![Step::Send(if is_denied {
            status(403, &format!("{own} {body}"))
        } else {
            reviewed(&json!({"error": body}))
        })]
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let (mut seen, mut logs) = (String::new(), String::new());
    let token = token(3600);
    for own in ["own-c4n4ry", "denied-c4n4ry"] {
        std::fs::write(folder.path().join("own"), own).unwrap();
        let mut configured = config(&echoing, &json!([{"user": "a"}]));
        configured["server"] = json!({"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "drain": "0s"});
        configured["log"] = json!({"level": "debug"});
        let file = folder.path().join("gateway.yaml");
        std::fs::write(&file, configured.to_string()).unwrap();
        let mut gateway = Gateway::serve(&file);
        let reply = exchange(gateway.address, &argo_request("/r/api/v1/getparams.execute", &token, b"{}")).await;
        assert_eq!(reply.status, if own.starts_with("own") { 403 } else { 503 });
        seen += &String::from_utf8_lossy(&reply.raw);
        seen += &exchange(gateway.admin, b"GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n").await.text();
        gateway.signal(Signal::SIGTERM);
        logs += &gateway.wait(Duration::from_secs(10)).1;
    }
    assert!(logs.contains("the API server does not know it") && logs.contains("[redacted]"), "{logs}");
    assert!(logs.contains("needs the cluster role `system:auth-delegator`"), "{logs}");
    for secret in ["c4n4ry", &token, token.rsplit('.').next().unwrap()] {
        assert!(!logs.contains(secret) && !seen.contains(secret), "{logs}");
    }
}
