//! Strangers' tokens: the number of reviews they cause is limited, and callers with good tokens are not affected.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use appset_gateway::config::Loaded;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use domain::{clock::Clock as _, file::base_dir::BaseDir};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{AUDIENCE, USER, authenticated, config, reviewed};
use crate::support::{
    Reply, TOKEN, TestApp,
    issuer::{SigningKey, unsigned},
    upstream::{Request, Step, Upstream},
    wire::{argo_request, exchange_from},
};

const PATH: &str = "/r/api/v1/getparams.execute";
const ARGO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A slow API server that knows only [`USER`].
struct Slow {
    upstream: Upstream,
    hangs: Arc<AtomicBool>,
}

impl Slow {
    async fn start(latency: Duration) -> Self {
        let hangs = Arc::new(AtomicBool::new(false));
        let is_hanging = Arc::clone(&hangs);
        let upstream = Upstream::start_apart(move |request| {
            let answer = reviewed(&if is_of(request, USER) {
                authenticated(USER, &[AUDIENCE])
            } else {
                json!({"error": "invalid bearer token"})
            });
            let (first, rest) = answer.split_at(1);
            if is_hanging.load(Ordering::SeqCst) {
                return vec![Step::Hang];
            }
            vec![Step::Drip(first.to_vec(), latency), Step::Send(rest.to_vec())]
        })
        .await;
        Self { upstream, hangs }
    }

    fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::SeqCst);
    }

    /// The number of reviews for the subject `sub`.
    fn review_count(&self, sub: &str) -> usize {
        self.upstream.requests().iter().filter(|request| is_of(request, sub)).count()
    }

    async fn gateway(&self) -> TestApp {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own"), "own-token").unwrap();
        TestApp::start_in(folder, &configured(&self.upstream).to_string()).await
    }
}

fn configured(api: &Upstream) -> Value {
    config(api, &json!([{"user": "system:serviceaccount:argocd:*", "routes": ["r"]}]))
}

/// Whether the reviewed token claims the subject `sub`.
fn is_of(request: &Request, sub: &str) -> bool {
    let review: Value = serde_json::from_slice(&request.body).unwrap();
    let claims = review["spec"]["token"].as_str().unwrap().split('.').nth(1).unwrap().to_owned();
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    claims["sub"] == sub
}

/// A new token with the subject `sub`, valid for an hour.
fn token(app: &TestApp, sub: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let now = app.clock.now().0 / 1000;
    let claims = json!({"aud": [AUDIENCE], "sub": sub, "exp": now + 3600, "jti": COUNT.fetch_add(1, Ordering::SeqCst)});
    SigningKey::shared("nobody knows").sign(&claims)
}

async fn ask(app: &TestApp, from: Ipv4Addr, token: &str) -> Reply {
    exchange_from(from, app.address, &argo_request(PATH, token, b"{}")).await
}

