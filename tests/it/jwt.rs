//! Callers with a JWT of a configured issuer: which tokens are accepted, and what each may ask.

mod forged;
mod keys;
mod reasons;

use std::time::Duration;

use auth::hash_token;
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use crate::support::{
    ADMIN_TOKEN, Reply, TOKEN, TestApp,
    issuer::{Issuer, SigningKey, set_of, unix_now as now},
    wire::{argo_request, exchange_admin},
};

/// The gateway's name in the `aud` claim.
const AUDIENCE: &str = "appset-gateway";

/// The claims of a good token.
fn claims(issuer: &str) -> Value {
    json!({"iss": issuer, "aud": AUDIENCE, "sub": "ci", "iat": now(), "exp": now() + 3600})
}

/// The same with `more`. A `null` removes a claim.
fn claims_with(issuer: &str, more: &Value) -> Value {
    let mut claims = claims(issuer);
    for (name, value) in more.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().shift_remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

/// A configuration with these entries of `auth.jwt`.
fn config(jwt: &Value) -> String {
    let token = |name: &str, token: &str, role: &str| json!({"name": name, "sha256": hash_token(token), "role": role});
    json!({
        "auth": {"tokens": [token("test", TOKEN, "caller"), token("operator", ADMIN_TOKEN, "admin")], "jwt": jwt},
        "routes": [
            {"name": "r", "match": {}, "backend": {"fixed": {"parameters": [{"a": "b"}]}}},
            {"name": "other", "backend": {"fixed": {"parameters": [{"c": "d"}]}}},
        ],
    })
    .to_string()
}

/// An entry for an issuer that publishes its keys.
fn published(issuer: &Issuer, more: &Value) -> Value {
    let url = format!("{}/keys", issuer.name());
    let mut entry =
        json!({"issuer": issuer.name(), "audience": AUDIENCE, "algorithms": ["ES256"], "jwks": {"url": url}});
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    entry
}

/// The answer of the route `route` to `token`.
async fn ask(app: &TestApp, route: &str, token: &str) -> Reply {
    let body = json!({"applicationSetName": "fb-1", "input": {"parameters": {}}}).to_string();
    app.send(&argo_request(&format!("/{route}/api/v1/getparams.execute"), token, body.as_bytes())).await
}

/// Fails unless the reply says no more than that the caller is unknown.
#[track_caller]
fn assert_unauthenticated(reply: &Reply) {
    assert_eq!((reply.status, &*reply.code()), (403, "forbidden"), "{}", reply.text());
    assert!(reply.message().starts_with("the bearer token is missing or wrong"), "{}", reply.message());
}

/// A gateway with one issuer, and a key of that issuer.
async fn gateway(more: &Value) -> (TestApp, Issuer, SigningKey) {
    let key = SigningKey::new("one", Algorithm::ES256);
    let issuer = Issuer::start(set_of(&[&key])).await;
    let app = TestApp::start(&config(&json!([published(&issuer, more)]))).await;
    (app, issuer, key)
}

#[tokio::test]
async fn a_jwt_works_beside_static_tokens() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let token = key.sign(&claims(&issuer.name()));
    for _ in 0..3 {
        assert_eq!(ask(&app, "r", &token).await.sets(), r#"[{"a":"b"}]"#);
        assert_eq!(ask(&app, "r", TOKEN).await.status, 200);
    }
    assert_unauthenticated(&ask(&app, "r", "wrong").await);
    assert_eq!(issuer.asked(), 1, "keys are asked for once");
    assert_eq!(app.metric(&format!("appset_gateway_issuer_keys{{issuer=\"{}\"}}", issuer.name())).await, 1);
}

#[tokio::test]
async fn each_supported_algorithm_is_accepted() {
    let algorithms = [Algorithm::RS256, Algorithm::PS384, Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA];
    let named: Vec<_> = algorithms.iter().map(|algorithm| (format!("{algorithm:?}"), *algorithm)).collect();
    let keys: Vec<_> = named.iter().map(|(name, algorithm)| SigningKey::new(name, *algorithm)).collect();
    let issuer = Issuer::start(set_of(&keys.iter().collect::<Vec<_>>())).await;
    let algorithms: Vec<&String> = named.iter().map(|(name, _)| name).collect();
    let app = TestApp::start(&config(&json!([published(&issuer, &json!({"algorithms": algorithms}))]))).await;
    for key in &keys {
        let reply = ask(&app, "r", &key.sign(&claims(&issuer.name()))).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
    }
}

#[tokio::test]
async fn keys_come_from_a_file_or_a_secret_and_audiences_may_be_several() {
    let folder = tempfile::tempdir().unwrap();
    let (ed, shared) = (SigningKey::new("ed", Algorithm::EdDSA), SigningKey::shared(&"s3cret".repeat(8)));
    std::fs::write(folder.path().join("key.pem"), &ed.public_pem).unwrap();
    std::fs::write(folder.path().join("secret"), "s3cret".repeat(8) + "\n").unwrap();
    let jwt = json!([
        {"issuer": "by key", "audience": ["a", "b"], "algorithms": ["EdDSA"], "publicKey": "key.pem"},
        {"issuer": "by secret", "audience": AUDIENCE, "algorithms": ["HS256"], "secret": {"file": "secret"}},
    ]);
    let app = TestApp::start_in(folder, &config(&jwt)).await;
    for (key, claims, status) in [
        (&ed, claims_with("by key", &json!({"aud": "b"})), 200),
        (&ed, claims_with("by key", &json!({"aud": ["x", "a"]})), 200),
        (&ed, claims("by key"), 403),
        (&shared, claims("by secret"), 200),
        (&shared, claims_with("by key", &json!({"aud": "a"})), 403),
        (&ed, claims("by secret"), 403),
    ] {
        let reply = ask(&app, "r", &key.sign(&claims)).await;
        assert_eq!(reply.status, status, "{claims}: {}", reply.text());
    }
}

#[tokio::test]
async fn routes_and_application_sets_come_from_the_entry_or_from_claims() {
    let (app, issuer, key) = gateway(&json!({"name": "'jwt:' + claims.sub", "routes": ["o*"]})).await;
    let token = key.sign(&claims(&issuer.name()));
    assert_eq!(ask(&app, "other", &token).await.status, 200);
    let refused = ask(&app, "r", &token).await;
    assert_eq!(
        (refused.status, refused.message()),
        (403, "the caller `jwt:ci` may not ask the route `r`; see its `routes`".into())
    );

    let scopes = "{'routes': claims.routes, 'applicationSets': claims.sets}";
    let (app, issuer, key) = gateway(&json!({"scopes": scopes})).await;
    let with = |more: &Value| key.sign(&claims_with(&issuer.name(), more));
    assert_eq!(ask(&app, "r", &with(&json!({"routes": ["r"], "sets": ["fb-*"]}))).await.status, 200);
    let refused = ask(&app, "r", &with(&json!({"routes": ["r"], "sets": ["x"]}))).await;
    assert!(refused.message().contains("may not ask for the ApplicationSet `fb-1`"), "{}", refused.message());
    assert_eq!(ask(&app, "r", &with(&json!({"routes": ["other"], "sets": ["*"]}))).await.status, 403);
    for unfit in [json!({}), json!({"routes": "r", "sets": []}), json!({"routes": ["["], "sets": []})] {
        let refused = ask(&app, "r", &with(&unfit)).await;
        assert_eq!(refused.status, 403);
        assert!(
            refused.message().starts_with("the token's claims do not fit what `auth.jwt[0]`"),
            "{}",
            refused.message()
        );
    }
}

#[tokio::test]
async fn a_jwt_may_have_the_operator_role() {
    let (app, issuer, key) = gateway(&json!({"role": "admin"})).await;
    let token = key.sign(&claims(&issuer.name()));
    let held = async |token: &str| {
        let request = format!("GET /admin/held HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n\r\n");
        exchange_admin(app.admin, request.as_bytes()).await
    };
    assert_eq!(held(&token).await.status, 200);
    assert!(ask(&app, "r", &token).await.message().contains("has the role `admin` and may not call routes"));
    let late = key.sign(&claims_with(&issuer.name(), &json!({"exp": now() - 60})));
    assert!(held(&late).await.message().starts_with("the token has expired"));
    let needed = "this needs a token with `role: admin` or `role: viewer`, see `auth`";
    assert_eq!(held("wrong").await.message(), needed);
    issuer.publish(Vec::new());
}

/// A static token in the form of a JWT stays a static token.
#[tokio::test]
async fn a_static_token_may_look_like_a_jwt() {
    let (key, issuer) = (SigningKey::new("one", Algorithm::ES256), Issuer::start(Vec::new()).await);
    let token = key.sign(&claims(&issuer.name()));
    let config = config(&json!([published(&issuer, &json!({}))])).replace(&hash_token(TOKEN), &hash_token(&token));
    let app = TestApp::start(&config).await;
    assert_eq!(ask(&app, "r", &token).await.status, 200);
    assert_eq!(issuer.asked(), 0);
}

/// A verified token is not verified again, but it expires on time.
#[tokio::test]
async fn a_verified_token_expires_on_time() {
    let (app, issuer, key) = gateway(&json!({})).await;
    let token = key.sign(&claims(&issuer.name()));
    assert_eq!(ask(&app, "r", &token).await.status, 200);
    app.clock.advance(Duration::from_secs(3600 + 29));
    assert_eq!(ask(&app, "r", &token).await.status, 200, "within the leeway");
    app.clock.advance(Duration::from_secs(2));
    let refused = ask(&app, "r", &token).await;
    assert!(refused.message().starts_with("the token has expired at"), "{}", refused.message());
    app.clock.put_back(Duration::from_hours(1));
    assert_eq!(ask(&app, "r", &token).await.status, 200);
}