#[tokio::test]
async fn an_address_has_a_budget_for_unknown_tokens() {
    let api = Slow::start(Duration::ZERO).await;
    let app = api.gateway().await;
    let known = token(&app, USER);
    assert_eq!(ask(&app, Ipv4Addr::LOCALHOST, &known).await.status, 200);
    let (began, mut refused) = (Instant::now(), 0);
    for _ in 0..600 {
        let reply = ask(&app, Ipv4Addr::LOCALHOST, &token(&app, "stranger")).await;
        assert!([403, 429].contains(&reply.status), "{}", reply.text());
        if reply.status == 429 {
            assert_eq!((&*reply.code(), reply.header("retry-after")), ("throttled", Some("1")));
            refused += 1;
        }
    }
    let may_be_asked = 20 + 2 * (usize::try_from(began.elapsed().as_secs()).unwrap() + 1);
    let reviews = api.review_count("stranger");
    assert!(
        reviews <= may_be_asked && reviews + refused == 600,
        "{reviews} of at most {may_be_asked}, {refused} refused"
    );
    assert_eq!(app.metric("appset_gateway_token_reviews_spared_total{reason=\"throttled\"}").await, refused as u64);
    // Known tokens, other addresses and static tokens do not use this budget.
    app.clock.advance(Duration::from_secs(61));
    assert_eq!(ask(&app, Ipv4Addr::LOCALHOST, &known).await.status, 200);
    assert_eq!(api.review_count(USER), 2);
    assert_eq!(ask(&app, ARGO, &token(&app, USER)).await.status, 200);
    assert_eq!(ask(&app, Ipv4Addr::LOCALHOST, TOKEN).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_callers_delay_nobody_else_at_a_slow_api_server() {
    let api = Slow::start(Duration::from_millis(500)).await;
    let app = Arc::new(api.gateway().await);
    let known = token(&app, USER);
    assert_eq!(ask(&app, ARGO, &known).await.status, 200);
    app.clock.advance(Duration::from_secs(61));
    let mut unknown = JoinSet::new();
    for _ in 0..130 {
        let app = Arc::clone(&app);
        unknown.spawn(async move { ask(&app, Ipv4Addr::LOCALHOST, &token(&app, "stranger")).await.status });
    }
    while api.review_count("stranger") < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // A token that was good before, and a new token.
    assert_eq!(ask(&app, Ipv4Addr::LOCALHOST, &known).await.status, 200);
    assert_eq!(api.review_count(USER), 2, "it was asked about again");
    assert_eq!(ask(&app, ARGO, &token(&app, USER)).await.status, 200);
    let statuses = unknown.join_all().await;
    assert!(statuses.iter().all(|status| [403, 429, 503].contains(status)), "{statuses:?}");
    assert!(api.review_count("stranger") < 40, "{}", api.review_count("stranger"));
}

/// A good token stays accepted for five minutes after its minute, only while the API server is silent.
#[tokio::test]
async fn a_good_token_survives_a_short_outage() {
    let api = Slow::start(Duration::ZERO).await;
    let app = api.gateway().await;
    let known = token(&app, USER);
    assert_eq!(ask(&app, ARGO, &known).await.status, 200);
    api.hang(true);
    for minutes in [1, 1, 1, 1, 1] {
        app.clock.advance(Duration::from_secs(60 * minutes));
        for _ in 0..3 {
            assert_eq!(ask(&app, ARGO, &known).await.status, 200);
        }
    }
    assert!((2..=6).contains(&api.review_count(USER)), "it is left alone for a while: {}", api.review_count(USER));
    assert_eq!(ask(&app, ARGO, &token(&app, USER)).await.status, 503, "one that was never good is not");
    app.clock.advance(Duration::from_mins(1));
    assert_eq!(ask(&app, ARGO, &known).await.status, 503);
    api.hang(false);
    app.clock.advance(Duration::from_mins(1));
    assert_eq!(ask(&app, ARGO, &known).await.status, 200);
    assert!(app.metric("appset_gateway_token_reviews_spared_total{reason=\"last_review\"}").await >= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn timeouts_of_unauthenticated_requests_affect_no_known_caller() {
    let api = Slow::start(Duration::ZERO).await;
    let app = Arc::new(api.gateway().await);
    let known = token(&app, USER);
    assert_eq!(ask(&app, ARGO, &known).await.status, 200);
    api.hang(true);
    let mut unknown = JoinSet::new();
    for n in 0..6 {
        let app = Arc::clone(&app);
        let from = Ipv4Addr::new(127, 0, 1, n / 2);
        unknown.spawn(async move { ask(&app, from, &token(&app, "stranger")).await.status });
    }
    assert_eq!(unknown.join_all().await, [503; 6]);
    api.hang(false);
    let reviews = api.review_count("stranger");
    let reply = ask(&app, Ipv4Addr::LOCALHOST, &token(&app, "stranger")).await;
    assert_eq!((reply.status, api.review_count("stranger")), (503, reviews), "it rests for unknown callers");
    app.clock.advance(Duration::from_secs(61));
    let before = api.review_count(USER);
    assert_eq!(ask(&app, ARGO, &known).await.status, 200);
    assert_eq!(api.review_count(USER), before + 1);
}

#[tokio::test]
async fn tokens_that_cannot_be_valid_are_not_reviewed() {
    let api = Slow::start(Duration::ZERO).await;
    let app = api.gateway().await;
    let now = app.clock.now().0 / 1000;
    let key = SigningKey::shared("nobody knows");
    let none = unsigned(&json!({"alg": "none"}), &json!({"aud": AUDIENCE, "exp": now + 60}));
    for token in [
        format!("{none}."),
        format!("{none}.c2ln"),
        "a.b.c".to_owned(),
        key.sign(&json!({"aud": AUDIENCE})),
        key.sign(&json!({"aud": AUDIENCE, "exp": now - 60})),
        key.sign(&json!({"aud": "https://kubernetes.default.svc", "exp": now + 60})),
    ] {
        let reply = ask(&app, ARGO, &token).await;
        assert_eq!(reply.status, 403, "{token}");
        assert!(reply.message().starts_with("the bearer token is missing or wrong"), "{}", reply.message());
    }
    assert_eq!(api.upstream.requests().len(), 0);
    assert_eq!(app.metric("appset_gateway_token_reviews_spared_total{reason=\"unlikely\"}").await, 5);
}

/// A reload causes no new review of a good token, and resets no budget.
#[tokio::test]
async fn a_reload_keeps_good_tokens_and_spent_budgets() {
    let api = Slow::start(Duration::ZERO).await;
    let app = api.gateway().await;
    let known = token(&app, USER);
    assert_eq!(ask(&app, ARGO, &known).await.status, 200);
    while ask(&app, Ipv4Addr::LOCALHOST, &token(&app, "stranger")).await.status != 429 {}
    let reload = |config: &Value| {
        let loaded = Loaded::parse("new.yaml", config.to_string(), BaseDir::new(app.folder.path()));
        app.app.reload(loaded).unwrap();
    };
    let mut changed = configured(&api.upstream);
    changed["auth"]["tokenReview"]["callers"][0]["name"] = "argo".into();
    reload(&changed);
    assert_eq!(ask(&app, ARGO, &known).await.status, 200);
    assert_eq!(api.review_count(USER), 1);
    let mut statuses = Vec::new();
    for _ in 0..15 {
        statuses.push(ask(&app, Ipv4Addr::LOCALHOST, &token(&app, "stranger")).await.status);
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    // A caller that is removed from the configuration is refused at once.
    changed["auth"]["tokenReview"]["callers"][0]["user"] = "system:serviceaccount:other:*".into();
    reload(&changed);
    assert_eq!(ask(&app, ARGO, &known).await.status, 403);
}
